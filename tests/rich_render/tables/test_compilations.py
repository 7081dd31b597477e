"""The table of the compilations in a block."""

import dataclasses
import textwrap

import jax
import numpy as np
import pytest

from jax_array_info import collect_reports, print_compilations, to_text, watch_compiles
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import Compilation, CompilationsReport, Origin
from jax_array_info_core.pages.compilations import duration

pytestmark = pytest.mark.oldest_and_newest

LOOP = "another function object of the same line: jit it once, outside of the loop"


def compilation(function, line, seconds, reason):
    file = "/home/user/train.py"
    return Compilation(
        function=function,
        definition=Origin(file=file, line=3, function=function),
        origin=None if line is None else Origin(file=file, line=line, function="main"),
        seconds=seconds,
        reason=reason,
    )


REPORT = CompilationsReport(
    compilations=(
        compilation("train_step", 41, 12.34, "first in the block"),
        compilation("train_step", 41, 11.5, "params/wi: sharding P('d',) became P(None, 'd')"),
        compilation("<lambda>", 57, 0.02, LOOP),
        compilation("<lambda>", 57, 0.04, LOOP),
        compilation("init[/red]", None, 0.5, "x: shape (1,) became (2,)"),
    ),
    cache_hits=(compilation("evaluate", 90, 0.004, "first in the block"),),
    jax_count=7,
    jax_seconds=0.25,
    other_count=2,
)


def picture(text):
    return textwrap.dedent(text).strip()


def stripped(text):
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def test_each_row_has_function_line_number_duration_and_reason():
    assert stripped(to_text(REPORT, width=100)) == picture(
        """
        2 recompilations of train_step, <lambda>; 5 compilations of 3 functions took 24.4 s
                                                    compilations
        ┏━━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
        ┃ function    ┃ called at   ┃ times ┃ duration ┃ reason                                            ┃
        ┡━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
        │ train_step  │ train.py:41 │     1 │   12.3 s │ first in the block                                │
        │ train_step  │ train.py:41 │     1 │   11.5 s │ params/wi: sharding P('d',) became P(None, 'd')   │
        │ <lambda>    │ train.py:57 │     2 │    60 ms │ another function object of the same line: jit it  │
        │             │             │       │          │ once, outside of the loop                         │
        │ init[/red]  │             │     1 │   500 ms │ x: shape (1,) became (2,)                         │
        ├─────────────┼─────────────┼───────┼──────────┼───────────────────────────────────────────────────┤
        │ evaluate    │ train.py:90 │     1 │     4 ms │ persistent cache: first in the block              │
        ├─────────────┼─────────────┼───────┼──────────┼───────────────────────────────────────────────────┤
        │ total       │             │     5 │   24.4 s │                                                   │
        │ not watched │             │     2 │          │                                                   │
        │ JAX's own   │             │     7 │   250 ms │                                                   │
        └─────────────┴─────────────┴───────┴──────────┴───────────────────────────────────────────────────┘
        """
    )


def test_the_first_line_counts_a_function_that_was_compiled_before_the_block():
    once = compilation("step", 9, 0.04, "first in the block")
    again = dataclasses.replace(
        once, reason="first in the block; compiled before it", was_compiled_before=True
    )
    for one, words in (
        (once, "no recompilations: 1 function compiled once, 40 ms"),
        (again, "1 recompilation of step; 1 compilation of 1 function took 40 ms"),
    ):
        assert to_text(CompilationsReport(compilations=(one,)), width=80).splitlines()[0].strip() == words


def test_on_a_narrow_console_the_reason_is_below_the_function():
    lines = to_text(REPORT, width=40).splitlines()
    assert max(map(len, lines)) <= 40
    cells = [line.split("│")[1].strip() for line in lines if line.count("│") == 4]
    assert cells[:4] == ["train_step", "train.py:41", "first in the", "block"]


def test_rows_beyond_the_maximum_are_in_one_more_row():
    text = text_of(render(REPORT, width=100, max_rows=1), width=100)
    assert "3 more rows" in text
    assert "│     4 │   12.1 s │" in text
    assert "train_step" in text
    assert "init" not in text


def test_compilations_that_differ_in_the_lengths_of_shapes_share_a_row():
    sizes = (40, *range(9, 68))
    reasons = [
        f"x/05: shape ({old}, 4) became ({new}, 4)" for old, new in zip((8, *sizes), sizes, strict=False)
    ]
    other = "x/05: dtype float32 became int32"
    report = CompilationsReport(
        compilations=tuple(
            compilation("f", 7, 0.01, reason) for reason in ("first in the block", *reasons, other)
        )
    )
    rows = [line.split("│") for line in to_text(report, width=100).splitlines() if "train.py:7" in line]
    assert [(row[3].strip(), row[5].strip()) for row in rows] == [
        ("1", "first in the block"),
        ("60", "x/05: shape (8 to 66, 4) became (9 to 67, 4)"),
        ("1", other),
    ]
    two = CompilationsReport(compilations=report.compilations[1:3])
    assert "to" not in to_text(two, width=100).partition("total")[0].partition("shape")[2]


@pytest.mark.parametrize("facts", [{"jax_count": 2, "jax_seconds": 0.1}, {"other_count": 1}])
def test_compilations_that_are_not_watched_are_not_called_nothing(facts):
    text = to_text(CompilationsReport(**facts))
    assert text.splitlines()[0].strip() == "no watched function was compiled"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0 ms"), (0.0123, "12 ms"), (1.0, "1.0 s"), (754.26, "754.3 s")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_verb_takes_a_watch_or_its_report(capsys):
    with watch_compiles() as watch:
        jax.jit(lambda x: x + 1)(np.ones(3))
        print_compilations(watch)
    print_compilations(watch.report())
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert "first in the block" in "".join(lines)


def test_the_report_is_collected_instead_of_printed(capsys):
    with collect_reports() as reports:
        print_compilations(watch_compiles())
    assert list(reports) == [CompilationsReport()]
    assert capsys.readouterr().out == ""


def test_the_maximum_of_rows_is_checked():
    with pytest.raises(ValueError, match="max_rows"):
        print_compilations(watch_compiles(), max_rows=-1)
