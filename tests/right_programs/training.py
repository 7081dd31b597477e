"""Training steps."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.programs import abstract, line

from .registry import TOKENS, VOCABULARY, WIDTH, Program, grid, keep, mlp, mlp_loss, named, specs_of, step


def adam(params, first, second, x, of=mlp_loss):
    gradients = jax.grad(of)(params, x)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), gradients)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.9 * v + 0.1 * g * g, second, gradients)
    params = jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), params, first, second)
    return params, first, second


def _trained(weights, moments, batch):
    mesh = line("data")
    params, first = mlp(mesh, *weights), mlp(mesh, *moments)
    x = abstract(mesh, batch, (8 * TOKENS, WIDTH))
    specs = specs_of(params), specs_of(first), specs_of(first)
    return mesh, Program(adam, (params, first, first, x), specs)


@named("data parallelism")
def _():
    return _trained(((), ()), ((), ()), P("data"))


@named("ZeRO-1")
def _():
    return _trained(((), ()), (("data",), ("data",)), P("data"))


@named("ZeRO-2: gradients accumulate sharded")
def _():
    mesh = line("data")
    params = mlp(mesh, (), ())
    x = abstract(mesh, P(None, "data"), (4, 8 * TOKENS, WIDTH))

    def step(params, x):
        def add(total, x):
            g = jax.tree.map(lambda g: keep(mesh, g, "data"), jax.grad(mlp_loss)(params, x))
            return jax.tree.map(jnp.add, total, g), None

        zeros = jax.tree.map(lambda p: keep(mesh, jnp.zeros_like(p), "data"), params)
        total, _ = lax.scan(add, zeros, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)

    return mesh, Program(step, (params, x), specs_of(params))


@named("ZeRO-3, FSDP")
def _():
    return _trained((("data",), ("data",)), (("data",), ("data",)), P("data"))


@named("FSDP of layers in a scan, remat")
def _():
    mesh = line("data")
    params = mlp(mesh, ("data",), (None, "data"), 3)
    x = abstract(mesh, P("data"), (8 * TOKENS, WIDTH))

    def loss(params, x):
        block = jax.checkpoint(lambda x, w: (x + jax.nn.gelu(x @ w["wi"]) @ w["wo"], None))
        return jnp.mean(lax.scan(block, x, params)[0] ** 2)

    return mesh, Program(lambda p, x: step(p, x, loss), (params, x), specs_of(params))


@named("FSDP over one axis, tensor parallelism over another")
def _():
    mesh = grid()
    params = mlp(mesh, ("data", "tensor"), ("tensor", "data"))
    x = abstract(mesh, P("data"), (8 * TOKENS, WIDTH))
    return mesh, Program(step, (params, x), specs_of(params))


@named("embedding of sharded tokens")
def _():
    mesh = line("data")
    table = abstract(mesh, P(), (VOCABULARY, WIDTH))
    ids = abstract(mesh, P("data"), (8 * TOKENS,), "int32")
    return mesh, Program(
        lambda table, ids: step(table, ids, lambda t, ids: jnp.mean(t[ids] ** 2)), (table, ids), P()
    )


@named("embedding sharded over the vocabulary, masked lookups by XLA")
def _():
    mesh = grid()
    table = abstract(mesh, P("tensor"), (VOCABULARY, WIDTH))
    ids = abstract(mesh, P("data"), (8 * TOKENS,), "int32")
    return mesh, Program(
        lambda table, ids: step(table, ids, lambda t, ids: jnp.mean(t[ids] ** 2)), (table, ids), P("tensor")
    )


@named("cross entropy over a sharded vocabulary")
def _():
    mesh = grid()
    head = abstract(mesh, P(None, "tensor"), (WIDTH, VOCABULARY))
    x = abstract(mesh, P("data"), (8 * TOKENS, WIDTH))
    ids = abstract(mesh, P("data"), (8 * TOKENS,), "int32")

    def loss(head, x, ids):
        logits = x @ head
        picked = jnp.take_along_axis(logits, ids[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return mesh, Program(
        lambda head, x, ids: head - 0.1 * jax.grad(loss)(head, x, ids), (head, x, ids), P(None, "tensor")
    )


@named("LoRA on frozen FSDP weights")
def _():
    mesh = line("data")
    frozen = mlp(mesh, ("data",), ("data",))
    a = {name: abstract(mesh, P(), (frozen[name].shape[0], 8)) for name in frozen}
    b = {name: abstract(mesh, P(), (8, frozen[name].shape[1])) for name in frozen}
    x = abstract(mesh, P("data"), (8 * TOKENS, WIDTH))

    def loss(ab, frozen, x):
        return mlp_loss(jax.tree.map(lambda w, a, b: w + a @ b, frozen, *ab), x)

    def step(ab, frozen, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, ab, jax.grad(loss)(ab, frozen, x))

    return mesh, Program(step, ((a, b), frozen, x), specs_of((a, b)))


@named("batch norm over a sharded batch")
def _():
    mesh = line("data")
    kernel = abstract(mesh, P(), (3, 3, 16, 64))
    scale = abstract(mesh, P(), (64,))
    images = abstract(mesh, P("data"), (32, 32, 32, 16))

    def loss(params, images):
        kernel, scale = params
        x = lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5) * scale
        return jnp.mean(jax.nn.relu(x) ** 2)

    return mesh, Program(lambda p, x: step(p, x, loss), ((kernel, scale), images), (P(), P()))


@named("gradient accumulation")
def _():
    mesh = line("data")
    params = mlp(mesh, (), ())
    x = abstract(mesh, P(None, "data"), (4, 8 * TOKENS, WIDTH))

    def step(params, x):
        add = lambda total, x: (jax.tree.map(jnp.add, total, jax.grad(mlp_loss)(params, x)), None)  # noqa: E731
        total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, params), x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)

    return mesh, Program(step, (params, x), specs_of(params))


@named("contrastive loss of FSDP encoders")
def _():
    mesh = line("data")
    encoder, x = abstract(mesh, P("data"), (512, WIDTH)), abstract(mesh, P("data"), (512, 512))

    def loss(encoders, x):
        logits = (x @ encoders[0]) @ (jnp.sin(x) @ encoders[1]).T
        losses = (jax.nn.logsumexp(logits, axis) - jnp.diag(logits) for axis in (0, 1))
        return sum(one.mean() for one in losses)

    return mesh, Program(lambda p, x: step(p, x, loss), ((encoder, encoder), x), (P("data"), P("data")))


def _language_loss(params, ids):
    def block(x, w):
        x = x + jax.nn.relu(x @ w["wi"]) @ w["wo"]
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6), None

    x, _ = lax.scan(
        jax.checkpoint(block), params["table"][ids], {name: params[name] for name in ("wi", "wo")}
    )
    return -jnp.mean(jax.nn.log_softmax(x @ params["head"])[..., 0])


_SHAPES = {"table": (512, 64), "wi": (3, 64, 256), "wo": (3, 256, 64), "head": (64, 512)}
_ROW = functools.partial(line, "data")
_REPLICATED = dict.fromkeys(_SHAPES, P())
_FSDP = {"table": P("data"), "wi": P(None, "data"), "wo": P(None, "data"), "head": P("data")}
_TENSOR = {
    "table": P("tensor"),
    "wi": P(None, None, "tensor"),
    "wo": P(None, "tensor"),
    "head": P(None, "tensor"),
}


def _language_model(mesh_of, specs, moments, batch, *, is_requested=True):
    mesh = mesh_of()
    params, first = (
        {name: abstract(mesh, of[name], shape) for name, shape in _SHAPES.items()} for of in (specs, moments)
    )
    out = (specs, moments, moments) if is_requested else None
    return mesh, Program(
        functools.partial(adam, of=_language_loss),
        (params, first, first, abstract(mesh, batch, (16, 32), "int32")),
        out,
    )


for _name, _given in {
    "ZeRO-1": (_ROW, _REPLICATED, _FSDP, P("data")),
    "FSDP": (_ROW, _FSDP, _FSDP, P("data")),
    "tensor parallelism": (grid, _TENSOR, _TENSOR, P("data")),
    "tensor parallelism, ZeRO-1 over the other axis": (grid, _TENSOR, _FSDP, P("data")),
    "batch over two axes": (grid, _REPLICATED, _REPLICATED, P(("data", "tensor"))),
    "sequences in parts": (grid, _REPLICATED, _REPLICATED, P("data", "tensor")),
}.items():
    named(f"language model, {_name}")(functools.partial(_language_model, *_given))
    named(f"language model, {_name}, outputs by XLA")(
        functools.partial(_language_model, *_given, is_requested=False)
    )


@named("language model, four steps in a loop")
def _():
    mesh, (_, (params, first, _, _), out) = _language_model(_ROW, _REPLICATED, _FSDP, P("data"))

    def train(*state):
        *state, ids = state
        return lax.scan(lambda state, ids: (adam(*state, ids, of=_language_loss), None), tuple(state), ids)[0]

    ids = abstract(mesh, P(None, "data"), (4, 16, 32), "int32")
    return mesh, Program(train, (params, first, first, ids), out)
