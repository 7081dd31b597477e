"""The model: embedding, layers in a loop, logits."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from .shardings import BATCH, keep

VOCABULARY, WIDTH, HIDDEN, LAYERS = 4096, 512, 2048, 4
SHAPES = {
    "embed": (VOCABULARY, WIDTH),
    "layers": {"up": (LAYERS, WIDTH, HIDDEN), "down": (LAYERS, HIDDEN, WIDTH)},
    "head": (WIDTH, VOCABULARY),
}


def normalized(x):
    """Return values divided by their root mean square."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def logits(params, tokens, mesh):
    """Return the logits of tokens."""
    x = keep(mesh, params["embed"][tokens], BATCH)

    @jax.checkpoint
    def layer(x, weights):
        y = jax.nn.gelu(normalized(x) @ weights["up"]) @ weights["down"]
        return keep(mesh, x + y, BATCH), None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return keep(mesh, x @ params["head"], P("fsdp", None, "tensor"))
