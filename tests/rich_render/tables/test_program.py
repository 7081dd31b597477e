"""Functions that print programs, and settings of their pages."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from jax_array_info import (
    collect_reports,
    config,
    print_program,
    print_program_diff,
    to_text,
)
from jax_array_info.export.source_text import _collective_words
from jax_array_info.reports import (
    Origin,
    SourceLine,
)
from tests.sample_programs import STEP, WHY, gather, line, program, reduction

pytestmark = pytest.mark.newest


def test_print_program_shows_a_number_of_rows(capsys):
    report = program(*(gather(None, number, 2**20) for number in range(1, 31)))
    print_program(report)
    shown = capsys.readouterr().out
    assert "5 more" in shown
    assert len(shown.splitlines()) <= 40
    print_program(report, max_rows=3)
    assert "27 more" in capsys.readouterr().out
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
    assert "linear.py:3 dense from train.py:2 block │ layers_0-2/mlp, head" in to_text(report, width=200)
    monkeypatch.setattr(config, "callers", 3)
    callers = "linear.py:3 dense from train.py:2 block from train.py:7 step from train.py:9 main │"
    assert callers in to_text(report, width=200)


@pytest.mark.parametrize(
    ("link", "words"), [("dcn", ["all-reduce over data", "by DCN"]), ("ici", ["all-reduce over data"])]
)
def test_the_notes_of_a_line_have_slow_links(link, words):
    assert list(_collective_words(replace(reduction(("data",), 9, 2**20), link=link), None)) == words


def test_callers_of_propagated_values_are_shown_where_the_settings_ask_for_them(monkeypatch):
    origin = replace(line(9), callers=(SourceLine(file="a.py", line=3, function="step"),))
    report = replace(
        WHY, values=(replace(WHY.values[0], origin=origin),), conflicts=(), lost=(), replicated=()
    )
    assert "a.py:3" not in to_text(report)
    monkeypatch.setattr(config, "callers", 2)
    assert "from a.py:3 step" in " ".join(to_text(report).split())
