"""Cost of a report on a program, relative to its compilation, and of a watch on a call."""

from __future__ import annotations

import functools
import time

import compare
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import program_report, watch_compiles

LAYERS = 24
OTHER_LAYERS = (6, 12, 48, 80)
PARAMETERS = (500, 2000)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("data", "fsdp", "tensor"))


def attention(layer, x):
    query, key, value = (jnp.einsum("btd,dhe->bthe", x, layer[name]) for name in ("q", "k", "v"))
    scores = jax.nn.softmax(jnp.einsum("bthe,bshe->bhts", query, key))
    return jnp.einsum("bhts,bshe,hed->btd", scores, value, layer["o"])


def loss(params, x):
    for layer in params:
        x = x + attention(layer, x)
        x = x + jax.nn.gelu(x @ layer["wi"]) @ layer["wo"]
    return jnp.mean(x**2)


def new_step():
    """Return a function that JAX has not traced."""

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    return jax.jit(step)


def array(shape, *axes):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))


layer = {
    **{name: array((256, 8, 32), "fsdp", "tensor") for name in ("q", "k", "v")},
    "o": array((8, 32, 256), "tensor", None, "fsdp"),
    "wi": array((256, 1024), "fsdp", "tensor"),
    "wo": array((1024, 256), "tensor", "fsdp"),
}
batch = array((32, 64, 256), ("data", "fsdp"))


def lowered_layers(count):
    return new_step().lower([layer] * count, batch)


def lowered_parameters(count):
    """Return a step that returns its parameters sharded over another axis."""
    params = {f"layer{number}": array((64, 64), "data") for number in range(count)}
    elsewhere = {name: NamedSharding(mesh, P(None, "tensor")) for name in params}

    def update(params, x):
        return jax.tree.map(lambda p: p - 0.1 * x, params)

    return jax.jit(update, out_shardings=elsewhere).lower(params, array((64, 64)))


# A limit that no compilation reaches, so that JAX does not answer from its cache.
unused = iter(range(2**31 - 1000, 2**31 - 900))


def compare_with_compile(name, lowered, bound):
    """Compare the time of the CPUs for a report with that for the compilation, and return the program."""
    compiled = lowered.compile()
    compare.times(
        f"report of a program of {name}",
        functools.partial(program_report, compiled),
        lambda: lowered.compile(compiler_options={"xla_dump_max_hlo_modules": next(unused)}),
        bound=bound,
        rounds=5,
        clock=time.process_time,
    )
    return compiled


CALLS = 10_000
add = jax.jit(lambda x: x + 1)
x = jnp.ones(8)


def calls() -> None:
    for _ in range(CALLS):
        add(x)


if __name__ == "__main__":
    compiled = compare_with_compile(f"{LAYERS} layers", lowered_layers(LAYERS), "at most 0.2 x")
    compare.times(
        f"report of a function of {LAYERS} layers, to trace, lower and compile it",
        lambda: program_report(new_step(), [layer] * LAYERS, batch),
        lambda: lowered_layers(LAYERS).compile(),
        bound="at most 1.4 x",
        rounds=5,
        clock=time.process_time,
    )
    for count in OTHER_LAYERS:
        compare_with_compile(f"{count} layers", lowered_layers(count), f"as with {LAYERS} layers")
    for count in PARAMETERS:
        compare_with_compile(
            f"{count} parameters, sharded otherwise", lowered_parameters(count), "at most 0.3 x"
        )
    compare.times(
        "the same report with its timeline",
        functools.partial(program_report, compiled, timeline=True),
        functools.partial(program_report, compiled),
        bound="at most 1.5 x",
        rounds=5,
    )
    # In turn: the same calls with and without a watch.
    watch = watch_compiles()

    def watched() -> None:
        with watch:
            for _ in range(CALLS):
                add(x)

    compare.times(f"{CALLS} calls that compile nothing, watched", watched, calls, bound="at most 1.02 x")
