"""A training step of a small transformer whose shardings are right."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, HEADS, HEAD, INNER, WORDS, BATCH, LENGTH = 4, 512, 8, 64, 2048, 8192, 16, 256
SPECS = {
    "embed": P("tensor", "fsdp"),
    "head": P("fsdp", "tensor"),
    "layers": {
        "query": P(None, "fsdp", "tensor"),
        "key": P(None, "fsdp", "tensor"),
        "value": P(None, "fsdp", "tensor"),
        "out": P(None, "tensor", "fsdp"),
        "up": P(None, "fsdp", "tensor"),
        "down": P(None, "tensor", "fsdp"),
        "scale_1": P(),
        "scale_2": P(),
    },
}
SHAPES = {
    "embed": (WORDS, WIDTH),
    "head": (WIDTH, WORDS),
    "layers": {
        "query": (LAYERS, WIDTH, HEADS * HEAD),
        "key": (LAYERS, WIDTH, HEADS * HEAD),
        "value": (LAYERS, WIDTH, HEADS * HEAD),
        "out": (LAYERS, HEADS * HEAD, WIDTH),
        "up": (LAYERS, WIDTH, INNER),
        "down": (LAYERS, INNER, WIDTH),
        "scale_1": (LAYERS, WIDTH),
        "scale_2": (LAYERS, WIDTH),
    },
}
MOMENT_SPECS = SPECS


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def con(mesh, x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def block(mesh, x, layer):
    layer = jax.tree.map(lambda a: a.astype(jnp.bfloat16), layer)
    h = norm(x, layer["scale_1"])
    q, k, v = ((h @ layer[name]).reshape(BATCH, LENGTH, HEADS, HEAD) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(jnp.bfloat16)
    attended = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(BATCH, LENGTH, HEADS * HEAD)
    x = con(mesh, x + attended @ layer["out"], "fsdp", None, None)
    inner = jax.nn.gelu(norm(x, layer["scale_2"]) @ layer["up"])
    x = con(mesh, x + inner @ layer["down"], "fsdp", None, None)
    return x, None


def loss(params, batch, mesh):
    x = params["embed"].astype(jnp.bfloat16)[batch["x"]]
    x = con(mesh, x, "fsdp", None, None)
    x, _ = jax.lax.scan(jax.checkpoint(functools.partial(block, mesh)), x, params["layers"])
    logits = con(mesh, (x @ params["head"].astype(jnp.bfloat16)).astype(jnp.float32), "fsdp", None, "tensor")
    label = jax.nn.one_hot(batch["y"], WORDS, dtype=jnp.float32)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * label, -1))


def shardings(mesh):
    params, moments = (
        jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs) for specs in (SPECS, MOMENT_SPECS)
    )
    return {"params": params, "mu": moments, "nu": moments, "count": NamedSharding(mesh, P())}


def args(mesh):
    whole = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32), SHAPES, is_leaf=lambda a: isinstance(a, tuple)
    )
    state = {"params": whole, "mu": whole, "nu": whole, "count": jax.ShapeDtypeStruct((), jnp.int32)}
    state = jax.tree.map(
        lambda a, sharding: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), state, shardings(mesh)
    )
    words = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    return state, {"x": words, "y": words}


@functools.partial(jax.jit, donate_argnums=0, static_argnames="mesh")
def step(state, batch, mesh):
    value, grads = jax.value_and_grad(loss)(state["params"], batch, mesh)
    grads = jax.lax.with_sharding_constraint(grads, shardings(mesh)["params"])
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
    nu = jax.tree.map(lambda n, g: 0.999 * n + 0.001 * g * g, state["nu"], grads)
    params = jax.tree.map(lambda p, m, n: p - 1e-3 * m / (jnp.sqrt(n) + 1e-8), state["params"], mu, nu)
    new = {"params": params, "mu": mu, "nu": nu, "count": state["count"] + 1}
    return jax.lax.with_sharding_constraint(new, shardings(mesh)), value
