"""The live arrays that ``report_on_oom`` prints when a device runs out of memory."""

import contextlib
import gc
import io
import sys
import traceback
import weakref

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import collect_reports, config, report_on_oom
from jax_array_info.reports import LiveArrayReport
from jax_array_info.verbs import oom

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


def test_it_may_decorate_a_function_and_print_to_a_file(capsys):
    file = io.StringIO()
    with pytest.raises(OUT_OF_MEMORY):
        report_on_oom(file)(train)()
    assert "(30, 40)" in file.getvalue()
    assert capsys.readouterr() == ("", "")
    assert report_on_oom()(lambda: 3)() == 3


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
def test_a_successful_exit_and_a_hidden_error_print_nothing(function, tables, capsys):
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
    error, earlier = OUT_OF_MEMORY("RESOURCE_EXHAUSTED: no room"), KeyError()

    def leave(block):
        try:
            try:
                raise earlier
            except KeyError:
                with block:
                    raise error  # noqa: B904 - the test is about the context
        except OUT_OF_MEMORY as caught:
            lines = [frame.name for frame in traceback.extract_tb(caught.__traceback__)]
            return caught, lines, caught.__context__, caught.__cause__, caught.__suppress_context__

    with io.StringIO() as file:
        found = leave(report_on_oom(file))
        assert file.getvalue()
    assert found == (error, ["leave"], earlier, None, False)
    assert found[0] is error
    assert not hasattr(error, "__notes__")


def test_an_error_is_reported_once(capsys):
    def train_and_explain():
        try:
            with report_on_oom(), report_on_oom():
                train()
        except OUT_OF_MEMORY as error:
            raise RuntimeError("training failed") from error

    with pytest.raises(RuntimeError, match="training failed"), report_on_oom():
        train_and_explain()
    assert capsys.readouterr().err.count("live arrays at") == 1


def test_an_error_without_weak_references_is_reported_once(capsys):
    for number in range(3):
        with contextlib.suppress(ValueError), report_on_oom(), report_on_oom():
            raise ValueError(f"RESOURCE_EXHAUSTED: no room {number % 2}")
    assert capsys.readouterr().err.count("live arrays at") == 3


def test_other_errors_print_nothing(capsys):
    with report_on_oom():
        pass
    with pytest.raises(ZeroDivisionError), report_on_oom():
        1 / 0  # noqa: B018
    assert capsys.readouterr() == ("", "")


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
