"""A training step. The picture of the README is its source with notes."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def by_rows(x):
    return jax.lax.with_sharding_constraint(x, P("fsdp"))


@jax.checkpoint
def layer(x, w):
    gate = jax.nn.silu(x @ w["gate"])
    hidden = gate * (x @ w["up"])
    return by_rows(x + hidden @ w["down"]), None


def loss(params, tokens, labels):
    x = by_rows(params["embed"][tokens])
    x, _ = jax.lax.scan(layer, x, params["layers"])
    logits = x @ params["head"]
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, labels, -1).mean()


@partial(jax.jit, donate_argnames="params")
def step(params, tokens, labels):
    grads = jax.grad(loss)(params, tokens, labels)
    return jax.tree.map(lambda w, g: w - 0.01 * g, params, grads)


def arguments(mesh):
    """Return shapes and shardings of a model of 1 billion parameters."""

    def array(shape, *spec, dtype=jnp.float32):
        sharding = jax.NamedSharding(mesh, P(*spec))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    params = {
        "embed": array((32_000, 2048), "tensor"),
        "layers": {
            "gate": array((16, 2048, 8192), None, "fsdp", "tensor"),
            "up": array((16, 2048, 8192), None, "fsdp", "tensor"),
            "down": array((16, 8192, 2048), None, "tensor", "fsdp"),
        },
        "head": array((2048, 32_000), "fsdp", "tensor"),
    }
    tokens = array((16, 1024), "fsdp", dtype=jnp.int32)
    return params, tokens, array((16, 1024, 1), "fsdp", dtype=jnp.int32)
