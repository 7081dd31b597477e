"""Recompilations of functions that were compiled before the block, and the number that a block expects."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from jax_array_info_core import CheckError, watch_compiles
from jax_array_info_core.compat import jitted_types
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.recompiles.reasons import COMPILED_BEFORE, NO_ARGUMENT_DIFFERS, NO_CACHED

pytestmark = pytest.mark.once_per_version

X = np.ones((8, 2), np.float32)
HAS_SIGNATURES = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 6)


def cached(difference):
    """Return the reason of a call that differs so from the cached one."""
    if not HAS_SIGNATURES:
        return COMPILED_BEFORE + NO_CACHED
    return f"compiled before this block; differs from the cached call: {difference}"


def fresh():
    @functools.partial(jax.jit, static_argnums=1, static_argnames="mode")
    def step(params, power, rest=None, *, mode="a"):
        return jax.tree.map(lambda x: x**power, params)

    return step


def reasons(function, *args, **kwargs):
    with watch_compiles(function) as watch:
        function(*args, **kwargs)
    assert watch.count == len(watch.compilations)
    return [one.reason for one in watch.compilations]


CHANGED = {
    "a shape": (({"w": X[:4]}, 2), {}, "params/w: shape (8, 2) became (4, 2)"),
    "a dtype": (({"w": X.astype(np.int32)}, 2), {}, "params/w: dtype float32 became int32"),
    "a weak type": (({"w": 2.0}, 2), {}, "params/w: shape (8, 2) became (), weak_type False became True"),
    "a tree": (({"w": X, "b": X}, 2), {}, "params/b is new in the tree of params"),
    "another argument": (({"w": X}, 2, X), {}, "rest is new"),
    "a static argument": (({"w": X}, 3), {}, "static argument power: 2 became 3"),
    "a static keyword": (({"w": X}, 2), {"mode": "b"}, "static argument mode: not passed became 'b'"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_the_first_compilation_in_the_block_is_compared_with_the_cached_calls(change):
    args, keywords, difference = CHANGED[change]
    function = fresh()
    assert reasons(function, {"w": X}, 2) == ["first in the block"]
    assert reasons(function, *args, **keywords) == [cached(difference)]
    assert reasons(function, *args, **keywords) == []


def test_a_function_that_had_a_program_before_the_block_is_recompiled():
    function = fresh()
    with watch_compiles(function) as first:
        function({"w": X}, 2)
    with watch_compiles(function) as second:
        function({"w": X[:4]}, 2)
    assert [len(watch.report().recompilations) for watch in (first, second)] == [0, 1]


def test_an_argument_of_a_registered_dataclass_has_the_tree_of_the_cached_call():
    @dataclasses.dataclass
    class State:
        w: np.ndarray
        name: str

    jax.tree_util.register_dataclass(State, data_fields=["w"], meta_fields=["name"])
    function = fresh()
    function(State(X, "a"), 2)
    assert reasons(function, State(X[:4], "a"), 2) == [cached("params/w: shape (8, 2) became (4, 2)")]
    assert reasons(function, State(X, "b"), 2) == [
        cached(f"the tree of params: static field of {State.__qualname__}, name 'a' became 'b'")
    ]


def test_the_nearest_cached_call_is_compared():
    function = fresh()
    function({"w": X[:3]}, 2)
    function({"w": X[:7]}, 4)
    function({"w": X[:5]}, 3)
    assert reasons(function, {"w": X[:7]}, 5) == [cached("static argument power: 4 became 5")]


def test_of_equally_near_cached_calls_it_is_the_same_one_in_each_process():
    """JAX's caches have their entries in another order each time."""
    function = fresh()
    for length in (7, 5, 6):
        function({"w": X[:length]}, 2)
    assert reasons(function, {"w": X[:4]}, 2) == [cached("params/w: shape (5, 2) became (4, 2)")]


def test_a_committed_array_differs_from_the_cached_uncommitted_one():
    function = fresh()
    function({"w": X}, 2)
    moved = jax.device_put(X, jax.devices()[0])
    assert reasons(function, {"w": moved}, 2) == [
        cached("params/w: uncommitted became committed to device 0")
    ]


def test_a_setting_that_changed_is_not_taken_for_an_argument():
    function = fresh()
    function({"w": X}, 2)
    with jax.default_matmul_precision("float32"):
        found = reasons(function, {"w": X}, 2)
    assert found == [COMPILED_BEFORE + (NO_ARGUMENT_DIFFERS if HAS_SIGNATURES else NO_CACHED)]


def test_only_calls_from_before_the_block_are_from_before_it():
    function = fresh()
    with watch_compiles() as watch:
        function({"w": X}, 2)
        function({"w": X[:4]}, 2)
        ahead = fresh()
        ahead.lower({"w": X}, 2).compile()
        ahead({"w": X[:4]}, 2)
    assert not any(one.reason.startswith(COMPILED_BEFORE) for one in watch.compilations)
    jax.clear_caches()
    assert reasons(function, {"w": X}, 2) == ["first in the block"]


def test_a_signature_that_cannot_be_read_is_called_unknown():
    function, other = fresh(), fresh()
    for one in (function, other):
        one({"w": X}, 2)
    other.clear_cache()  # This empties the cache that has the keys of all functions.
    assert reasons(function, {"w": X[:4]}, 2) == [COMPILED_BEFORE + NO_CACHED]


def test_a_function_of_pmap_was_compiled_before_the_block():
    function = jax.pmap(lambda x: x * 2)
    assert reasons(function, X[:1]) == ["first in the block"]
    expected = {True: COMPILED_BEFORE + NO_CACHED, False: "first in the block"}
    assert reasons(function, X[:1, :1]) == [expected[len(jitted_types()) > 1]]


def test_the_cached_calls_are_those_of_the_function_object_alone():
    fresh()({"w": X}, 2)
    assert reasons(fresh(), {"w": X[:4]}, 2) == ["first in the block"]


def test_reading_the_caches_keeps_no_argument_and_no_program_alive():
    import gc
    import weakref

    class Setting:
        pass

    function, setting = jax.jit(lambda x, setting: x * 2, static_argnums=1), Setting()
    function(X, setting)
    with watch_compiles() as watch:
        function(X[:4], setting)
    kept = weakref.ref(setting)
    del function, setting
    jax.clear_caches()
    gc.collect()
    assert kept() is None
    assert watch.compilations[0].reason == cached("x: shape (8, 2) became (4, 2)")


def test_an_expected_number_of_compilations_passes_and_another_one_lists_the_reasons():
    function = fresh()
    with watch_compiles(function, expect=1):
        function({"w": X}, 2)
    with watch_compiles(function, expect=0):
        function({"w": X}, 2)
    watch = watch_compiles(function, expect=1)
    with pytest.raises(CheckError) as caught, watch:
        reasons(function, {"w": X[:3]}, 2), reasons(function, {"w": X[:4]}, 2)
    title, first, second = str(caught.value).splitlines()
    assert title == "expected 1 compilation, got 2"
    assert first.startswith("step at test_compiled_before.py:")
    assert first.endswith(cached("params/w: shape (8, 2) became (3, 2)"))
    assert second.endswith(" reasons: params/w: shape (3, 2) became (4, 2)")
    assert caught.value.report == watch.report()
    with pytest.raises(CheckError, match=r"^expected 2 compilations, got 0$"), watch_compiles(expect=2):
        pass


def test_an_exception_of_the_block_is_raised_instead_of_the_expectation():
    with pytest.raises(ZeroDivisionError), watch_compiles(expect=5):
        raise ZeroDivisionError
    with watch_compiles(expect=0):
        pass


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1"])
def test_a_number_that_cannot_be_expected_is_refused(wrong):
    with pytest.raises(
        UnsupportedValueError, match="expect must be a number of compilations, such as 1, got"
    ):
        watch_compiles(expect=wrong)
