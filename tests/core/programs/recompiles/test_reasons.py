"""The reason of a compilation: what differs from the nearest earlier call, by path."""

import contextlib
import dataclasses
import enum
import functools
import gc
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import watch_compiles
from tests.arrays import mesh_of, sharded

pytestmark = pytest.mark.once_per_version

ONES = np.ones((8, 4), np.float32)


class Pair(NamedTuple):
    """A tree of a class of the user's."""

    a: object
    b: object


def reasons(function, *calls):
    """Return the reasons of the compilations of some calls, each with the arguments given."""
    with watch_compiles(function) as watch:
        for call in calls:
            has_keywords = len(call) == 2 and isinstance(call[0], tuple) and isinstance(call[1], dict)
            args, kwargs = call if has_keywords else (call, {})
            function(*args, **kwargs)
    return [one.reason for one in watch.compilations]


def total(*args, **kwargs):
    return sum(jnp.sum(leaf) for leaf in jax.tree_util.tree_leaves((args, kwargs)))


def fresh():
    """Return a function without a compiled program."""

    def step(params, x=None):
        return total(params, x)

    return jax.jit(step)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ((ONES,), (ONES[:5],), "params: shape (8, 4) became (5, 4)"),
        ((ONES[0],), (ONES[0, 0],), "params: shape (4,) became ()"),
        ((ONES,), (ONES.astype(np.int8),), "params: dtype float32 became int8"),
        ((2.0,), (np.float32(2),), "params: weak_type True became False"),
        ((2.0,), (True,), "params: dtype float32 became bool, weak_type True became False"),
        (({"wi": ONES},), ({"wi": ONES[:2]},), "params/wi: shape (8, 4) became (2, 4)"),
        (({"a": [ONES, 1]},), ({"a": [ONES, 1.0]},), "params/a/1: dtype int32 became float32"),
        (({"a": 1},), ({"a": 1, "b": 2},), "params/b is new in the tree of params"),
        (({"a": 1, "b": 2},), ({"a": 1},), "params/b is gone in the tree of params"),
        (([1, 2, 3],), ([],), "params/0, params/1 and 1 more are gone in the tree of params"),
        (([1, 2],), ((1, 2),), "the tree of params: other classes of nodes"),
        ((None,), (ONES,), "params: None became float32(8, 4)"),
        (({"\x1b[31m": ONES},), ({"\x1b[31m": ONES[:2]},), r"params/'\x1b[31m': shape (8, 4) became (2, 4)"),
        ((ONES,), (ONES, 1), "x is new"),
        (({},), ([],), "the tree of params: other classes of nodes"),
        ((Pair(1, 2),), (Pair(1, 2.0),), "params/b: dtype int32 became float32"),
        ((ONES, 1), ((ONES,), {"x": 1}), "x: passed by position became passed by name"),
        (
            (dict.fromkeys("abcd", ONES),),
            (dict.fromkeys("abcd", ONES[:3]),),
            "params/a, params/b and 2 more: shape (8, 4) became (3, 4)",
        ),
        (
            (dict.fromkeys("abcde", 1),),
            ({key: np.ones(number) for number, key in enumerate("abcde")},),
            "params/a: shape () became (0,)",
        ),
    ],
)
def test_the_reason_is_what_differs_by_path(before, after, reason):
    found = reasons(fresh(), before, after)
    assert found[0] == "first in the block"
    assert found[1].startswith(reason)


@pytest.mark.needs_devices(2)
def test_specs_that_mean_the_same_are_no_compilation():
    mesh = mesh_of((2,), ("d",))
    specs = [P("d"), P(("d",), None), P(None, "d"), P()]
    arrays = [jax.device_put(ONES, NamedSharding(mesh, spec)) for spec in specs]
    assert reasons(fresh(), *[(array,) for array in arrays]) == [
        "first in the block",
        "params: sharding P('d',) became P(None, 'd')",
        "params: sharding P(None, 'd') became P()",
    ]
    # Nor are they the reason of another one.
    assert reasons(fresh(), (arrays[0], 1), (arrays[1], 1.0))[1] == "x: dtype int32 became float32"


@pytest.mark.needs_devices(4)
def test_the_mesh_and_the_devices_of_a_sharding_are_named():
    devices = jax.devices()
    small, large = mesh_of((2,), ("d",)), mesh_of((4,), ("d",))
    turned = mesh_of((2,), ("d",), devices[1::-1])
    ids = [device.id for device in devices]
    calls = [(sharded((8, 4), mesh, "d"),) for mesh in (small, large)]
    assert reasons(fresh(), *calls)[1] == "params: sharding P('d',) over d=2 became over d=4"
    single = [(jax.device_put(ONES, devices[number]),) for number in (0, 1)]
    assert reasons(fresh(), *single)[1:] in (
        [],  # JAX may compile once for both
        [f"params: sharding device {ids[0]} became device {ids[1]}"],
    )
    assert reasons(fresh(), calls[0], (sharded((8, 4), turned, "d"),))[1:] in (
        [],
        ["params: sharding P('d',) has the same devices in another order"],
    )


def test_an_array_that_was_committed_is_told_apart_from_one_that_was_not():
    uncommitted, device = jnp.asarray(ONES), jax.devices()[0]
    committed = jax.device_put(uncommitted, device)
    words = f"committed to device {device.id}"
    assert reasons(fresh(), (uncommitted,), (committed,))[1] == f"params: uncommitted became {words}"
    assert reasons(fresh(), (committed,), (ONES,))[1] == f"params: {words} became uncommitted"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    """A class that Python compares by identity."""


def each(*values):
    """Return a function from 1 and 2 to the first value and the second."""
    return lambda turn: values[turn - 1]


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


HERE = "test_reasons.py"
SHRINK = f"another function of the same line {HERE}:{shrink.__code__.co_firstlineno + 1}"
UNUSED = f"another function of the same line {HERE}:{unused.__code__.co_firstlineno + 1}"
SCALE = f"another partial of the same line {HERE}:{scale.__code__.co_firstlineno}"
ONCE = "; make it once, outside the loop"
AS_ARGUMENT = "; pass it as an argument"


@dataclasses.dataclass(frozen=True)
class Config:
    name: Any
    update: Any = None
    note: Any = dataclasses.field(default=None, compare=False)


def stepped():
    return jax.jit(lambda x, n: x + 1, static_argnums=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (each(3, 4), "3 became 4"),
        (each("a", "b\x1b[31m"), r"'a' became 'b\x1b[31m'"),
        (each("a", "x" * 1000), "'a' became '" + "x" * 58 + "…"),
        (each(Color.RED, Color.BLUE), "Color.RED became Color.BLUE"),
        (each(Config(0.1), Config(0.2)), "name 0.1 became 0.2"),
        (each(Config(0.1, (1, 2)), Config(0.1, (1, 3))), "update/1: 2 became 3"),
        (each((1, 2), (1, 3)), "item 1: 2 became 3"),
        (each(None, Config(0.1)), "None became Config object"),
        (each(np.float32, np.float16), "float32 became float16"),
        (each(Plain(), Plain()), "another value that looks alike, Plain object"),
        (each(jnp.sin, jnp.cos), None),
        (
            lambda turn: Config(0.1, Plain()),
            "field update: another value that looks alike, Plain object",
        ),
        (lambda turn: Config("adam", unused()), f"field update: {UNUSED}{ONCE}"),
        (lambda turn: Config("adam", shrink(0.1)), f"field update: {SHRINK}{ONCE}"),
        (
            lambda turn: Config("adam", shrink(turn)),
            f"field update: {SHRINK}, with rate 1 became 2{AS_ARGUMENT}",
        ),
        (lambda turn: ("a", (3, unused())), f"item 1/1: {UNUSED}{ONCE}"),
        (lambda turn: (unused(), 7), f"item 0: {UNUSED}{ONCE}"),
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
    found = reasons(stepped(), (ONES, make(1)), (ONES, make(2)))
    assert len(found) == 2
    assert found[1].startswith("static argument n: ")
    assert words is None or found[1] == f"static argument n: {words}"


def test_a_static_argument_by_position_has_its_name_and_a_default_is_named():
    @functools.partial(jax.jit, static_argnums=(1,))
    def step(x, n=2):
        return x

    assert reasons(step, (ONES,), (ONES, 3))[1] == "static argument n: not passed became 3"
    assert reasons(step, (ONES[:1],), (ONES[:1], Config(0.1)))[1] == (
        "static argument n: not passed became Config object"
    )


@contextlib.contextmanager
def setting(name, value):
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


def test_a_setting_of_jax_is_named():
    function = fresh()
    with watch_compiles(function) as watch:
        function(ONES)
        with setting("jax_default_matmul_precision", "highest"):
            function(ONES)
        with setting("jax_enable_x64", True):
            function(ONES)
    assert [one.reason for one in watch.compilations[1:]] == [
        "jax_default_matmul_precision: none became highest",
        "jax_enable_x64: False became True",
    ]


@pytest.mark.needs_devices(2)
def test_the_mesh_in_effect_is_named():
    function = fresh()
    mesh = mesh_of((2,), ("d",))
    enter = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh", lambda mesh: mesh)
    with watch_compiles(function) as watch:
        function(ONES)
        with enter(mesh):
            function(ONES)
    assert [one.reason for one in watch.compilations[1:]] in (
        [],
        ["the mesh in effect: none became d=2"],
    )


def test_another_function_of_the_same_line_is_no_new_object_of_one():
    with watch_compiles() as watch:
        for _ in range(2):
            jax.jit(lambda x: x + 1)(ONES), jax.jit(lambda x: x + 2)(ONES)
    assert [one.reason for one in watch.compilations] == [
        "first in the block",
        "another function of the same line",
        *["another function object of the same line: jit it once, outside of the loop"] * 2,
    ]
    assert len({one.definition.line for one in watch.compilations}) == 1
    assert watch.compilations[0].definition.line == watch.compilations[0].origin.line


def test_values_that_are_bound_to_another_function_object_are_named():
    def step(factor, x, scale=1):
        return x * factor * scale

    def closed(factor):
        return jax.jit(lambda x: x * factor)

    makers = [
        lambda factor: jax.jit(functools.partial(step, factor)),
        lambda factor: jax.jit(functools.partial(step, 1, scale=factor)),
        closed,
        lambda factor: jax.jit(lambda x, factor=factor: x * factor),
    ]
    for make, name in zip(makers, ("factor", "scale", "factor", "factor"), strict=True):
        with watch_compiles() as watch:
            for factor in (2, 3, 2):
                make(factor)(ONES)
        assert [one.reason for one in watch.compilations[1:]] == [
            f"another function object of the same line, with other bound values: {name} 2 became 3; "
            "pass them as arguments",
            "another function object of the same line: jit it once, outside of the loop",
        ]


def test_arrays_that_are_bound_to_a_function_are_not_kept():
    array = jnp.ones(3)
    reference = weakref.ref(array)
    with watch_compiles() as watch:
        jax.jit(functools.partial(jnp.add, array))(1.0)
        function = jax.jit(functools.partial(lambda y, x: x, array))
        function(1.0)
    del array, function
    jax.clear_caches()
    gc.collect()
    assert reference() is None
    assert watch.count == 1


def test_another_option_of_jit_is_named():
    def step(x):
        return x + 1

    whole = NamedSharding(Mesh(jax.devices()[:1], ("data",)), P())
    with watch_compiles(step) as watch:
        jax.jit(step)(ONES)
        jax.jit(step, donate_argnums=0)(jnp.asarray(ONES))
        jax.jit(step, out_shardings=whole)(ONES)
    reasons = [compilation.reason for compilation in watch.compilations[1:]]
    assert reasons == [
        "donated arguments of jit: none became x",
        "out_shardings of jit: unspecified became P()",
    ]


def test_the_reason_compares_with_the_nearest_call():
    found = reasons(
        fresh(),
        ({"a": ONES, "b": ONES},),
        ({"a": ONES[:3], "b": ONES.astype(np.int8)},),
        ({"a": ONES, "b": ONES[:2]},),
        ({"a": ONES, "b": ONES[:1]},),
    )
    assert found[2:] == ["params/b: shape (8, 4) became (2, 4)", "params/b: shape (2, 4) became (1, 4)"]


def test_a_call_with_the_same_arguments_is_nearer_than_one_that_lacks_an_argument():
    @jax.jit
    def scaled(x, scale=1.0):
        return x * scale

    with watch_compiles(scaled) as watch:
        scaled(ONES)
        scaled(ONES, scale=2)
        scaled(ONES, scale=np.float32(2))
        scaled(ONES, scale=3.0)
    assert [one.reason for one in watch.compilations][1:] == [
        "scale is new",
        "scale: dtype int32 became float32, weak_type True became False",
        "scale: weak_type False became True",
    ]


def test_where_nothing_differs_the_reason_is_honest():
    function = fresh()
    with watch_compiles(function) as watch:
        function(ONES)
        function.clear_cache()
        jax.clear_caches()
        function(ONES)
    assert watch.compilations[1].reason == (
        "nothing visible differs: JAX had discarded the program, as jax.clear_caches() does, or a setting changed "
        "that is not compared"
    )


def test_arguments_of_variadic_functions_have_their_positions_and_names():
    function = jax.jit(lambda *args, **options: total(args, options))
    assert reasons(
        function,
        (1, 2),
        (1, 2, 3),
        ((1, 2, 3), {"a/b": 1}),
        ((1, 2, 3), {"a/b": 1.0}),
    ) == [
        "first in the block",
        "args/2 is new",
        "'a/b' is new",
        "'a/b': dtype int32 became float32",
    ]


@pytest.mark.needs_devices(8)
def test_a_sharding_that_is_written_differently_is_compared_with_that_of_the_equal_call():
    devices = jax.devices()
    meshes = mesh_of((len(devices), 1), ("data", "model")), mesh_of((len(devices),), ("data",))
    values = np.zeros(64, np.float32)
    first, other = (jax.device_put(values, NamedSharding(mesh, P("data"))) for mesh in meshes)
    found = reasons(fresh(), (first,), (jax.device_put(values, devices[-1]),), (other,))
    # JAX 0.4 does not compile again for another spelling.
    assert all(reason.startswith("params: sharding P('data',) over data=") for reason in found[2:])


def test_functions_of_other_lines_and_two_of_one_line_are_told_apart():
    first, second = (lambda x: x), (lambda x: x + 1)
    assert reasons(stepped(), (ONES, (first,)), (ONES, (second,)))[1].startswith(
        "static argument n: item 0: another"
    )
    here = first.__code__.co_firstlineno
    third = lambda x: x  # noqa: E731
    there = third.__code__.co_firstlineno
    assert reasons(stepped(), (ONES, (first,)), (ONES, (third,)))[1] == (
        f"static argument n: item 0: the function of {HERE}:{here} became that of {HERE}:{there}"
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
        reasons(function, *calls)[-1]
        == f"the tree of state: static field of {name}, field update: {UNUSED}{ONCE}"
    )
    calls = [(Node(ONES, functools.partial(scale, turn)),) for turn in (1, 2)]
    assert reasons(function, *calls)[-1] == (
        f"the tree of state: static field of {Node.__qualname__}, item 1/0: {SCALE}, with rate 1 became 2{AS_ARGUMENT}"
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
        words = reasons(stepped(), (ONES, (value(1),)), (ONES, (value(1),)))[1]
        assert words.startswith("static argument n: item 0: another function of the same line")
