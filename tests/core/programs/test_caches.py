import functools
import gc
import operator
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import ArrayInfoError, compile_caches_report
from jax_array_info_core.errors import FunctionNameError, UnsupportedValueError
from tests.arrays import mesh_of
from tests.threads import meanwhile

pytestmark = pytest.mark.once_per_version

HAS_COMPILATIONS = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 6)


def compilations(number):
    """Return the expected number of compilations, None for versions of JAX that do not report it."""
    return number if HAS_COMPILATIONS else None


def caches(name, report=None):
    """Return ``(entries, compilations)`` of each function of a name."""
    found = (report or compile_caches_report()).functions
    return [(one.entries, one.compilations) for one in found if one.name == name]


@pytest.fixture(autouse=True)
def tidy():
    """Free the functions of earlier tests."""
    gc.collect()


@pytest.mark.needs_devices(2)
def test_there_may_be_more_entries_than_compilations():
    @jax.jit
    def four_specs(x):
        return x * 2

    mesh = mesh_of((2,), ("d",))
    for spec in (P("d"), P(("d",), None), P(None, "d"), P()):
        four_specs(jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, spec)))
    assert caches("four_specs") == [(4, compilations(3))]


def test_functions_of_the_same_name_are_separate_and_sorted_by_entries():
    def make(factor):
        def same_name(x):
            return x * factor

        return jax.jit(same_name)

    once, thrice = make(1), make(2)
    once(jnp.zeros(3))
    for size in (3, 4, 5):
        thrice(jnp.zeros(size))
    report = compile_caches_report()
    assert caches("same_name", report) == [(3, compilations(3)), (1, compilations(1))]
    assert {str(one.origin) for one in report.functions if one.name == "same_name"} == {
        f"test_caches.py:{once.__wrapped__.__code__.co_firstlineno} same_name"
    }


class Model:
    is_watched = False

    def step(self, x):
        return x + 1

    def __call__(self, x):
        return x + 2

    def __getattr__(self, name):
        assert not Model.is_watched, "user code was run"
        raise AttributeError(name)


def plain(x):
    return x.sum()


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@wrapping
@jax.checkpoint
@wrapping
def decorated(x):
    return x


def test_names_come_from_the_wrapped_functions_and_no_user_code_runs(monkeypatch):
    def around(x):
        return x

    model = Model()
    jitted = [
        jax.jit(model.step),
        jax.jit(model),
        jax.jit(functools.partial(plain)),
        jax.jit(lambda x: x),
        jax.jit(jax.jit(jax.grad(plain))),
        jax.jit(decorated),
        jax.jit(wrapping(jnp.sum)),
        jax.jit(operator.add),
        jax.jit(np.sin),
        jax.jit(around),
    ]
    around.__wrapped__ = around
    monkeypatch.setattr(Model, "is_watched", True)
    report = compile_caches_report()
    found = {one.name: one.origin and one.origin.function for one in report.functions}
    for name, function in [
        ("Model.step", "step"),
        ("Model.__call__", "__call__"),
        ("partial(plain)", "plain"),
        ("<lambda>", "<lambda>"),
        ("plain", "plain"),
        ("decorated", "decorated"),
        ("sum", "wrapper"),
        ("add", None),
        ("sin", None),
        ("around", "around"),
    ]:
        assert name in found
        assert found[name] == function
    assert jitted


def test_the_name_of_a_pmapped_function_has_pmap_where_jax_has_a_class_for_it():
    def mapped(x):
        return x

    function = jax.pmap(mapped)
    function(np.zeros((1, 2)))
    if type(function).__name__ == "PmapFunction":
        assert caches("pmap(mapped)") == [(1, None)]
        assert caches("pmap(mapped)", compile_caches_report("mapped")) == [(0, None)]
    else:
        assert caches("pmap(mapped)") == []


def test_functions_of_jax_are_counted_in_total():
    jnp.where(jnp.zeros(3) > 0, 1.0, 2.0)
    report = compile_caches_report()
    assert report.jax_function_count > 200
    assert report.jax_entries > 0
    assert not [one for one in report.functions if one.origin and "/jax/" in one.origin.file]


def test_executables_without_a_live_function_are_counted():
    @jax.jit
    def short_lived(x):
        return x - 1

    compiled = short_lived.lower(jnp.zeros(3)).compile()
    before = compile_caches_report().unowned_executables
    assert caches("short_lived") == [(0, compilations(1))]
    del short_lived
    gc.collect()
    after = compile_caches_report().unowned_executables
    assert after == (None if before is None else before + 1)
    assert compiled


def test_only_the_named_caches_are_cleared():
    @jax.jit
    def cleared(x):
        return x + 1

    @jax.jit
    def left_alone(x):
        return x + 1

    for function in (cleared, left_alone):
        for size in (3, 4):
            function(jnp.zeros(size))
    assert caches("cleared") == [(2, compilations(2))]
    report = compile_caches_report("cleared")
    assert caches("cleared", report) == [(0, compilations(0))]
    assert caches("left_alone", report) == [(2, compilations(2))]
    left_alone(jnp.zeros(5))
    assert caches("left_alone") == [(3, compilations(3))]
    cleared(jnp.zeros(3))
    assert caches("cleared") == [(1, compilations(1))]
    report = compile_caches_report([cleared, "left_alone"])
    assert caches("cleared", report) + caches("left_alone", report) == [(0, compilations(0))] * 2


def test_a_bound_method_clears_the_cache_of_its_jitted_method():
    class Trainer:
        @functools.partial(jax.jit, static_argnums=0)
        def apply_it(self, x):
            return x * 2

    trainer = Trainer()
    name = Trainer.apply_it.__qualname__.rpartition("<locals>.")[2]
    for clear in ("apply_it", trainer.apply_it):  # the name without its class is enough
        trainer.apply_it(jnp.zeros(3))
        assert caches(name) == [(1, compilations(1))]
        assert caches(name, compile_caches_report(clear)) == [(0, compilations(0))]


def test_an_unknown_name_is_rejected_with_similar_names_and_nothing_is_cleared():
    @jax.jit
    def training_step(x):
        return x

    training_step(jnp.zeros(3))
    with pytest.raises(FunctionNameError, match=r"traning_step.* did you mean training_step"):
        compile_caches_report(clear=[training_step, "traning_step"])
    assert caches("training_step")[0][0] == 1
    with pytest.raises(LookupError, match=r"is named \\x1b\[31m$"):
        compile_caches_report("\x1b[31m")


@pytest.mark.newest
@pytest.mark.parametrize("clear", [3, [3], len, plain, [None], b"plain", Model().step])
def test_values_other_than_names_and_jitted_functions_are_rejected(clear):
    with pytest.raises(UnsupportedValueError, match="expected a jitted function or its name, got <class"):
        compile_caches_report(clear)


def test_neither_a_report_nor_an_error_keeps_a_function_alive():
    @jax.jit
    def passing(x):
        return x

    reference = weakref.ref(passing.__wrapped__)
    report = compile_caches_report()
    errors = []
    try:
        compile_caches_report("nothing of that name")
    except ArrayInfoError as error:
        errors.append(error)
    del passing
    gc.collect()
    assert reference() is None
    assert report
    assert errors


def test_a_report_adds_no_jitted_function_and_no_array(no_arrays):
    first = compile_caches_report()
    assert compile_caches_report() == first
    assert jax.live_arrays() == []


def test_tuples_that_other_threads_are_filling_are_not_disturbed():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        # CPython raises a SystemError if anything else refers to a tuple that it is filling.
        with meanwhile(lambda: tuple(number for number in range(100))):
            for _ in range(5):
                compile_caches_report()
    finally:
        sys.setswitchinterval(interval)


def test_other_threads_may_compile_during_a_report():
    with meanwhile(lambda: jax.jit(lambda x: x + 1)(np.zeros(3))):
        reports = [compile_caches_report() for _ in range(10)]
    assert all(report.jax_function_count > 200 for report in reports)


def test_a_function_may_clear_its_caches_while_it_is_traced():
    reports = []

    @jax.jit
    def clearing(x):
        reports.append(compile_caches_report("clearing"))
        return x * 2

    assert clearing(jnp.ones(3)).tolist() == [2, 2, 2]
    assert caches("clearing", reports[0]) == [(0, compilations(0))]
    assert clearing(jnp.ones(3)).tolist() == [2, 2, 2]
