"""Text, SVG and HTML of the memory of a program along its schedule."""

import io
import xml.etree.ElementTree as ElementTree
from contextlib import redirect_stdout
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from jax_array_info import (
    print_program,
    print_program_timeline,
    program_report,
    to_html,
    to_svg,
    to_text,
)
from jax_array_info.engine.render import render
from jax_array_info_core.reports import OutOfMemory, ProgramReport, ProgramTimelineReport
from tests.sample_programs import TIMELINE

pytestmark = pytest.mark.oldest_and_newest

MiB = 2**20
TEXT = """\
peak 10.0 MiB at operation 700 of 1600: dot.1, layers.py:12
  attend
step (train.py:5), CPU: live bytes per device along the
  schedule
                            ▼ peak 10.0 MiB
10.0 MiB ┤                  bbbbbbbbbbbbbb
         │                  aaaaaaaaaaaaaa
         │                  aaaaaaaaaaaaaa
 7.5 MiB ┤                  aaaaaaaaaaaaaa
         │            bbbbbbaaaaaaaaaaaaaa
         │            aaaaaaaaaaaaaaaaaaaabbbbbb
 5.0 MiB ┤bbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbb
         │::::::::::::::::::::::::::::::::::::::::::::::::::
         │..................................................
 2.5 MiB ┤..................................................
         │..................................................
         │..................................................
   0.0 B └┬───────────┬────────────┬───────────┬────────────
          100         500          900         1,300
at the peak:
  b 1.0 MiB  train.py:9 loss
  a 5.0 MiB  layers.py:12 attend
  : 1.0 MiB  outputs
  . 3.0 MiB  arguments
Estimated from the schedule, which has the body of a loop
  once; arguments and outputs are XLA's figures."""


def test_the_text_has_the_peak_its_operation_and_the_lines():
    assert to_text(TIMELINE, width=60) == TEXT


def test_the_program_report_shows_the_same_below_its_tables():
    report = ProgramReport(name="step", platform="cpu", timeline=TIMELINE)
    assert to_text(report, width=60).endswith(TEXT)
    assert to_text(replace(report, timeline=None), width=60) + "\n" + TEXT == to_text(report, width=60)


def test_svg_and_html_have_the_areas_in_place_of_the_text():
    program = ProgramReport(name="step", platform="cpu", timeline=TIMELINE)
    for report in (TIMELINE, program):
        for drawn in (to_svg(report), to_html(report)):
            assert "operation 700 of 1600: dot.1: 10.0 MiB\n5.0 MiB layers.py:12 attend" in drawn
            assert "┤" not in drawn
            assert drawn.count("peak 10.0 MiB at operation 700 of 1600") == 1
    ElementTree.fromstring(to_svg(program))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"needed_source": "peak"}, "the peak, arguments and outputs are XLA's figures"),
        ({"needed_source": "unknown"}, "the backend reports no bytes of arguments and outputs"),
        ({"needed_nbytes": 9 * MiB}, "The estimate is 1.0 MiB more than XLA needs."),
        ({"host_nbytes": 7 * MiB}, "not shown: 7.0 MiB in host memory"),
        ({"topology": "v5p:2x2x2"}, "step (train.py:5), v5p:2x2x2: live bytes"),
        ({"out_of_memory": OutOfMemory(message="no")}, "does not fit"),
    ],
)
def test_what_is_special_is_said(change, words):
    for form in (to_text, to_svg, to_html):
        assert words.partition(" MiB")[0].replace("'", "&#x27;") in form(
            replace(TIMELINE, **change), width=200
        ).replace("'", "&#x27;")


@pytest.mark.parametrize(
    ("system", "has_letters"), [("truecolor", False), ("256", False), ("standard", True)]
)
def test_a_terminal_of_16_colors_shows_letters(system, has_letters):
    """With 16 colors, neighboring areas can look alike."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system=system, width=60)
    console.print(render(TIMELINE, width=60, use_color=True))
    assert ("aaaaaa" in console.file.getvalue()) is has_letters


def test_a_program_without_points_has_no_picture():
    report = ProgramTimelineReport(name="step", platform="tpu", out_of_memory=OutOfMemory(message="no"))
    assert to_text(report).split("\n") == [
        "does not fit: needs an unknown size, has an unknown size per device",
        "step, TPU: live bytes per device along the schedule",
    ]
    assert "<title>" not in to_svg(report)


def printed(function, *args, **options):
    output = io.StringIO()
    with redirect_stdout(output):
        function(*args, **options)
    return output.getvalue()


def test_both_functions_print_the_same_timeline():
    def norms(x):
        return jnp.sqrt(jnp.sum(jnp.sort(x @ x.T, 0) ** 2, 1))

    x = jax.ShapeDtypeStruct((64, 32), jnp.float32)
    report = program_report(norms, x, timeline=True)
    expected = to_text(report.timeline) + "\n"
    assert printed(print_program_timeline, norms, x) == expected
    assert printed(print_program_timeline, report.timeline) == expected
    assert printed(print_program, report).endswith(expected)
    assert printed(print_program, norms, x, timeline=True).endswith(expected)
    assert expected not in printed(print_program, norms, x)
    with pytest.raises(TypeError, match="is printed as it is"):
        print_program_timeline(report.timeline, x)
    with pytest.raises(TypeError, match="is printed as it is"):
        print_program(report, timeline=True)
