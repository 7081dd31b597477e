import functools
import gc
import operator
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    ArrayInfoError,
    FunctionNameError,
    UnsupportedValueError,
    compile_caches_report,
)
from tests.arrays import mesh_of

pytestmark = pytest.mark.once_per_version

TELLS_COMPILATIONS = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 6)


def told(number):
    """Return a number of compilations as this jax tells it."""
    return number if TELLS_COMPILATIONS else None


def caches(name, report=None):
    """Return what is told of the functions of a name."""
    found = (report or compile_caches_report()).functions
    return [(one.entries, one.compilations) for one in found if one.name == name]


@pytest.fixture(autouse=True)
def tidy():
    """What earlier tests have left behind is gone."""
    gc.collect()


@pytest.mark.needs_devices(2)
def test_entries_are_not_compilations():
    @jax.jit
    def four_specs(x):
        return x * 2

    mesh = mesh_of((2,), ("d",))
    for spec in (P("d"), P(("d",), None), P(None, "d"), P()):
        four_specs(jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, spec)))
    assert caches("four_specs") == [(4, told(3))]


def test_two_functions_of_one_name_are_two_rows_and_the_most_entries_come_first():
    def make(factor):
        def same_name(x):
            return x * factor

        return jax.jit(same_name)

    once, thrice = make(1), make(2)
    once(jnp.zeros(3))
    for size in (3, 4, 5):
        thrice(jnp.zeros(size))
    report = compile_caches_report()
    assert caches("same_name", report) == [(3, told(3)), (1, told(1))]
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
        assert not Model.is_watched, "no code of the user's is run"
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


def test_names_say_what_was_jitted_and_no_code_of_it_runs(monkeypatch):
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
    ]
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
    ]:
        assert name in found
        assert found[name] == function
    assert jitted


def test_what_wraps_itself_has_a_name_too():
    def around(x):
        return x

    jitted = jax.jit(around)
    around.__wrapped__ = around
    assert caches("around") == [(0, told(0))]
    assert jitted


def test_pmapped_functions_say_so_where_jax_has_a_class_for_them():
    def mapped(x):
        return x

    function = jax.pmap(mapped)
    function(np.zeros((1, 2)))
    if type(function).__name__ == "PmapFunction":
        assert caches("pmap(mapped)") == [(1, None)]
        assert caches("pmap(mapped)", compile_caches_report("mapped")) == [(0, None)]
    else:
        assert caches("pmap(mapped)") == []


def test_functions_of_jax_are_one_row():
    jnp.where(jnp.zeros(3) > 0, 1.0, 2.0)
    report = compile_caches_report()
    assert report.jax_function_count > 200
    assert report.jax_entries > 0
    assert not [one for one in report.functions if one.origin and "/jax/" in one.origin.file]


def test_executables_of_functions_that_are_gone_are_nobodys():
    @jax.jit
    def short_lived(x):
        return x - 1

    compiled = short_lived.lower(jnp.zeros(3)).compile()
    before = compile_caches_report().unowned_executables
    assert caches("short_lived") == [(0, told(1))]
    del short_lived
    gc.collect()
    after = compile_caches_report().unowned_executables
    assert after == (None if before is None else before + 1)
    assert compiled


def test_clearing_empties_those_named_and_no_others():
    @jax.jit
    def cleared(x):
        return x + 1

    @jax.jit
    def left_alone(x):
        return x + 1

    for function in (cleared, left_alone):
        for size in (3, 4):
            function(jnp.zeros(size))
    assert caches("cleared") == [(2, told(2))]
    report = compile_caches_report("cleared")
    assert caches("cleared", report) == [(0, told(0))]
    assert caches("left_alone", report) == [(2, told(2))]
    left_alone(jnp.zeros(5))
    assert caches("left_alone") == [(3, told(3))]
    cleared(jnp.zeros(3))
    assert caches("cleared") == [(1, told(1))]
    report = compile_caches_report([cleared, "left_alone"])
    assert caches("cleared", report) + caches("left_alone", report) == [(0, told(0))] * 2


def test_a_name_without_what_it_is_in_is_enough():
    function = jax.jit(Model().step)
    function(jnp.zeros(3))
    assert caches("Model.step", compile_caches_report("step")) == [(0, told(0))]
    assert function


def test_a_jitted_method_is_cleared_by_its_bound_one_too():
    class Trainer:
        @functools.partial(jax.jit, static_argnums=0)
        def apply_it(self, x):
            return x * 2

    trainer = Trainer()
    name = Trainer.apply_it.__qualname__.rpartition("<locals>.")[2]
    trainer.apply_it(jnp.zeros(3))
    assert caches(name) == [(1, told(1))]
    assert caches(name, compile_caches_report(trainer.apply_it)) == [(0, told(0))]


def test_an_unknown_name_is_refused_with_those_near_it_and_nothing_is_emptied():
    @jax.jit
    def training_step(x):
        return x

    training_step(jnp.zeros(3))
    with pytest.raises(FunctionNameError, match=r"traning_step.* did you mean training_step"):
        compile_caches_report(clear=[training_step, "traning_step"])
    assert caches("training_step")[0][0] == 1
    with pytest.raises(LookupError, match=r"is named \\x1b\[31m$"):
        compile_caches_report("\x1b[31m")


@pytest.mark.parametrize("clear", [3, [3], len, plain, [None], b"plain", Model().step])
def test_what_is_no_name_and_no_jitted_function_is_refused(clear):
    with pytest.raises(UnsupportedValueError, match="expected a jitted function or its name, got <class"):
        compile_caches_report(clear)


def test_neither_the_report_nor_a_refusal_keeps_a_function():
    @jax.jit
    def passing(x):
        return x

    reference = weakref.ref(passing.__wrapped__)
    report = compile_caches_report()
    refusals = []
    try:
        compile_caches_report("nothing of that name")
    except ArrayInfoError as error:
        refusals.append(error)
    del passing
    gc.collect()
    assert reference() is None
    assert report
    assert refusals


def test_looking_adds_no_jitted_function_and_no_array(no_arrays):
    first = compile_caches_report()
    assert compile_caches_report() == first
    assert jax.live_arrays() == []


def test_what_other_threads_make_meanwhile_is_not_disturbed():
    problems, done = [], threading.Event()

    def make_tuples():
        while not done.is_set():
            try:
                # Python can finish a tuple only while nothing else refers to it.
                tuple(number for number in range(100))
            except SystemError as error:
                problems.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make_tuples)
    thread.start()
    try:
        for _ in range(20):
            compile_caches_report()
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert problems == []


def test_threads_may_compile_meanwhile():
    problems, done = [], threading.Event()

    def compile_one_after_the_other():
        try:
            while not done.is_set():
                jax.jit(lambda x: x + 1)(np.zeros(3))
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=compile_one_after_the_other)
    thread.start()
    try:
        reports = [compile_caches_report() for _ in range(10)]
    finally:
        done.set()
        thread.join()
    assert problems == []
    assert all(report.jax_function_count > 200 for report in reports)


def test_a_function_may_look_at_its_caches_and_empty_them_while_it_is_traced():
    reports = []

    @jax.jit
    def looks(x):
        reports.append(compile_caches_report("looks"))
        return x * 2

    assert looks(jnp.ones(3)).tolist() == [2, 2, 2]
    assert caches("looks", reports[0]) == [(0, told(0))]
    assert looks(jnp.ones(3)).tolist() == [2, 2, 2]
