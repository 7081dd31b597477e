"""Text, SVG and HTML of the memory of a program along its schedule."""

import io
import xml.etree.ElementTree as ElementTree
from contextlib import redirect_stdout

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
from jax_array_info_core.reports import ProgramReport
from tests.sample_programs import TIMELINE

pytestmark = pytest.mark.newest


def test_svg_and_html_have_the_areas_in_place_of_the_text():
    program = ProgramReport(name="step", platform="cpu", timeline=TIMELINE)
    for report in (TIMELINE, program):
        for drawn in (to_svg(report), to_html(report)):
            assert "operation 700 of 1600: dot.1: 10.0 MiB\n5.0 MiB layers.py:12 attend" in drawn
            assert "┤" not in drawn
            assert drawn.count("peak 10.0 MiB at operation 700 of 1600") == 1
    ElementTree.fromstring(to_svg(program))


@pytest.mark.parametrize(
    ("system", "has_letters"), [("truecolor", False), ("256", False), ("standard", True)]
)
def test_a_terminal_of_16_colors_shows_letters(system, has_letters):
    """With 16 colors, neighboring areas can look alike."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system=system, width=60)
    console.print(render(TIMELINE, width=60, use_color=True))
    assert ("aaaaaa" in console.file.getvalue()) is has_letters


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
    assert expected in printed(print_program, report)
    assert expected in printed(print_program, norms, x, timeline=True)
    assert expected not in printed(print_program, norms, x)
    with pytest.raises(TypeError, match="is printed as it is"):
        print_program_timeline(report.timeline, x)
    with pytest.raises(TypeError, match="is printed as it is"):
        print_program(report, timeline=True)
