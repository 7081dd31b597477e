"""Tests of the page on measured changes, and of the functions that print it."""

import jax
import jax.numpy as jnp
import pytest

import jax_array_info as jai
from jax_array_info.engine.render import render, text_of
from jax_array_info.verbs import advice as print_module
from jax_array_info.verbs import programs
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import Sentence, Verbatim
from tests.goldens import stored

pytestmark = pytest.mark.once_per_version

CONSTRAINT, GROUP, NONE, TRADES, REASON, LOWERED = (
    stored(f"advice-report-{number:02}")[0] for number in range(1, 7)
)


def double(x):
    return 2 * x


@pytest.mark.parametrize("report", [CONSTRAINT, LOWERED])
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
    (remedy,) = LOWERED.remedies
    report = jai.from_json(jai.to_json(LOWERED).replace("\\n        ", "\\n\\t"))
    assert report != LOWERED
    assert jai.to_text(report) == jai.to_text(LOWERED)
    assert "\n" in remedy.code


def test_options_are_named_in_python_or_in_the_shell():
    lines = [block.text for block in page(CONSTRAINT, syntax="shell") if isinstance(block, Sentence)]
    assert "best of 24 tried in 34 s; 2 trades (--trades)" in lines
    assert lines[-1].endswith("For the figures of an accelerator: --topology v5p:2x2x2.")
    assert "2 trades (trades=True of print_advice)" in jai.to_text(CONSTRAINT)


def test_trades_are_listed_where_they_are_asked_for(capsys):
    jai.print_advice(TRADES)
    assert "for more memory" not in capsys.readouterr().out
    jai.print_advice(TRADES, trades=True)
    printed = capsys.readouterr().out
    assert printed.count("fewer bytes sent for more memory: sent 62.8 → ") == 2
    assert "2 trades\n" in printed
    jai.print_advice(TRADES, trades=True, max_rows=1)
    assert "and 1 more change\n" in capsys.readouterr().out


def test_nothing_is_claimed_without_a_try():
    assert [block.text for block in page(REASON) if isinstance(block, Sentence)] == [REASON.reason]
    assert not [block for block in page(NONE) if isinstance(block, Verbatim)]
    assert "proved" not in jai.to_text(LOWERED)


@pytest.fixture
def advised(monkeypatch):
    """Replace ``advise_report`` by a function that returns a stored report; return its calls."""
    calls = []

    def advise(*args, **kwargs):
        calls.append((args, kwargs))
        return CONSTRAINT

    for module in (print_module, programs):
        monkeypatch.setattr(module, "advise_report", advise)
    return calls


def test_print_advice_takes_the_function_or_the_report(advised, capsys):
    x = jnp.zeros(3)
    jai.print_advice(double, x, budget="5s", y=3)
    ((args, kwargs),) = advised
    assert args == (double, x)
    assert kwargs == {"budget": "5s", "topology": None, "y": 3}
    printed = capsys.readouterr().out
    jai.print_advice(CONSTRAINT)
    assert capsys.readouterr().out == printed
    for options in ({"budget": "5s"}, {"topology": "v5p:2x2x2"}, {"y": 3}):
        with pytest.raises(TypeError, match="an AdviceReport is printed as it is"):
            jai.print_advice(CONSTRAINT, **options)
    with pytest.raises(ValueError, match="max_rows"):
        jai.print_advice(double, x, max_rows=-1)


def test_a_program_is_followed_by_its_advice(advised, capsys):
    x = jnp.zeros(3)
    jai.print_program(double, x)
    alone = capsys.readouterr().out
    assert not advised
    with jai.collect_reports() as reports:
        jai.print_program(double, x, advise=True)
    ((args, kwargs),) = advised
    assert (args, kwargs) == ((double, x), {"topology": None})
    assert reports[0].advice == CONSTRAINT
    jai.print_report(reports[0])
    assert capsys.readouterr().out == alone + jai.to_text(CONSTRAINT) + "\n"
    with pytest.raises(TypeError, match="a ProgramReport is printed as it is"):
        jai.print_program(reports[0], advise=True)


@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        (lambda: jax.jit(double).lower(jnp.zeros(3)), "a program of a Lowered: pass the function with its"),
        (lambda: jax.jit(double).lower(jnp.zeros(3)).compile(), "a program of a Compiled: pass"),
    ],
)
def test_a_stage_cannot_be_changed(stage, problem, advised):
    with pytest.raises(ValueError, match=problem):
        jai.print_program(stage(), advise=True)
    with pytest.raises(ValueError, match="a program of dcn=: remove one of the two"):
        jai.print_program(double, jnp.zeros(3), topology="2*v5p:2x2x2", dcn={"x": 2}, advise=True)
    assert not advised
