"""Compilations of functions that Flax and Equinox jit: they are the user's."""

import jax
import jax.numpy as jnp
import optax
import pytest

from jax_array_info import watch_compiles


def found(watch):
    return [(one.function, one.reason) for one in watch.compilations]


def test_a_function_of_nnx_jit_is_named_and_its_batch_size_is_the_reason():
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    @nnx.jit
    def evaluate(model, x):
        return model(x).sum()

    with watch_compiles(evaluate) as watch:
        for size in (8, 8, 4):
            evaluate(model, jnp.ones((size, 4)))
    assert found(watch) == [
        ("evaluate", "first in the block"),
        ("evaluate", "x: shape (8, 4) became (4, 4)"),
    ]
    assert watch.compilations[0].origin.file == __file__


def test_a_function_of_filter_jit_is_named_and_watched():
    equinox = pytest.importorskip("equinox")

    @equinox.filter_jit
    def step(model, x, power):
        return (x @ model) ** power

    with watch_compiles(step) as watch:
        for size, power in ((8, 2), (8, 2), (4, 2), (4, 3)):
            step(jnp.ones((3, 3)), jnp.ones((size, 3)), power)
        equinox.filter_jit(lambda x: x)(jnp.ones(3))
    names, reasons = zip(*found(watch), strict=True)
    assert names == ("step",) * 3
    assert reasons[1:] == ("x: shape (8, 3) became (4, 3)", "static argument power: 2 became 3")
    assert watch.report().other_count == 1


def test_reasons_have_the_paths_of_the_objects_that_filter_jit_gets():
    equinox = pytest.importorskip("equinox")

    def model(width, activation=jax.nn.relu):
        return equinox.nn.MLP(4, 4, width, 1, activation=activation, key=jax.random.key(0))

    @equinox.filter_jit
    def step(model, *inputs, scale=1):
        return [scale * model(x) for x in inputs]

    x = jnp.ones(4)
    with watch_compiles(step) as watch:
        step(model(8), x)
        step(model(8, jnp.tanh), x)
        step(model(8), x, jnp.ones(4, jnp.bfloat16))
        step(model(8), x, scale=jnp.ones(()))
        step(model(16), x)
    (_, activation), (_, added), (_, scale), (_, width) = found(watch)[1:]
    assert activation.startswith("static argument model/activation: ")
    assert added == "inputs[1] is new"
    assert scale == "scale is new"
    assert "model/layers/0/weight: shape (8, 4) became (16, 4)" in width
    assert "dynamic" not in f"{activation}{width}"


def test_functions_of_libraries_that_were_compiled_before_the_block_say_so_where_jax_has_a_cache_for_each():
    nnx, equinox = pytest.importorskip("flax.nnx"), pytest.importorskip("equinox")

    def scale(x, power):
        return x * power

    def same_name(x):
        return x + 1

    same_name.__name__ = same_name.__qualname__ = "scale"
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    apply, filtered = nnx.jit(lambda model, x: model(x)), equinox.filter_jit(scale)
    apply(model, jnp.ones((8, 4)))
    filtered(jnp.ones(3), 2)
    with watch_compiles() as watch:
        apply(model, jnp.ones((4, 4)))
        filtered(jnp.ones(3), 5)
        equinox.filter_jit(same_name)(jnp.ones(3))
    linear, static, first = (one.reason for one in watch.compilations)
    assert linear == "first in the block; compiled before it"
    assert static == first == "first in the block"


def test_a_training_loop_of_optax_compiles_once_more_for_the_last_batch():
    optimizer = optax.adam(1e-3)

    @jax.jit
    def train_step(params, state, batch):
        gradients = jax.grad(lambda params: ((batch @ params["w"]) ** 2).mean())(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    params = {"w": jnp.ones((4, 2))}
    state = optimizer.init(params)
    with watch_compiles(train_step) as watch:
        for size in (16, 16, 16, 9):
            params, state = train_step(params, state, jnp.ones((size, 4)))
    assert found(watch) == [
        ("train_step", "first in the block"),
        ("train_step", "batch: shape (16, 4) became (9, 4)"),
    ]


def test_reasons_have_the_paths_of_the_objects_that_nnx_jit_gets():
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self, width):
            self.first = nnx.Linear(4, width, use_bias=False, rngs=nnx.Rngs(0))
            self.second = nnx.Linear(width, 4, use_bias=False, rngs=nnx.Rngs(0))
            self.tied = self.first

    @nnx.jit
    def evaluate(batch, models):
        return models["a"].second(models["a"].first(batch)) + models["b"].tied(batch).sum()

    with watch_compiles(evaluate) as watch:
        for width in (8, 6):
            evaluate(jnp.ones((2, 4)), {"a": Model(width), "b": Model(8)})
    assert "; models/a/first/kernel: shape (4, 8) became (4, 6)" in found(watch)[1][1]


def test_the_static_attribute_that_differs_in_an_nnx_object_is_named():
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self, activation):
            self.dense = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
            self.activation = activation

    @nnx.jit
    def evaluate(model, x):
        return model.activation(model.dense(x))

    with watch_compiles(evaluate) as watch:
        for _ in range(2):
            evaluate(Model(lambda x: x), jnp.ones((2, 4)))
    line = evaluate.__wrapped__.__code__.co_firstlineno + 6
    assert found(watch)[1][1].endswith(
        f"activation: another function of the same line test_compilations.py:{line}; make it once, outside the loop"
    )
