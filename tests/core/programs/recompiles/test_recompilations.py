"""The compilations that are recompilations, and the function that is called with each when it happens."""

import jax
import numpy as np
import pytest

from jax_array_info_core import watch_compiles
from jax_array_info_core.programs.recompiles import watch as watch_module
from jax_array_info_core.programs.recompiles.watch import watch_program
from tests.callers import is_of_this_package
from tests.threads import in_threads

pytestmark = pytest.mark.once_per_version

X = np.ones((8, 2), np.float32)


def numbers(watch):
    return [one.number for one in watch.compilations]


def test_the_programs_of_a_function_are_numbered():
    step, other = jax.jit(lambda x: x * 37), jax.jit(lambda x: x * 41)
    with watch_compiles() as watch:
        for size in (8, 4, 3):
            step(X[:size])
            other(X)
    assert numbers(watch) == [1, 1, 2, 3]
    assert [one.is_recompilation for one in watch.compilations] == [False, False, True, True]
    assert watch.report().recompilations == watch.compilations[2:]


def test_a_gradient_and_another_function_of_the_line_are_no_recompilations():
    """The gradient of a jitted function has programs of its own, one of each pass."""
    loss = jax.jit(lambda x: (x * 43).sum())
    double, triple = jax.jit(lambda x: x * 2), jax.jit(lambda x: x * 3)
    with watch_compiles() as watch:
        loss(X)
        jax.grad(loss)(X)
        double(X)
        triple(X)
    assert watch.count >= 4
    assert (set(numbers(watch)), watch.report().recompilations) == ({1}, ())
    with watch_compiles() as watch:
        jax.grad(loss)(X[:4])
        jax.grad(loss)(X[:3])
    assert {one.number for one in watch.report().recompilations} == {2}


def test_a_function_that_is_jitted_again_for_each_call_is_compiled_again():
    with watch_compiles() as watch:
        for _ in range(3):
            jax.jit(lambda x: x * 47)(X)
    assert numbers(watch) == [1, 2, 3]


def test_a_program_from_the_persistent_cache_is_one_of_the_function(tmp_path):
    """The next shape is compiled again, though it is the first that XLA compiles."""
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
            return x * 53

        jax.jit(cached)(X)
        jax.clear_caches()
        with watch_compiles() as watch:
            jax.jit(cached)(X)
            jax.jit(cached)(X[:4])
        assert [one.number for one in watch.cache_hits] == [1]
        assert (numbers(watch), len(watch.report().recompilations)) == ([2], 1)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


@pytest.fixture
def watched():
    """Return a function that watches the rest of a test, and calls its argument with each recompilation."""
    watches = []
    yield lambda on_recompile: watches.append(watch_program(on_recompile)) or watches[0]
    watches[0].__exit__(None)


def test_each_recompilation_is_told_inside_the_call_that_compiles(watched):
    told = []
    watch = watched(told.append)
    step = jax.jit(lambda x: x * 59)
    counts = []
    for size in (8, 8, 4, 8, 3):
        step(X[:size])
        counts.append(len(told))
    assert counts == [0, 0, 1, 1, 2]
    assert tuple(told) == watch.report().recompilations
    assert [one.reason for one in told] == [
        "x: shape (8, 2) became (4, 2)",
        "x: shape (4, 2) became (3, 2)",
    ]


def test_an_error_of_the_function_never_ends_the_call(watched):
    def fail(compilation):
        raise RuntimeError

    watch = watched(fail)
    step = jax.jit(lambda x: x.sum() * 2)
    assert [float(step(X[:size])) for size in (8, 4)] == [32, 16]
    assert len(watch.report().recompilations) == 1


def test_a_comparison_that_fails_still_counts(watched, monkeypatch):
    def fail(signature, earlier):
        raise RuntimeError

    told = []
    watched(told.append)
    monkeypatch.setattr(watch_module, "reason_of", fail)
    step = jax.jit(lambda x: x * 61)
    for size in (8, 4):
        step(X[:size])
    assert [(one.number, one.reason) for one in told] == [(2, "the call could not be read")]


def test_compilations_in_threads_have_different_numbers(watched):
    told = []
    watched(told.append)
    step = jax.jit(lambda x: x * 67)
    in_threads(lambda number: step(X[: number + 1]), range(4))
    assert sorted(one.number for one in told) == [2, 3, 4]


def test_the_last_calls_of_a_function_are_compared(watched, monkeypatch):
    """Memory does not grow with the calls that are compiled: the numbers go on."""
    monkeypatch.setattr(watch_module, "MOST_EARLIER", 2)
    told = []
    watch = watched(told.append)
    step = jax.jit(lambda x: x * 71)
    for size in range(1, 6):
        step(X[:size])
    assert [one.number for one in told] == [2, 3, 4, 5]
    assert sum(map(len, watch._earlier.values())) == 2


CALLED = set()


def noted(name, result):
    def method(self, *_):
        if is_of_this_package():
            CALLED.add(name)
        return result(self)

    return method


METHODS = {
    "__repr__": lambda self: "x",
    "__str__": lambda self: "x",
    "__format__": lambda self: "x",
    "__len__": lambda self: 0,
    "__iter__": lambda self: iter(()),
    "__bool__": lambda self: True,
    "__eq__": lambda self: True,
    "__hash__": lambda self: 7,
    "tree_flatten": lambda self: ((self.x,), None),
}


@jax.tree_util.register_pytree_node_class
class Noted:
    """A class that notes which of its methods are called."""

    locals().update({name: noted(name, result) for name, result in METHODS.items()})

    def __init__(self, x):
        self.x = x

    def __getattr__(self, name):
        if is_of_this_package():
            CALLED.add(name)
        raise AttributeError(name)

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def test_no_code_of_the_user_is_called_but_what_jax_calls_at_each_call(watched):
    """JAX flattens the tree of an argument, and hashes a static one."""
    step = jax.jit(lambda tree, static: tree.x * 73, static_argnums=1)

    class Other(Noted):
        __hash__ = noted("__hash__", lambda self: id(self))

    told = []
    watched(told.append)
    CALLED.clear()
    for size in (8, 4):
        step(Noted(X[:size]), Other(1))
    assert {"tree_flatten", "__hash__"} >= CALLED
    assert len(told) == 1
