"""The first value that differs inside a static part of a call."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import watch_compiles

pytestmark = pytest.mark.once_per_version

ONES = np.ones(4, np.float32)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_kept():
    """Free the arrays of static arguments: JAX 0.10 and later keep them in caches beyond the end of the function."""
    yield
    jax.clear_caches()


def scale(rate, x):
    return rate * x


def shrink(rate):
    return lambda x: -rate * x


def unused():
    return lambda x: x


HERE = "test_static_parts.py"
SHRINK = f"another function of the same line {HERE}:{shrink.__code__.co_firstlineno + 1}"
UNUSED = f"another function of the same line {HERE}:{unused.__code__.co_firstlineno + 1}"
SCALE = f"another partial of the same line {HERE}:{scale.__code__.co_firstlineno}"
ONCE = "; make it once, outside the loop"
AS_ARGUMENT = "; pass it as an argument"


@dataclasses.dataclass(frozen=True)
class Config:
    name: str
    update: Any = None
    note: Any = dataclasses.field(default=None, compare=False)


def reason(function, *calls):
    """Return the reason of the last of some calls."""
    with watch_compiles(function) as watch:
        for args in calls:
            function(*args)
    return watch.compilations[-1].reason if watch.count == len(calls) else None


def stepped():
    return jax.jit(lambda x, n: x + 1, static_argnums=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda turn: Config("adam", unused()), f"field update: {UNUSED}{ONCE}"),
        (lambda turn: Config("adam", shrink(0.1)), f"field update: {SHRINK}{ONCE}"),
        (
            lambda turn: Config("adam", shrink(turn)),
            f"field update: {SHRINK}, with rate 1 became 2{AS_ARGUMENT}",
        ),
        (lambda turn: ("a", (3, unused())), f"field 1/1: {UNUSED}{ONCE}"),
        (lambda turn: (unused(), 7), f"field 0: {UNUSED}{ONCE}"),
        (lambda turn: functools.partial(scale, 0.1), f"{SCALE}{ONCE}"),
        (lambda turn: functools.partial(scale, turn), f"{SCALE}, with rate 1 became 2{AS_ARGUMENT}"),
        (lambda turn: functools.partial(scale, unused()), f"{SCALE}, with rate: {UNUSED}{ONCE}"),
        (
            lambda turn: Config("adam", shrink(jnp.ones(3) * turn)),
            f"field update: {SHRINK}, with rate: another array, float32[3]{AS_ARGUMENT}",
        ),
        (
            lambda turn: Config("x" * 100 + str(turn)),
            "field name: another value that looks alike, '" + "x" * 58 + "…",
        ),
        # JAX does not compare the third field.
        (lambda turn: Config(f"adam{turn}", None, unused()), "name 'adam1' became 'adam2'"),
    ],
)
def test_the_first_value_that_differs_in_a_static_argument_is_named(make, words):
    assert reason(stepped(), (ONES, make(1)), (ONES, make(2))) == f"static argument n: {words}"


def test_functions_of_other_lines_and_two_of_one_line_are_told_apart():
    first, second = (lambda x: x), (lambda x: x + 1)
    assert reason(stepped(), (ONES, (first,)), (ONES, (second,))).startswith(
        "static argument n: field 0: another"
    )
    here = first.__code__.co_firstlineno
    third = lambda x: x  # noqa: E731
    there = third.__code__.co_firstlineno
    assert reason(stepped(), (ONES, (first,)), (ONES, (third,))) == (
        f"static argument n: field 0: the function of {HERE}:{here} became that of {HERE}:{there}"
    )


def test_static_fields_of_nodes_are_named_where_jax_knows_their_names():
    @functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["name", "update"])
    @dataclasses.dataclass
    class Optimizer:
        w: Any
        name: str
        update: Any

    @jax.tree_util.register_pytree_node_class
    class Node:
        def __init__(self, child, update):
            self.child, self.update = child, update

        def tree_flatten(self):
            return (self.child,), ("node", (self.update,))

        @classmethod
        def tree_unflatten(cls, fields, children):
            return cls(*children, *fields[1])

    function = jax.jit(lambda state: jax.tree.map(jnp.sin, state))
    calls = [(Optimizer(ONES, "adam", unused()),) for _ in range(2)]
    name = Optimizer.__qualname__
    assert (
        reason(function, *calls) == f"the tree of state: static field of {name}, field update: {UNUSED}{ONCE}"
    )
    calls = [(Node(ONES, functools.partial(scale, turn)),) for turn in (1, 2)]
    assert reason(function, *calls) == (
        f"the tree of state: static field of {Node.__qualname__}, field 1/0: {SCALE}, with rate 1 became 2{AS_ARGUMENT}"
    )


def test_a_closure_over_arrays_and_functions_names_the_variable():
    def closed(weights, update):
        return jax.jit(lambda x: update(x * weights))

    update = unused()
    for make, words in (
        (lambda: closed(jnp.ones(4), update), "weights: another array, float32[4]; pass them as arguments"),
        (lambda: closed(ONES, unused()), f"update: {UNUSED}{ONCE}"),
        (
            lambda: closed({"a": [np.ones(4)]}["a"][0], update),
            "weights: another array, float64[4]; pass them as arguments",
        ),
    ):
        functions = [make(), make()]
        with watch_compiles() as watch:
            for function in functions:
                function(ONES)
        assert watch.compilations[1].reason == (
            f"another function object of the same line, with other bound values: {words}"
        )


def test_values_without_end_are_read_in_part():
    def recursive(depth):
        def inner(x):
            return x if depth else inner(x)

        return inner

    looped: list[Any] = []
    looped.append(looped)
    for value in (recursive, lambda one: shrink(list(range(100_000))), lambda one: shrink(looped)):
        words = reason(stepped(), (ONES, (value(1),)), (ONES, (value(1),)))
        assert words.startswith("static argument n: field 0: another function of the same line")
