"""Tests of the page on measured changes."""

from dataclasses import replace

import pytest

import jax_array_info as jai
from jax_array_info.engine.render import render, text_of
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import Sentence, Verbatim
from jax_array_info_core.reports import Origin
from tests.goldens import stored

pytestmark = pytest.mark.once_per_version

CONSTRAINT, GROUP, NONE, TRADES, REASON, LINES = (
    stored(f"advice-report-{number:02}")[0] for number in range(1, 7)
)


@pytest.mark.parametrize("report", [CONSTRAINT, LINES])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_code_is_never_broken_whatever_the_width(report, encoding):
    (remedy,) = report.remedies
    for width in (20, 40, 80):
        lines = text_of(render(report, width=width), width=width, encoding=encoding).splitlines()
        code = [f"  {line}" for line in remedy.code.splitlines()]
        first = lines.index(code[0])
        assert lines[first : first + len(code)] == code
    for text in (jai.to_html(report), jai.to_svg(report)):
        assert "data" in text.rpartition("P((" if report is CONSTRAINT else "PartitionSpec(")[2]


def test_code_with_tabs_is_shown_with_spaces():
    (remedy,) = LINES.remedies
    report = jai.from_json(jai.to_json(LINES).replace("\\n        ", "\\n\\t"))
    assert report != LINES
    assert jai.to_text(report) == jai.to_text(LINES)
    assert "\n" in remedy.code


def test_a_saved_report_is_printed_as_the_command_does(tmp_path, capsys):
    """Python reads what ``jai-cli advise --format json`` has written. Options are those of the command."""
    file = tmp_path / "advice.json"
    file.write_text(jai.to_json(CONSTRAINT))
    report = jai.load_report(file)
    assert report == CONSTRAINT
    jai.print_report(report)
    printed = capsys.readouterr().out
    assert printed == jai.to_text(CONSTRAINT) + "\n"
    assert "took 34 s; 1 trade; 1 more trade (--trades)\n" in printed
    assert "A byte sent counts as 2,189 FLOPs, as on v5e (--balance)." in printed


def test_trades_are_listed_where_they_are_asked_for():
    """One that has a third of a figure is listed in any case."""

    def printed(**options):
        return text_of(render(TRADES, **options), width=80, encoding="utf-8")

    assert printed().count("fewer bytes sent for more memory: sent 62.8 → ") == 1
    assert "1 trade; 1 more trade (--trades)\n" in printed()
    assert printed(trades=True).count("fewer bytes sent for more memory: sent 62.8 → ") == 2
    assert "2 trades\n" in printed(trades=True)
    assert "and 1 more change\n" in printed(trades=True, max_rows=1)


def test_a_gather_that_moves_to_the_caller_is_said():
    (remedy,) = CONSTRAINT.remedies
    before = replace(CONSTRAINT.base, argument_nbytes=2**20, output_nbytes=0)
    after = replace(before, sent_nbytes=before.sent_nbytes - 2**20, argument_nbytes=2**21)
    moved = replace(CONSTRAINT, remedies=(replace(remedy, before=before, after=after),))
    words = "the gather only moves: the caller has to send 1.0 MiB more to each device"
    assert words in jai.to_text(moved)
    assert words not in jai.to_text(CONSTRAINT)


def test_nothing_is_claimed_without_a_try():
    assert [block.text for block in page(REASON) if isinstance(block, Sentence)] == [REASON.reason]
    assert not [block for block in page(NONE) if isinstance(block, Verbatim)]


@pytest.mark.parametrize(
    ("code", "function", "is_named"),
    [
        ("@jax.jit", "step", True),
        ("    def step(x):", "step", False),
        ("step = jax.jit(lambda x: x)", "<lambda>", False),
        ("", "step", False),
    ],
)
def test_a_program_with_a_costly_finding_names_the_command_for_a_function_of_a_file(code, function, is_named):
    report, _ = stored("program-report-30")
    assert any(finding.nbytes for finding in report.findings)
    origin = Origin(file="/home/me/train.py", line=14, function=function, code=code)
    words = f"which change helps: jai-cli advise train.py:{function}\n"
    assert (words in jai.to_text(replace(report, origin=origin))) == is_named
    notebook = replace(report, origin=replace(origin, cell=3))
    assert "jai-cli advise" not in jai.to_text(notebook)
