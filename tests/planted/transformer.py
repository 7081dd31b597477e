"""A training step of a transformer, a decoding step and a mixture of experts, each with mistakes to choose from."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from tests.programs import abstract

LAYERS, WIDTH, HEADS, HIDDEN, WORDS, BATCH, LENGTH = 2, 128, 4, 512, 2048, 16, 128
SPECS = {
    "embed": P("tensor", "fsdp"),
    "head": P("fsdp", "tensor"),
    "qkv": P(None, None, "fsdp", "tensor"),
    "o": P(None, "tensor", "fsdp"),
    "up": P(None, "fsdp", "tensor"),
    "down": P(None, "tensor", "fsdp"),
}
SHAPES = {
    "embed": (WORDS, WIDTH),
    "head": (WIDTH, WORDS),
    "qkv": (LAYERS, 3, WIDTH, WIDTH),
    "o": (LAYERS, WIDTH, WIDTH),
    "up": (LAYERS, WIDTH, HIDDEN),
    "down": (LAYERS, HIDDEN, WIDTH),
}


def keep(x, *spec):
    """Return an array with a constraint."""
    return lax.with_sharding_constraint(x, P(*spec))


def norm(x):
    """Return rows with a mean square of 1."""
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def training(mistake=None):
    """Return a mesh, a training step with a mistake, and its arguments.

    Args:
        mistake: Name of a mistake in the source; None for the right step.
    """
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("fsdp", "tensor"))
    specs = {**SPECS, "down": P(None, "fsdp", "tensor")} if mistake == "spec" else SPECS
    whole = dict.fromkeys(SPECS, P())
    moments = whole if mistake == "moments" else specs

    def activations(x, spec):
        return x if mistake == "activations" else keep(x, *spec)

    def block(x, w):
        q, k, v = (
            (norm(x) @ w["qkv"][place]).reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS) for place in range(3)
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)  # activations
        mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        p = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(x.shape)  # activations
        x = activations(x + mixed @ w["o"], ("fsdp",))
        hidden = jax.nn.gelu(norm(x) @ w["up"])
        x = x + hidden @ w["down"]  # spec, carry
        return activations(x, () if mistake == "carry" else ("fsdp",)), None  # carry

    def loss(params, tokens, targets):
        table = keep(params["embed"]) if mistake == "embedding" else params["embed"]  # embedding
        x = activations(table[tokens], ("fsdp",))  # lookup, embedding
        x, _ = lax.scan(jax.checkpoint(block), x, {name: params[name] for name in ("qkv", "o", "up", "down")})
        logits = x @ params["head"]  # logits
        logits = keep(logits, "fsdp", None, None if mistake == "logits" else "tensor")  # logits
        hot = jax.nn.one_hot(targets, WORDS)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * hot, -1))  # logits

    def step(state, tokens, targets):
        gradient = jax.grad(loss)(state["params"], tokens, targets)
        wanted = whole if mistake == "gradient" else specs
        gradient = lax.with_sharding_constraint(gradient, wanted)  # gradient
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)  # moments
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], gradient)  # moments
        change = jax.tree.map(lambda m, s: 0.01 * m / (jnp.sqrt(s) + 1e-6), mean, square)
        params = jax.tree.map(lambda p, c: p - c, state["params"], change)
        if mistake == "outputs":
            return {"params": params, "mean": mean, "square": square}
        shardings = {"params": specs, "mean": moments, "square": moments}
        return lax.with_sharding_constraint({"params": params, "mean": mean, "square": square}, shardings)

    def state_of(specs):
        return {name: abstract(mesh, specs[name], shape) for name, shape in SHAPES.items()}

    state = {"params": state_of(specs), "mean": state_of(moments), "square": state_of(moments)}
    tokens = abstract(mesh, P("fsdp"), (BATCH, LENGTH), "int32")
    return mesh, jax.jit(step, donate_argnums=0), state, tokens, tokens


def decoding(mistake=None):
    """Return a mesh, a decoding step whose cache is replicated by mistake, and its arguments."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "tensor"))
    heads = (BATCH, HEADS, WIDTH // HEADS)

    def step(cache, params, token, place):
        x = params["embed"][token]
        q, k, v = (jnp.einsum("bw,whd->bhd", x, params[name]) for name in "qkv")
        keys = lax.dynamic_update_slice(cache["keys"], k[:, None], (0, place, 0, 0))  # cache
        values = lax.dynamic_update_slice(cache["values"], v[:, None], (0, place, 0, 0))  # cache
        p = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", q, keys))
        x = x + jnp.einsum("bht,bthd->bhd", p, values).reshape(x.shape) @ params["o"]
        return {"keys": keys, "values": values}, jnp.argmax(x @ params["head"], -1)

    spec = P() if mistake == "cache" else P("data", None, "tensor")
    entry = abstract(mesh, spec, (BATCH, 2048, *heads[1:]))
    params = {name: abstract(mesh, P(None, "tensor"), (WIDTH, *heads[1:])) for name in "qkv"}
    params["o"] = abstract(mesh, P("tensor"), (WIDTH, WIDTH))
    params["embed"] = abstract(mesh, P(), (WORDS, WIDTH))
    params["head"] = abstract(mesh, P(None, "tensor"), (WIDTH, WORDS))
    cache = {"keys": entry, "values": entry}
    arguments = cache, params, abstract(mesh, P("data"), (BATCH,), "int32"), abstract(mesh, P(), (), "int32")
    return mesh, jax.jit(step, donate_argnums=0), *arguments


def experts(mistake=None):
    """Return a mesh, a step of a mixture of experts that lose the batch by mistake, and its arguments."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "expert"))

    def loss(params, x):
        chosen = jnp.argmax(x @ params["router"], -1)
        hot = jax.nn.one_hot(chosen, 8, dtype=jnp.int32)
        place = jnp.sum(jnp.cumsum(hot, 0) * hot, -1) - 1
        buffer = jnp.zeros((8, 512, WIDTH)).at[chosen, place].set(x, mode="drop")
        if mistake != "experts":
            buffer = keep(buffer, "expert", "data")
        hidden = jax.nn.gelu(jnp.einsum("ecw,ewh->ech", buffer, params["up"]))  # experts
        y = jnp.einsum("ech,ehw->ecw", hidden, params["down"])  # experts
        return jnp.mean(y[chosen, place] ** 2)

    def step(params, x):
        change = jax.grad(loss)(params, x)
        return {name: keep(params[name] - change[name], *SPECS_OF_EXPERTS[name]) for name in params}

    params = {
        "router": abstract(mesh, P(), (WIDTH, 8)),
        "up": abstract(mesh, P("expert"), (8, WIDTH, HIDDEN)),
        "down": abstract(mesh, P("expert"), (8, HIDDEN, WIDTH)),
    }
    x = abstract(mesh, P(("data", "expert")), (2048, WIDTH))
    return mesh, jax.jit(step, donate_argnums=0), params, x


SPECS_OF_EXPERTS = {"router": P(), "up": P("expert"), "down": P("expert")}
