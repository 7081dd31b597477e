"""Pages of logs."""

import textwrap

import pytest

from jax_array_info import collect_reports, log_report, print_log, to_text
from jax_array_info.render import text_of
from jax_array_info.tables.compilations import log_table
from tests.logs import DONATIONS, REMATERIALIZATION, WORDINGS

pytestmark = pytest.mark.oldest_and_newest

LINES = [REMATERIALIZATION, REMATERIALIZATION, WORDINGS["0.4.38"], WORDINGS["2022"], DONATIONS["0.12.0.1"]]


def text(picture):
    return textwrap.dedent(picture).strip("\n")


def test_warnings_are_listed_in_specs():
    assert to_text(log_report(LINES, mesh={"x": 4, "y": 2})) == text(
        """
        7 lines, mesh: x=4, y=2
        rematerialized in full, then sharded again (bytes of the whole array):
          16.0 KiB  float32[8,16,4] ×2  from P('y', None, 'x') to P(None, ('x', 'y'))
                      jit(two)/add
          16.0 KiB  float32[8,16,4]  from P('y', None, 'x') to P(None, ('x', 'y'))
                      train.py:13  jit(two)/jit(main)/add
                 ?  ?  from P('y', None, 'x') to P(None, ('x', 'y'))
        donated, but not reused by an output (bytes per device):
          2.0 KiB  float32[8,64]
            4.0 B  int32[]
        """
    )


def test_without_a_mesh_shardings_are_printed_as_xla_does():
    assert to_text(log_report(LINES[:1]), width=120) == text(
        """
        1 line
        rematerialized in full, then sharded again (bytes of the whole array):
          16.0 KiB  float32[8,16,4]  from {mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]} to {mesh['x'=4,'y'=2], [{}, {'x', 'y'}, {}]}
                      jit(two)/add
        donated, but not reused: no warnings
        """
    )


def test_a_log_without_warnings_is_told(capsys):
    print_log(["step 1"])
    assert (
        capsys.readouterr().out
        == text(
            """
        1 line
        rematerialized: no warnings
        donated, but not reused: no warnings
        """
        )
        + "\n"
    )


def test_what_is_not_read_or_not_listed_is_told(tmp_path):
    path = tmp_path / "gr\x1b[31m.log"
    path.write_text("Involuntary full rematerialization [red]\x1b[31m\u202e new\n", encoding="utf-8")
    report = log_report(path)
    object.__setattr__(report, "unlisted_count", 12345)
    printed = to_text(report, width=200)
    assert printed.splitlines()[0].endswith(r"gr\x1b[31m.log, 1 line")
    assert printed.splitlines()[3:] == [
        "not listed: 12345 warnings, because of their number",
        "not read: 1 warning",
        r"  Involuntary full rematerialization [red]\u202e new",
    ]


def test_the_number_of_rows_is_limited():
    lines = [REMATERIALIZATION.replace("jit(two)", f"jit(f{number})") for number in range(5)]
    printed = text_of(log_table(log_report(lines), max_rows=2))
    assert "and 3 more values" in printed
    with pytest.raises(ValueError, match="max_rows"):
        print_log(lines, max_rows=-1)


def test_the_report_is_collected_instead_of_printed(capsys):
    with collect_reports() as reports:
        print_log(LINES)
    assert reports == [log_report(LINES)]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("width", [20, 50, 80])
def test_no_line_is_wider_than_the_console(width):
    printed = to_text(log_report(LINES, mesh={"x": 4, "y": 2}), width=width)
    assert max(map(len, printed.splitlines())) <= width
