"""What is printed when a program dies as a device has no memory left."""

import asyncio
import contextlib
import copy
import functools
import gc
import inspect
import io
import sys
import traceback
import warnings
import weakref

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import (
    LiveArrayReport,
    UnsupportedValueError,
    collect_reports,
    compile_caches_report,
    config,
    report_on_oom,
)
from jax_array_info.verbs import oom

OUT_OF_MEMORY = jax.errors.JaxRuntimeError


def train():
    held = jnp.zeros((30, 40))
    return held, jnp.zeros(2**50, jnp.int8)


def test_what_was_live_is_told_with_who_made_it_also_what_only_the_traceback_holds(capsys, no_arrays):
    with pytest.raises(OUT_OF_MEMORY), report_on_oom():
        train()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("what was live at RESOURCE_EXHAUSTED: Out of memory allocating")
    row = next(line for line in err.splitlines() if "(30, 40)" in line)
    assert "test_report_on_oom.py" in row
    assert "4.7 KiB" in row


def test_it_may_decorate_a_function_and_print_elsewhere(capsys):
    file = io.StringIO()
    with pytest.raises(OUT_OF_MEMORY):
        report_on_oom(file)(train)()
    assert "(30, 40)" in file.getvalue()
    assert capsys.readouterr() == ("", "")
    assert report_on_oom()(lambda: 3)() == 3


def test_a_decorator_without_parentheses_says_how_it_is_written():
    with pytest.raises(UnsupportedValueError, match=r"is no file .* decorated by @report_on_oom\(\)"):
        report_on_oom(train)


def hungry():
    yield "first"
    yield train()


async def hungry_later():
    await asyncio.sleep(0)
    return train()


async def hungry_one_by_one():
    try:
        got = yield "first"
    except KeyError:
        got = yield "caught"
    yield got
    yield train()


async def steps_of(generator):
    """Run an asynchronous generator to its end, and return what it yields."""
    found = [await generator.asend(None), await generator.athrow(KeyError()), await generator.asend("sent")]
    with pytest.raises(OUT_OF_MEMORY):
        await generator.asend(None)
    return found


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (classmethod(print), "is not callable.*above @jax.jit and under @classmethod"),
        (5, "is not callable"),
        (int, "the class int: write .* above its methods"),
    ],
)
def test_classes_and_what_is_not_callable_are_not_decorated(thing, message):
    with pytest.raises(UnsupportedValueError, match=message):
        report_on_oom()(thing)


def test_the_array_that_could_not_be_allocated_is_told_as_such(capsys, no_arrays):
    array = jnp.ones(250)
    with pytest.raises(RuntimeError), report_on_oom():
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1000 bytes.")
    assert "JAX lists the array as well that could not be allocated" in capsys.readouterr().err
    with pytest.raises(RuntimeError), report_on_oom():
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1001 bytes.")
    assert "JAX lists" not in capsys.readouterr().err
    assert array is not None


def test_it_may_decorate_functions_of_every_kind(capsys):
    generate, later, one_by_one = map(report_on_oom(), (hungry, hungry_later, hungry_one_by_one))
    assert inspect.isgeneratorfunction(generate)
    assert inspect.iscoroutinefunction(later)
    assert inspect.isasyncgenfunction(one_by_one)
    assert one_by_one.__name__ == "hungry_one_by_one"
    steps = generate()
    assert next(steps) == "first"
    with pytest.raises(OUT_OF_MEMORY):
        next(steps)
    assert capsys.readouterr().err.count("what was live") == 1
    with pytest.raises(OUT_OF_MEMORY):
        asyncio.run(later())
    assert capsys.readouterr().err.count("what was live") == 1
    assert asyncio.run(steps_of(one_by_one())) == ["first", "caught", "sent"]
    assert capsys.readouterr().err.count("what was live") == 1


@jax.jit
def fill(x):
    """Fill more memory than there is."""
    return jnp.zeros((2**25, 2**25)) + x


class Trainer:
    def __init__(self):
        self.size = 2**50

    @report_on_oom()
    @functools.partial(jax.jit, static_argnums=0)
    def fill(self, x):
        return jnp.zeros((self.size,), jnp.int8) + x

    @report_on_oom()
    @staticmethod
    def fill_static(x):
        return fill(x)

    def fill_later(self, x):
        return fill(x)

    def __call__(self, x):
        return fill(x)


class Later:
    async def __call__(self):
        return train()


@pytest.mark.parametrize(
    "function",
    [
        report_on_oom()(fill),
        report_on_oom()(report_on_oom()(fill)),
        Trainer().fill,
        Trainer().fill_static,
        report_on_oom()(Trainer().fill_later),
        report_on_oom()(functools.partial(fill)),
        report_on_oom()(Trainer()),
    ],
    ids=["jitted", "twice", "jitted method", "static method", "bound method", "partial", "object"],
)
def test_any_callable_may_be_decorated(function, capsys):
    with pytest.raises(OUT_OF_MEMORY):
        function(1)
    assert capsys.readouterr().err.count("what was live") == 1


def test_what_a_jitted_function_has_stays_reachable():
    @jax.jit
    def double(x):
        """Double it."""
        return 2 * x

    decorated = report_on_oom()(double)
    assert decorated(3) == 6
    assert "mul" in decorated.lower(3.0).as_text()
    assert str(decorated.trace(3.0).jaxpr) == str(double.trace(3.0).jaxpr)
    decorated(jnp.zeros(3))
    assert double._cache_size() == 2
    decorated.clear_cache()
    assert double._cache_size() == 0
    decorated(3)
    compile_caches_report(clear=decorated)
    assert double._cache_size() == 0
    assert inspect.signature(decorated) == inspect.signature(double)
    assert (decorated.__name__, decorated.__doc__, decorated.__wrapped__) == ("double", "Double it.", double)
    assert repr(decorated) == repr(double)
    with pytest.raises(AttributeError, match="no_such"):
        decorated.no_such  # noqa: B018
    assert copy.copy(decorated)(3) == 6
    assert jax.vmap(decorated)(jnp.arange(2.0)).tolist() == [0, 2]


def test_coroutines_of_partials_and_objects_are_told_too(capsys):
    for function in (functools.partial(hungry_later), Later()):
        with pytest.raises(OUT_OF_MEMORY):
            asyncio.run(report_on_oom()(function)())
        assert capsys.readouterr().err.count("what was live") == 1


def look_inside(x):
    with report_on_oom():
        return x * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: jax.jit(look_inside)(3),
        lambda: jax.jit(report_on_oom()(lambda x: x * 2))(3),
        lambda: jax.vmap(jax.jit(look_inside))(jnp.ones(3)),
        lambda: jax.jit(jax.grad(look_inside))(3.0),
    ],
    ids=["block", "decorator", "under vmap", "grad inside"],
)
def test_inside_a_traced_function_it_says_that_it_must_stand_outside(call):
    with pytest.warns(UserWarning, match="put it outside, as @report_on_oom.. above @jax.jit") as warned:
        call()
    assert {warning.filename for warning in warned} == {__file__}


def test_where_operations_run_at_once_it_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look_inside(3)
        jax.vmap(look_inside)(jnp.ones(3))
        jax.grad(look_inside)(3.0)


def test_where_warnings_are_errors_it_is_compiled_all_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jax.jit(look_inside)(3) == 6


def test_an_asynchronous_generator_that_is_closed_closes_its_own(capsys):
    @report_on_oom()
    async def tidy():
        try:
            yield "first"
        finally:
            left.append(True)

    async def close():
        generator = tidy()
        await generator.asend(None)
        await generator.aclose()

    left = []
    asyncio.run(close())
    assert left == [True]
    assert capsys.readouterr() == ("", "")


def test_what_was_being_handled_before_does_not_count(capsys):
    def clean_up():
        with report_on_oom():
            raise KeyError("cleaning up")

    def train_and_clean_up():
        try:
            train()
        except OUT_OF_MEMORY:
            clean_up()

    with pytest.raises(KeyError) as failed:
        train_and_clean_up()
    assert isinstance(failed.value.__context__, OUT_OF_MEMORY)
    assert capsys.readouterr() == ("", "")


def exit_while_handling(code):
    try:
        train()
    except OUT_OF_MEMORY:
        sys.exit(code)


def fail_and_hide_why():
    try:
        train()
    except OUT_OF_MEMORY:
        raise RuntimeError("no room") from None


@pytest.mark.parametrize(
    ("function", "tables"),
    [
        (lambda: exit_while_handling(None), 0),
        (lambda: exit_while_handling(0), 0),
        (lambda: exit_while_handling(3), 1),
        (lambda: exit_while_handling("no room"), 1),
        (fail_and_hide_why, 0),
    ],
)
def test_an_exit_without_failure_and_what_a_traceback_hides_are_not_told(function, tables, capsys):
    with pytest.raises((SystemExit, RuntimeError)), report_on_oom():
        function()
    assert capsys.readouterr().err.count("what was live") == tables


def test_a_program_without_stderr_prints_nothing_anywhere(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(OUT_OF_MEMORY), report_on_oom():
        train()

    def fail(**_):
        raise MemoryError

    monkeypatch.setattr(oom, "live_array_report", fail)
    with pytest.raises(OUT_OF_MEMORY), report_on_oom():
        train()
    assert capsys.readouterr().out == ""


def test_the_exception_goes_on_as_it_is():
    error, earlier = OUT_OF_MEMORY("RESOURCE_EXHAUSTED: no room"), KeyError()

    def leave(block):
        try:
            try:
                raise earlier
            except KeyError:
                with block:
                    raise error  # noqa: B904 - the context is what is looked at
        except OUT_OF_MEMORY as caught:
            lines = [frame.name for frame in traceback.extract_tb(caught.__traceback__)]
            return caught, lines, caught.__context__, caught.__cause__, caught.__suppress_context__

    with io.StringIO() as file:
        found = leave(report_on_oom(file))
        assert file.getvalue()
    assert found == (error, ["leave"], earlier, None, False)
    assert found[0] is error
    assert not hasattr(error, "__notes__")


def test_an_error_is_told_once(capsys):
    def train_and_explain():
        try:
            with report_on_oom(), report_on_oom():
                train()
        except OUT_OF_MEMORY as error:
            raise RuntimeError("training failed") from error

    with pytest.raises(RuntimeError, match="training failed"), report_on_oom():
        train_and_explain()
    assert capsys.readouterr().err.count("what was live") == 1


def test_an_error_that_takes_no_weak_reference_is_told_once_too(capsys):
    for number in range(3):
        with contextlib.suppress(ValueError), report_on_oom(), report_on_oom():
            raise ValueError(f"RESOURCE_EXHAUSTED: no room {number % 2}")
    assert capsys.readouterr().err.count("what was live") == 3


def test_other_errors_and_none_print_nothing(capsys):
    with report_on_oom():
        pass
    with pytest.raises(ZeroDivisionError), report_on_oom():
        1 / 0  # noqa: B018
    assert capsys.readouterr() == ("", "")


def test_a_failure_of_the_report_is_a_line_and_hides_nothing(capsys, monkeypatch):
    def fail(**_):
        raise MemoryError("none \x1b[31m\nat all")

    monkeypatch.setattr(oom, "live_array_report", fail)
    with pytest.raises(OUT_OF_MEMORY), report_on_oom():
        train()
    assert capsys.readouterr().err == "what was live cannot be told: MemoryError: none \\x1b[31m\n"


def test_a_closed_stderr_hides_nothing():
    file = io.StringIO()
    file.close()
    with pytest.raises(OUT_OF_MEMORY), report_on_oom(file):
        train()


def test_the_report_may_be_gathered_and_who_shall_not_print_does_not(capsys):
    with pytest.raises(OUT_OF_MEMORY), collect_reports() as reports, report_on_oom():
        train()
    (report,) = reports
    assert isinstance(report, LiveArrayReport)
    config.process = 1
    try:
        with pytest.raises(OUT_OF_MEMORY), report_on_oom():
            train()
    finally:
        config.process = "all"
    assert capsys.readouterr() == ("", "")


def test_what_the_traceback_holds_is_free_when_the_error_is_handled(no_arrays, capsys):
    def fail():
        held = jnp.zeros((30, 40))
        references.append(weakref.ref(held))
        return held, jnp.zeros(2**50, jnp.int8)

    references = []
    gc.disable()
    try:
        for block in (contextlib.nullcontext(), report_on_oom()):
            with contextlib.suppress(OUT_OF_MEMORY), block:
                fail()
        without, with_it = (reference() is None for reference in references)
    finally:
        gc.enable()
    assert with_it == without
    assert "(30, 40)" in capsys.readouterr().err
