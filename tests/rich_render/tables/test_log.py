"""Pages of logs."""

import textwrap

import pytest

from jax_array_info import log_report, print_log, to_text
from jax_array_info.engine.render import render, text_of
from tests.logs import (
    ALLOCATOR,
    DONATIONS,
    FAILED_ON_GPU,
    FAILED_ON_TPU,
    REFUSED,
    REMATERIALIZATION,
    WORDINGS,
)

pytestmark = pytest.mark.oldest_and_newest

ERRORS = [*REFUSED.splitlines(), FAILED_ON_TPU, *ALLOCATOR.splitlines(), *FAILED_ON_GPU.splitlines()]
LINES = [REMATERIALIZATION, REMATERIALIZATION, WORDINGS["0.4.38"], WORDINGS["2022"], DONATIONS["0.12.0.1"]]


def text(picture):
    return textwrap.dedent(picture).strip("\n")


def test_a_refusal_without_a_table_names_the_function_that_has_one():
    lines = ["RESOURCE_EXHAUSTED: Requires 3.50G, has 1.00G available. Device memory is full"]
    report = log_report(lines)
    assert (
        report.answer
        == "does not fit: needs 3.5 GiB, has 1.0 GiB per device; 1 finding: JAI209 program-memory"
    )
    assert (
        report.findings[0].remedy == "print_program(function, *arguments) shows what the program allocates."
    )


def test_the_largest_buffers_are_listed():
    rows = "".join(f"  {n}. Size: {90 - n}.00M\n     Shape: f32[{n},2]\n" for n in range(1, 15))
    report = log_report([*FAILED_ON_TPU.splitlines(), *rows.splitlines()])
    assert text_of(render(report, max_rows=None)).endswith("  76.0 MiB  unknown operation  float32[14,2]")
    few = text_of(render(report, max_rows=2)).splitlines()
    assert few[-3:-1] == ["  88.0 MiB  unknown operation  float32[2,2]", "  and 12 more, 978.0 MiB"]
    errors = log_report(ERRORS)
    assert [one.kind for one in errors.findings] == ["program memory"] * 3


def test_a_log_without_warnings_is_told(capsys):
    print_log(["step 1"])
    assert (
        capsys.readouterr().out
        == text(
            """
        no findings
        1 line
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
    assert printed.splitlines()[1].endswith(r"gr\x1b[31m.log, 1 line")
    assert printed.splitlines()[3:] == [
        "1 line could not be read. It is a warning of one of these kinds, in another wording.",
        "Update jax-array-info, or report the lines with your version of JAX.",
        r"  Involuntary full rematerialization [red]\u202e new",
        "not listed: 12345 warnings or errors, because of their number",
    ]


def test_several_unread_lines_are_plural():
    report = log_report([f"Involuntary full rematerialization {word}" for word in ("new", "newer")])
    assert "2 lines could not be read. They are warnings of these kinds" in to_text(report, width=200)


def test_the_number_of_rows_is_limited():
    lines = [REMATERIALIZATION.replace("jit(two)", f"jit(f{number})") for number in range(5)]
    printed = text_of(render(log_report(lines), max_rows=2))
    assert "and 3 more, " in printed
    with pytest.raises(ValueError, match="max_rows"):
        print_log(lines, max_rows=-1)


@pytest.mark.parametrize("width", [20, 50, 80])
def test_no_line_is_wider_than_the_console(width):
    printed = to_text(log_report([*LINES, *ERRORS], mesh={"x": 4, "y": 2}), width=width)
    assert max(map(len, printed.splitlines())) <= width
