"""``report_on_oom``, as a block and as a decorator: the live arrays when a device runs out of memory."""

import asyncio
import contextlib
import copy
import functools
import gc
import inspect
import io
import runpy
import sys
import warnings
import weakref

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import collect_reports, compile_caches_report, config, report_on_oom
from jax_array_info.errors import UnsupportedValueError
from jax_array_info.reports import LiveArrayReport
from jax_array_info.verbs import oom
from tests.rich_render.leaving import printed_of

pytestmark = pytest.mark.once_per_version

OUT_OF_MEMORY = jax.errors.JaxRuntimeError


def train():
    held = jnp.zeros((30, 40))
    return held, jnp.zeros(2**50, jnp.int8)


def test_arrays_that_only_the_traceback_holds_are_listed_with_their_allocation_site(capsys, no_arrays):
    with pytest.raises(OUT_OF_MEMORY), report_on_oom():
        train()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("live arrays at RESOURCE_EXHAUSTED: Out of memory allocating")
    row = next(line for line in err.splitlines() if "(30, 40)" in line)
    assert "test_report_on_oom.py" in row
    assert "4.7 KiB" in row


def test_a_footer_marks_the_array_whose_allocation_failed(capsys, no_arrays):
    array = jnp.ones(250)
    with pytest.raises(RuntimeError), report_on_oom():
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1000 bytes.")
    assert "Includes the array whose allocation failed." in capsys.readouterr().err
    with pytest.raises(RuntimeError), report_on_oom():
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1001 bytes.")
    assert "allocation failed" not in capsys.readouterr().err
    assert array is not None


def test_an_error_handled_before_the_block_does_not_count(capsys):
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


def train_and_explain():
    try:
        with report_on_oom(), report_on_oom():
            train()
    except OUT_OF_MEMORY as error:
        raise RuntimeError("training failed") from error


@pytest.mark.parametrize(
    ("function", "tables"),
    [
        (lambda: sys.exit("another error"), 0),
        (train_and_explain, 1),
        (lambda: exit_while_handling(None), 0),
        (lambda: exit_while_handling(0), 0),
        (lambda: exit_while_handling(3), 1),
        (lambda: exit_while_handling("no room"), 1),
        (fail_and_hide_why, 0),
    ],
)
def test_an_error_is_reported_once_and_a_successful_exit_and_other_errors_print_nothing(
    function, tables, capsys
):
    with pytest.raises((SystemExit, RuntimeError)), report_on_oom():
        function()
    assert capsys.readouterr().err.count("live arrays at") == tables


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


def test_the_exception_is_raised_unchanged():
    assert printed_of(report_on_oom, OUT_OF_MEMORY("RESOURCE_EXHAUSTED: no room"))


def test_an_error_without_weak_references_is_reported_once(capsys):
    for number in range(3):
        with contextlib.suppress(ValueError), report_on_oom(), report_on_oom():
            raise ValueError(f"RESOURCE_EXHAUSTED: no room {number % 2}")
    assert capsys.readouterr().err.count("live arrays at") == 3


def test_a_failed_report_prints_one_line_and_keeps_the_error(capsys, monkeypatch):
    def fail(**_):
        raise MemoryError("none \x1b[31m\nat all")

    monkeypatch.setattr(oom, "live_array_report", fail)
    with pytest.raises(OUT_OF_MEMORY), report_on_oom():
        train()
    assert capsys.readouterr().err == "the live arrays could not be listed: MemoryError: none \\x1b[31m\n"


def test_a_closed_stderr_keeps_the_error():
    file = io.StringIO()
    file.close()
    with pytest.raises(OUT_OF_MEMORY), report_on_oom(file):
        train()


def test_the_report_may_be_collected_and_a_silent_process_prints_nothing(capsys):
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


def test_arrays_of_the_traceback_are_freed_once_the_error_is_handled(no_arrays, capsys):
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


@jax.jit
def too_large(x):
    return jnp.zeros((2**20, 2**20)) + x


class Trainer:
    def __init__(self):
        self.step = too_large


POINTER = (
    "The program of too_large ran out of memory: print_program(too_large, *args) shows what it allocates."
)


def test_a_program_that_runs_out_of_memory_is_named_with_the_call_that_explains_it(capsys):
    step, trainer, x = too_large, Trainer(), jnp.ones(())
    calls = (lambda: too_large(x), lambda: step(x), lambda: trainer.step(x), lambda: report_on_oom()(step)(x))
    for call in calls * 2:  # compiled in the first call
        with pytest.raises(OUT_OF_MEMORY), report_on_oom():
            call()
        err = " ".join(capsys.readouterr().err.split())
        assert err.startswith(
            f"live arrays at RESOURCE_EXHAUSTED: Out of memory allocating 4.0 TiB. {POINTER}"
        )


def test_a_call_without_a_name_and_a_function_of_jax_name_no_program(capsys):
    for call in (lambda: [too_large][0](1.0), lambda: jnp.zeros(2**50, jnp.int8)):
        with pytest.raises(OUT_OF_MEMORY), report_on_oom():
            call()
        err = capsys.readouterr().err
        assert err.startswith("live arrays at RESOURCE_EXHAUSTED")
        assert "The program of" not in err


def test_a_decorator_without_parentheses_says_how_it_is_written():
    with pytest.raises(UnsupportedValueError, match=r"expected a file .* write @report_on_oom\(\)"):
        report_on_oom(train)


def hungry():
    yield train()


async def hungry_later():
    await asyncio.sleep(0)
    return train()


async def hungry_one_by_one():
    yield train()


class Callable:
    def __call__(self):
        return train()


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (classmethod(print), "<class 'classmethod'>"),
        (5, "<class 'int'>"),
        (int, "<class 'type'>"),
        (print, "<class 'builtin_function_or_method'>"),
        (Callable(), f"<class '{__name__}.Callable'>"),
        (Callable().__call__, "<class 'method'>"),
        (functools.partial(train), "<class 'functools.partial'>"),
        (hungry, "the generator function hungry"),
        (hungry_one_by_one, "the generator function hungry_one_by_one"),
    ],
)
def test_other_callables_are_told_to_use_a_block(thing, named):
    with pytest.raises(TypeError) as caught:
        report_on_oom()(thing)
    assert str(caught.value) == (
        f"cannot decorate {named}, only functions, coroutine functions and jitted functions: write "
        "`with report_on_oom():` around the lines that allocate"
    )


def test_coroutine_functions_may_be_decorated(capsys):
    later = report_on_oom()(hungry_later)
    assert inspect.iscoroutinefunction(later)
    with pytest.raises(OUT_OF_MEMORY):
        asyncio.run(later())
    assert capsys.readouterr().err.count("live arrays at") == 1


@jax.jit
def fill(x):
    """Allocate more memory than there is."""
    return jnp.zeros((2**25, 2**25)) + x


class Filling:
    def __init__(self):
        self.size = 2**50

    @report_on_oom()
    @functools.partial(jax.jit, static_argnums=0)
    def fill(self, x):
        return jnp.zeros((self.size,), jnp.int8) + x

    @staticmethod
    @report_on_oom()
    def fill_static(x):
        return fill(x)

    @report_on_oom()
    def fill_later(self, x):
        return fill(x)


@pytest.mark.parametrize(
    "function",
    [
        report_on_oom()(fill),
        report_on_oom()(report_on_oom()(fill)),
        Filling().fill,
        Filling().fill_static,
        Filling().fill_later,
    ],
    ids=["jitted", "twice", "jitted method", "static method", "method"],
)
def test_functions_of_each_kind_may_be_decorated(function, capsys):
    with pytest.raises(OUT_OF_MEMORY):
        function(1)
    assert capsys.readouterr().err.count("live arrays at") == 1


def test_a_decorated_jitted_function_keeps_its_attributes():
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
def test_inside_a_traced_function_it_warns_to_put_it_outside(call):
    with pytest.warns(UserWarning, match="put it outside, as @report_on_oom.. above @jax.jit") as warned:
        call()
    assert {warning.filename for warning in warned} == {__file__}


def test_it_warns_once_per_line_of_each_file(tmp_path):
    code = (
        "import jax\n"
        "from jax_array_info import report_on_oom\n"
        "for length in range(1, 3): jax.jit(report_on_oom()(lambda x: x))(jax.numpy.ones(length))\n"
    )
    programs = [tmp_path / name for name in ("one.py", "other.py")]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for program in programs:
            program.write_text(code)
            runpy.run_path(str(program))
    assert [warning.filename for warning in warned] == list(map(str, programs))


def test_in_eager_transformations_it_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look_inside(3)
        jax.vmap(look_inside)(jnp.ones(3))
        jax.grad(look_inside)(3.0)


def test_a_function_compiles_when_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jax.jit(look_inside)(3) == 6
