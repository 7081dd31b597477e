"""Functions that print programs, and settings of their pages."""

import re
from dataclasses import replace

import jax.numpy as jnp
import pytest

from jax_array_info import (
    collect_reports,
    config,
    print_program,
    print_program_diff,
    to_html,
    to_text,
)
from jax_array_info.engine.render import render, text_of
from jax_array_info.export.source_text import _collective_words
from jax_array_info.reports import (
    Origin,
    ProgramMemory,
    SourceLine,
    Temporary,
    WorkLine,
    WorkShare,
)
from tests.sample_programs import STEP, WHY, gather, line, program, reduction

pytestmark = pytest.mark.newest


def all_rows(report):
    """Return the page of a report with all rows, on a wide terminal."""
    return text_of(render(report, width=200, max_rows=None), width=200)


def test_print_program_shows_a_number_of_rows(capsys):
    report = program(*(gather(None, number, 2**20) for number in range(1, 61)))
    print_program(report)
    shown = capsys.readouterr().out
    assert re.search(r"and [0-9]+ more lines, [0-9.]+ MiB sent\n", shown)
    assert len(shown.splitlines()) <= 40
    print_program(report, max_rows=3)
    assert "57 more" in capsys.readouterr().out
    with pytest.raises(ValueError, match="max_rows must be at least 0"):
        print_program(report, max_rows=-1)


def test_keyword_arguments_of_print_program_belong_to_the_function():
    def scaled(x, *, factor):
        return x * factor

    with collect_reports() as reports:
        print_program(scaled, jnp.zeros(3), factor=2.0)
        print_program(STEP)
        print_program_diff(STEP, STEP)
    assert [type(report).__name__ for report in reports] == ["ProgramReport", "ProgramReport", "ProgramDiff"]
    assert [value.path for value in reports[0].arguments] == ["x", "factor"]
    assert reports[1] is STEP


def test_a_report_is_printed_as_it_is(capsys):
    print_program(STEP)
    assert "\nstep (train.py:14), 8 CPU devices" in capsys.readouterr().out
    for options in ({"topology": "v5e:2x4"}, {"x": 3}):
        with pytest.raises(TypeError, match="printed as it is"):
            print_program(STEP, **options)
    with pytest.raises(ValueError, match="max_rows must be at least 0"):
        print_program_diff(STEP, STEP, max_rows=-1)


def test_lines_have_as_many_callers_as_asked_for_and_their_named_scopes(monkeypatch):
    main, step = (
        SourceLine(file="train.py", line=line, function=name) for line, name in ((9, "main"), (7, "step"))
    )
    library = SourceLine(file="/site-packages/flax/linear.py", line=3, function="dense")
    origin = Origin(file="train.py", line=2, function="block", callers=(step, main), skipped=(library,))
    scopes = ("layers_0/mlp", "layers_1/mlp", "layers_2/mlp", "head")
    row = gather(None, 1)
    report = program(replace(row, origin=origin, scopes=scopes))
    assert "linear.py:3 dense from train.py:2 block │ layers_0-2/mlp, head" in all_rows(report)
    monkeypatch.setattr(config, "callers", 3)
    callers = "linear.py:3 dense from train.py:2 block from train.py:7 step from train.py:9 main │"
    assert callers in all_rows(report)


@pytest.mark.parametrize(
    ("link", "words"), [("dcn", ["all-reduce over data", "by DCN"]), ("ici", ["all-reduce over data"])]
)
def test_the_notes_of_a_line_have_slow_links(link, words):
    assert list(_collective_words(replace(reduction(("data",), 9, 2**20), link=link), "", None)) == words


def test_callers_of_propagated_values_are_shown_where_the_settings_ask_for_them(monkeypatch):
    origin = replace(line(9), callers=(SourceLine(file="a.py", line=3, function="step"),))
    report = replace(
        WHY, values=(replace(WHY.values[0], origin=origin),), conflicts=(), lost=(), replicated=()
    )
    assert "a.py:3" not in to_text(report)
    monkeypatch.setattr(config, "callers", 2)
    assert "from a.py:3 step" in " ".join(to_text(report).split())


def test_the_default_page_has_lines_and_all_rows_have_what_they_replace():
    kept = Temporary(dtype="float32", shape=(4, 4), nbytes=2**20, origin=line(7))
    report = program(
        reduction(("data",), 3, 3 * 2**20),
        gather("params/w", 5, 2**20),
        memory=ProgramMemory(temporary_nbytes=2**21, temporaries=(kept,), live_nbytes=2**20),
        work=WorkShare(
            share=2.0,
            flops=100,
            whole_flops=400,
            repeated_flops=50,
            lines=(WorkLine(origin=line(3), op="dot_general", flops=100, repeated_flops=50, share=2.0),),
        ),
    )
    shown = to_text(report, width=100)
    assert shown.splitlines()[0] == "no findings; most: 3.0 MiB sent at train.py:3 (75%)"
    assert "work: each device does 2.0 times its share\n" in shown
    first = shown.index("lines by cost: bytes sent, and live at once (1.0 MiB in total, estimated)\n")
    assert shown[first:].splitlines()[1:4] == [
        "  3.0 MiB  train.py:3 loss, 2.0 times its share  all-reduce over data",
        "           train.py:7 loss, 1.0 MiB live",
        "  1.0 MiB  train.py:5 loss  all-gather over fsdp",
    ]
    assert "5 rows are left out: max_rows=None shows all" in shown
    for absent in ("float32[4,4]", "params/w", "highest point"):
        assert absent not in shown
        assert absent in all_rows(report)
        assert absent in to_html(report)
    assert "rows are left out" not in all_rows(report)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (WorkShare(share=1.04), "divided evenly over 8 devices"),
        (WorkShare(share=1.06), "each device does 1.1 times its share"),
        (WorkShare(share=8.0, is_of_all=True), "each device does 8.0 times its share of all operations"),
        (WorkShare(reason="there is one device"), "unknown (there is one device)"),
    ],
)
def test_the_head_says_how_the_work_is_divided(work, words):
    assert to_text(program(work=work)).endswith(f"\nwork: {words}")


def test_a_report_of_an_older_version_has_no_words_on_its_work():
    assert "work" not in to_text(program(work=None))


def test_a_line_names_the_way_that_sends_the_most_and_counts_the_others():
    ways = (gather("params/w", 3, 2**20), reduction(("data",), 3, 2**21), reduction(("fsdp",), 3, 2**16))
    assert "3.1 MiB  train.py:3 loss  all-reduce over data; 2 more\n" in to_text(program(*ways))
