"""The compilations that a watch counts, and the functions and the lines that it names."""

import asyncio
import functools
import gc
import inspect
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import CheckError, program_report, watch_compiles
from jax_array_info_core.compat.jitted import jitted_types
from jax_array_info_core.errors import TrackerError, UnsupportedValueError
from tests.arrays import mesh_of, sharded
from tests.threads import in_threads

pytestmark = pytest.mark.once_per_version

X = np.ones((8, 2), np.float32)


def named(watch):
    return [one.function for one in watch.compilations]


def here():
    return inspect.currentframe().f_back.f_lineno


def test_each_compilation_has_the_function_its_definition_and_the_line_of_the_call():
    def step(x):
        return x * 2

    jitted = jax.jit(step)
    with watch_compiles() as watch:
        jitted(X)
        jitted(X)
        line = here() - 2
    (one,) = watch.compilations
    assert (one.function, one.reason) == ("step", "first in the block")
    assert one.definition.line == step.__code__.co_firstlineno
    assert (one.origin.file, one.origin.line) == (__file__, line)
    assert (
        one.origin.function
        == "test_each_compilation_has_the_function_its_definition_and_the_line_of_the_call"
    )
    assert 0 < one.seconds < 60
    assert (watch.count, watch.report().seconds) == (1, one.seconds)


def test_a_call_that_compiles_nothing_is_not_counted():
    step = jax.jit(lambda x: x * 3)
    step(X)
    with watch_compiles() as watch:
        step(X)
    assert (watch.count, watch.cache_hits, watch.report().jax_count) == (0, (), 0)


def test_functions_of_jax_itself_are_apart():
    with watch_compiles() as watch:
        jnp.cumsum(jnp.arange(7.0) * 1.5)
    assert watch.count == 0
    assert watch.report().jax_count > 0
    assert watch.report().jax_seconds > 0


def test_a_jit_inside_jit_is_one_compilation():
    inner = jax.jit(lambda x: x + 1)
    outer = jax.jit(lambda x: inner(x) * 2)
    with watch_compiles() as watch:
        outer(X)
    assert watch.count == 1


class Network:
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x):
        return x + 1

    def apply(self, x):
        return x + 2


def watched_cases():
    def step(x):
        return x * 5

    def other(x, y):
        return x * y

    model, jitted, bound = Network(), jax.jit(step), functools.partial(other, y=2)
    return [
        ("step", jitted, jitted),
        ("step", step, jax.jit(step)),
        ("step", step, jax.jit(jax.checkpoint(step))),
        ("partial(other)", bound, jax.jit(bound)),
        ("partial(other)", other, jax.jit(bound)),
        ("Network.step", model.step, model.step),
        ("Network.step", Network.step, model.step),
        ("Network.apply", model.apply, jax.jit(model.apply)),
    ]


@pytest.mark.parametrize("number", range(8))
def test_only_the_named_functions_are_watched(number):
    name, watched, called = watched_cases()[number]
    unwatched = jax.jit(lambda x: x - 1)
    with watch_compiles(watched) as watch:
        called(X)
        unwatched(X)
    assert named(watch) == [name]
    assert watch.report().other_count == 1


def test_another_function_of_the_same_line_is_not_watched():
    def make(factor):
        return jax.jit(lambda x: x * factor)

    first, second = make(2), make(3)
    with watch_compiles(first) as watch:
        first(X)
        second(X)
    assert (watch.count, watch.report().other_count) == (1, 1)


def test_a_function_of_jax_is_watched_where_it_is_named():
    with watch_compiles(jnp.cumsum) as watch:
        jnp.cumsum(np.ones((3, 1, 5), np.float32))
    assert named(watch) == ["cumsum"]


def test_what_is_no_function_and_no_number_is_refused():
    for wrong in (3, "step", None):
        with pytest.raises(UnsupportedValueError, match="expected a function, got <class"):
            watch_compiles(wrong)
    for wrong in (-1, 1.0, True, "1"):
        with pytest.raises(UnsupportedValueError, match="expect must be a number of compilations, such as 1"):
            watch_compiles(expect=wrong)


def test_a_program_compiled_ahead_of_time_is_counted_at_the_line_of_compile():
    def ahead(x):
        return x * 2

    jitted = jax.jit(ahead)
    with watch_compiles(jitted) as watch:
        lowered = jitted.lower(X)
        lowered.compile()
        line = here() - 1
        jitted.lower(X[:4]).compile()
    first, second = watch.compilations
    assert (first.function, first.origin.line) == ("ahead", line)
    assert first.definition.line == ahead.__code__.co_firstlineno
    assert first.reason == "first in the block, by lower().compile()"
    assert second.reason == "x: shape (8, 2) became (4, 2)"


def test_other_compiler_options_are_the_reason_of_a_program_compiled_ahead_of_time():
    def ahead(x):
        return x * 2

    lowered = jax.jit(ahead).lower(X)
    with watch_compiles(ahead) as watch:
        lowered.compile()
        lowered.compile(compiler_options={"xla_embed_ir_in_executable": True})
        jax.clear_caches()
        jax.jit(ahead).lower(X).compile()
    reasons = [one.reason for one in watch.compilations[1:]]
    assert reasons[0] == "compiler option xla_embed_ir_in_executable: none became True"
    assert reasons[1].startswith(
        "no input and no compiler option differs: lowered from another function object"
    )


def test_the_programs_of_grad_and_vmap_are_those_of_the_function():
    def loss(x, params):
        return (x * params["a"]).sum()

    jitted = jax.jit(loss)
    params = {"a": np.float32(2)}
    with watch_compiles(loss) as watch:
        jax.vmap(jitted, (0, None))(X, params)
        by_vmap = watch.count
        jax.grad(jitted)(X, params)
    assert by_vmap == 1
    assert set(named(watch)) == {"loss"}
    assert watch.count == 3  # vmap, the forward pass, the backward pass
    assert watch.compilations[0].reason == "first in the block under a transformation such as grad or vmap"


def test_pmap_is_one_compilation_of_the_users_function():
    count = len(jax.devices())

    def mapped(x, y):
        return x + y

    pmapped = jax.pmap(mapped, in_axes=(0, None))
    with watch_compiles(mapped) as watch:
        pmapped(np.ones((count, 2), np.float32), np.float32(1))
        pmapped(np.ones((count, 3), np.float32), np.float32(1))
    assert named(watch) == ["pmap(mapped)"] * 2
    assert watch.compilations[1].reason == f"x: shape ({count}, 2) became ({count}, 3)"


@pytest.mark.needs_devices(2)
def test_shard_map_is_one_compilation_of_the_users_function():
    try:
        shard_map = jax.shard_map
    except AttributeError:
        from jax.experimental.shard_map import shard_map

    def body(x):
        return x * 2

    mesh = mesh_of((2,), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    jitted = jax.jit(shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec))
    with watch_compiles() as watch:
        jitted(sharded((8, 2), mesh, "d"))
    assert named(watch) == ["body"]


def test_a_compilation_that_fails_is_not_counted_and_its_error_arrives():
    def callback(x):
        raise ZeroDivisionError

    jitted = jax.jit(lambda x: jax.numpy.dot(x, x))
    with watch_compiles() as watch:
        with pytest.raises(TypeError):
            jitted(np.ones((2, 3), np.float32))
        with pytest.raises(Exception, match="no_such_option"):
            jitted.lower(np.ones((2, 2), np.float32)).compile({"no_such_option": True})
    assert watch.count == 0


def test_an_exception_in_the_block_is_not_swallowed_and_ends_the_watch():
    step = jax.jit(lambda x: x * 7)
    watch = watch_compiles()

    def interrupted():
        with watch:
            step(X)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    step(X[:3])
    assert watch.count == 1


def test_nested_watches_each_count_and_a_watch_entered_again_starts_over():
    step = jax.jit(lambda x: x * 11)
    with watch_compiles() as outer:
        step(X[:1])
        with watch_compiles() as inner:
            step(X[:2])
        step(X[:3])
    assert (outer.count, inner.count) == (3, 1)
    with inner:
        step(X[:4])
        assert inner.count == 1
        step(X[:5])
    assert inner.count == 2
    assert watch_compiles().count == 0


def test_a_watch_is_not_entered_inside_its_own_block_and_the_block_goes_on():
    step = jax.jit(lambda x: x * 12)
    with watch_compiles() as watch:
        step(X[:1])
        with pytest.raises(TrackerError, match="inside its block already"), watch:
            pass
        step(X[:2])
    assert watch.count == 2
    with watch:
        step(X[:3])
    assert watch.count == 1


def test_compilations_of_all_threads_are_counted():
    step = jax.jit(lambda x: x * 13)
    with watch_compiles(step) as watch:
        in_threads(lambda size: step(np.ones(size + 1, np.float32)), range(8))
    assert watch.count == 8
    first, *others = watch.compilations
    assert first.reason == "first in the block"
    assert all(one.reason.startswith("x: shape (") for one in others)


def test_compilations_in_tasks_of_asyncio_are_counted():
    step = jax.jit(lambda x: x * 17)

    async def task(size):
        await asyncio.sleep(0)
        step(np.ones(size, np.float32))

    async def main():
        with watch_compiles(step) as watch:
            await asyncio.gather(*(task(size) for size in (1, 2, 3)))
        return watch

    assert asyncio.run(main()).count == 3


def test_programs_from_the_persistent_cache_are_apart(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        compilation_cache.reset_cache()
        for name, value in settings.items():
            jax.config.update(name, value)

        def cached(x):
            return x * 19

        with watch_compiles() as watch:
            jax.jit(cached)(X)
            jax.clear_caches()
            jax.jit(cached)(X)
        assert named(watch) == ["cached"]
        assert [one.function for one in watch.cache_hits] == ["cached"]
        assert (watch.count, watch.report().jax_count) == (1, 0)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


# Functions that were compiled before the block, and the number that a block expects

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


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "all"])
@pytest.mark.parametrize(
    "look",
    [
        lambda function: function.lower({"w": X}, 2).compile(),
        lambda function: program_report(function, {"w": X}, 2),
    ],
    ids=["compile", "report"],
)
def test_a_function_that_was_only_looked_at_before_the_block_is_recompiled_in_it(look, is_named):
    """The first call finds the program, so that the second is the first compilation of the block."""
    function = fresh()
    look(function)
    with watch_compiles(*([function] if is_named else [])) as watch:
        function({"w": X}, 2)
        is_found = watch.count == 0  # not in every version of JAX
        function({"w": X[:4]}, 2)
        function({"w": X[:3]}, 2)
    found = [one.was_compiled_before for one in watch.compilations]
    assert found == ([True, False] if is_found else [False] * 3)
    assert len(watch.report().recompilations) == 2
    if is_found:
        assert watch.compilations[0].reason == BEFORE


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
    assert first.startswith("step at test_watch.py:")
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
