"""Recompilations of functions that were compiled before the block, and the number that a block expects."""

import functools

import jax
import numpy as np
import pytest

from jax_array_info_core import CheckError, watch_compiles
from jax_array_info_core.compat.jitted import jitted_types
from jax_array_info_core.errors import UnsupportedValueError

pytestmark = pytest.mark.once_per_version

X = np.ones((8, 2), np.float32)
BEFORE = "first in the block; compiled before it"


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


def test_a_function_that_was_compiled_before_the_block_says_so_once_and_is_recompiled():
    function = fresh()
    with watch_compiles(function) as first:
        function({"w": X}, 2)
    with watch_compiles(function) as second:
        function({"w": X}, 2)
        function({"w": X[:4]}, 2)
        function({"w": X[:3]}, 2)
    assert [len(watch.report().recompilations) for watch in (first, second)] == [0, 2]
    assert [one.reason for one in first.compilations] == ["first in the block"]
    assert [one.reason for one in second.compilations] == [BEFORE, "params/w: shape (4, 2) became (3, 2)"]
    assert [one.was_compiled_before for one in second.compilations] == [True, False]


def test_only_calls_from_before_the_block_are_from_before_it():
    function = fresh()
    with watch_compiles() as watch:
        function({"w": X}, 2)
        function({"w": X[:4]}, 2)
        ahead = fresh()
        ahead.lower({"w": X}, 2).compile()
        ahead({"w": X[:4]}, 2)
    assert not any(one.was_compiled_before for one in watch.compilations)
    jax.clear_caches()
    assert reasons(function, {"w": X}, 2) == ["first in the block"]


def test_a_cleared_cache_of_another_function_does_not_hide_that_it_was_compiled():
    function, other = fresh(), fresh()
    for one in (function, other):
        one({"w": X}, 2)
    other.clear_cache()
    assert reasons(function, {"w": X[:4]}, 2) == [BEFORE]


def test_a_function_of_pmap_was_compiled_before_the_block():
    function = jax.pmap(lambda x: x * 2)
    assert reasons(function, X[:1]) == ["first in the block"]
    expected = {True: BEFORE, False: "first in the block"}
    assert reasons(function, X[:1, :1]) == [expected[len(jitted_types()) > 1]]


def test_it_is_the_function_object_alone_that_was_compiled():
    function = fresh()
    function({"w": X}, 2)
    with watch_compiles() as watch:
        for one in (fresh(), function):
            one({"w": X[:4]}, 2)
    assert [one.reason for one in watch.compilations] == ["first in the block", BEFORE]


def test_a_function_named_without_its_jit_was_compiled_before_next_to_one_with_two_jits():
    def plain(x):
        return x + 1

    function, twice = jax.jit(plain), jax.jit(jax.jit(lambda x: x))
    function(X)
    with watch_compiles(twice, plain) as watch:
        function(X[:4])
    assert [one.reason for one in watch.compilations] == [BEFORE]


def test_the_watch_keeps_no_function_and_no_program_from_before_alive():
    import gc
    import weakref

    class Setting:
        pass

    function, setting = jax.jit(lambda x, setting: x * 2, static_argnums=1), Setting()
    function(X, setting)
    with watch_compiles() as watch:
        function(X[:4], setting)
    kept = weakref.ref(setting), weakref.ref(function)
    del function, setting
    jax.clear_caches()
    gc.collect()
    assert [one() for one in kept] == [None] * 2
    assert watch.compilations[0].reason == BEFORE


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
    assert first.endswith(f" reasons: {BEFORE}")
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
