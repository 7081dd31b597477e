"""Programs with one sharding that is wrong, and functions of their arguments."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def struct(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def con(mesh, x, spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


# Serving: the cache of keys and values is replicated.
LAYERS, WIDTH, HEADS, HEAD, WORDS, BATCH, LENGTH = 4, 512, 8, 64, 8192, 16, 2048
CACHE = P()


def decoder_block(carry, layer):
    (x, position), (w, keys, values) = carry, layer
    q, k, v = ((x @ w[name]).reshape(BATCH, 1, HEADS, HEAD) for name in ("query", "key", "value"))
    keys = jax.lax.dynamic_update_slice(keys, k, (0, position, 0, 0))
    values = jax.lax.dynamic_update_slice(values, v, (0, position, 0, 0))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys) / 8
    weights = jax.nn.softmax(jnp.where(jnp.arange(LENGTH) <= position, scores, -1e9), -1)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(BATCH, HEADS * HEAD) @ w["out"]
    return (x + jax.nn.gelu(x @ w["up"]) @ w["down"], position), (keys, values)


@functools.partial(jax.jit, donate_argnums=1)
def decode(params, cache, words, position):
    start = params["embed"][words], position
    (x, _), cache = jax.lax.scan(decoder_block, start, (params["layers"], *cache))
    return jnp.argmax(x @ params["head"], -1), cache


def decode_args(mesh):
    array = functools.partial(struct, mesh, dtype=jnp.bfloat16)

    def columns(size):
        return array((LAYERS, WIDTH, size), None, None, "tensor")

    layers = {name: columns(HEADS * HEAD) for name in ("query", "key", "value")}
    layers |= {"out": array((LAYERS, HEADS * HEAD, WIDTH), None, "tensor"), "up": columns(4 * WIDTH)}
    layers |= {"down": array((LAYERS, 4 * WIDTH, WIDTH), None, "tensor")}
    params = {
        "embed": array((WORDS, WIDTH), None, "tensor"),
        "head": array((WIDTH, WORDS), None, "tensor"),
        "layers": layers,
    }
    cache = array((LAYERS, BATCH, LENGTH, HEADS, HEAD), *CACHE)
    words = struct(mesh, (BATCH,), "data", dtype=jnp.int32)
    return params, (cache, cache), words, struct(mesh, (), dtype=jnp.int32)


# A language model's head: its logits are whole over "tensor".
LOGITS = P("fsdp")


def head_loss(head, x, y, mesh):
    logits = con(mesh, x @ head, LOGITS)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * jax.nn.one_hot(y, 8192), -1))


def head_step(head, x, y, mesh):
    value, grads = jax.value_and_grad(head_loss)(head, x, y, mesh)
    return value, con(mesh, grads, P("fsdp", "tensor"))


def head_step_args(mesh):
    words = struct(mesh, (4096,), "fsdp", dtype=jnp.int32)
    return struct(mesh, (512, 8192), "fsdp", "tensor"), struct(mesh, (4096, 512), "fsdp"), words


# Adam: the moments are replicated, by a table of specs.
PARAM, MOMENT = P("fsdp", "tensor"), P()


def adam_shardings(mesh):
    specs = {"param": PARAM, "mu": MOMENT, "nu": MOMENT}
    return {name: NamedSharding(mesh, spec) for name, spec in specs.items()}


@functools.partial(jax.jit, donate_argnums=0, static_argnames="mesh")
def adam(state, x, mesh):
    grads = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(state["param"])
    grads = con(mesh, grads, PARAM)
    mu = 0.9 * state["mu"] + 0.1 * grads
    nu = 0.999 * state["nu"] + 0.001 * grads * grads
    new = {"param": state["param"] - 1e-3 * mu / (jnp.sqrt(nu) + 1e-8), "mu": mu, "nu": nu}
    return jax.lax.with_sharding_constraint(new, adam_shardings(mesh))


def adam_args(mesh):
    state = {
        name: jax.ShapeDtypeStruct((2048, 8192), jnp.float32, sharding=sharding)
        for name, sharding in adam_shardings(mesh).items()
    }
    return state, struct(mesh, (1024, 2048), "fsdp")


# An embedding whose vocabulary is sharded: the constraint drops the batch.
def embedding(table, weight, words, mesh):
    h = con(mesh, jnp.take(table, words, axis=0), P(None, None))
    return con(mesh, h @ weight, P("data", "tensor"))


def embedding_args(mesh):
    table, weight = struct(mesh, (4096, 512), "tensor", None), struct(mesh, (512, 512), None, "tensor")
    return table, weight, struct(mesh, (2048,), "data", dtype=jnp.int32)


# Training without constraints: the batch is lost at the embedding.
def train_block(layer, h):
    x = h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6)
    q, k, v = (jnp.einsum("btd,dnh->btnh", x, layer[name]) for name in ("query", "key", "value"))
    weights = jax.nn.softmax(jnp.einsum("btnh,bsnh->bnts", q, k) / 8)
    attended = jnp.einsum("bnts,bsnh->btnh", weights, v)
    h = h + jnp.einsum("btnh,nhd->btd", attended, layer["out"])
    return h + jax.nn.gelu(h @ layer["up"]) @ layer["down"]


def train_loss(params, words):
    h = params["embed"][words]
    h, _ = jax.lax.scan(lambda h, layer: (jax.checkpoint(train_block)(layer, h), None), h, params["layers"])
    logits = h @ params["embed"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), words[..., None], -1).mean()


def train(params, words):
    value, grads = jax.value_and_grad(train_loss)(params, words)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value


def train_args(mesh):
    array = functools.partial(struct, mesh)
    heads = array((4, 512, 8, 64), None, "fsdp", "tensor")
    layers = {"query": heads, "key": heads, "value": heads}
    layers["out"] = array((4, 8, 64, 512), None, "tensor", None, "fsdp")
    layers["up"] = array((4, 512, 2048), None, "fsdp", "tensor")
    layers["down"] = array((4, 2048, 512), None, "tensor", "fsdp")
    params = {"embed": array((8192, 512), "tensor", "fsdp"), "layers": layers}
    return params, array((16, 128), "fsdp", dtype=jnp.int32)


# A Monte Carlo mean: each device draws all paths.
def paths(key):
    noise = jax.random.normal(key, (65536, 252))
    prices = jnp.exp(jnp.cumsum(0.01 * noise, 1))
    return jnp.maximum(prices[:, -1] - 1, 0).mean()


def paths_args(mesh):
    return (struct(mesh, (), dtype=jax.random.key(0).dtype),)


# An ensemble Kalman filter: it enters and leaves each step sharded over its members.
def forecast(x):
    def slope(x):
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8.0

    def runge_kutta(x, _):
        k1 = slope(x)
        k2 = slope(x + 0.005 * k1)
        k3 = slope(x + 0.005 * k2)
        k4 = slope(x + 0.01 * k3)
        return x + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(runge_kutta, x, None, length=10)[0]


def kalman(ensemble, observed):
    ensemble = jax.vmap(forecast)(ensemble)
    members = ensemble.shape[0]
    ensemble = jax.lax.with_sharding_constraint(ensemble, P(None, "member"))
    mean, seen = ensemble.mean(0), ensemble[:, ::4]
    away = seen - seen.mean(0)
    values, vectors = jnp.linalg.eigh(away @ away.T + (members - 1) * jnp.eye(members))
    weights = vectors @ ((vectors.T @ ((observed - seen.mean(0)) @ away.T)) / values)
    spread = vectors @ jnp.diag(jnp.sqrt((members - 1) / values)) @ vectors.T
    ensemble = mean + (weights[:, None] + spread).T @ (ensemble - mean)
    return jax.lax.with_sharding_constraint(ensemble, P("member"))


def kalman_args(mesh):
    return struct(mesh, (256, 16384), "member"), struct(mesh, (4096,))
