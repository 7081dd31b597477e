"""Printed tables and panels as HTML and SVG."""

import re
from html import unescape

import pytest
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from jax_array_info import (
    array_report,
    memory_profile_report,
    planned_report,
    to_html,
    to_svg,
)
from jax_array_info.engine.render import render, text_of
from jax_array_info.export.document import parts_of
from jax_array_info.reports import ProgramReport, PropagationReport, TreeReport
from jax_array_info.svg import ARMS, lines_figure, lines_html
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import Picture
from tests import sample_programs
from tests.goldens import one_of_each
from tests.rich_render.svg.reading import parsed, words

pytestmark = pytest.mark.newest


def reports():
    """Yield reports of each class that is shown as lines of text."""
    yield from sample_programs.REPORTS
    for report in one_of_each().values():
        if not any(isinstance(block, Picture) for block in page(report)):
            yield report


MOST_ROWS = 100
"""Number of rows of a list in a document."""


def without_boxes(text):
    return re.sub(f"[{''.join(ARMS)}\\s]+", " ", text).split()


def test_each_report_shows_the_printed_words():
    for report in reports():
        printed = text_of(render(report, max_rows=MOST_ROWS))
        if not isinstance(
            report, ProgramReport | PropagationReport | TreeReport
        ):  # with source, and folded by prefix
            fragment = to_html(report)
            assert unescape("".join(parsed(fragment).itertext())).split() == printed.split()
        has_source = isinstance(report, ProgramReport | PropagationReport)
        drawn = text_of(Group(*parts_of([report]))) if has_source else printed
        # A shape is several texts of an SVG.
        assert "".join("".join(words(to_svg(report))).split()) == "".join(without_boxes(drawn))
        assert set("".join(without_boxes(printed))) & set(ARMS) == set()


def test_tables_and_panels_have_an_accessible_title():
    assert parsed(to_svg(memory_profile_report())).get("aria-label") == "MemoryProfileReport"
    assert parsed(to_svg(array_report({"w": 3}, "state"))).get("aria-label") == "state"


def test_adjacent_box_characters_are_merged_into_one_line():
    # A panel of 3 × 6 characters: two lines across, two down, and nothing else.
    figure = lines_figure(Panel(Text("ab"), width=6), 10)
    [path, text] = figure.parts
    assert text.text == "ab"
    assert path.get("d").count("M") == 4
    assert path.get("stroke-width") == "1"


def test_styles_are_those_of_the_terminal_in_legible_colors():
    html = lines_html(Text("a") + Text("b", "bold magenta") + Text(" c ", "red"), 10)
    assert html.endswith(
        '>a<span style="color:#cb1ecf;font-weight:bold">b</span><span style="color:#e12d2d"> c </span></pre>'
    )
    texts = lines_figure(Text("a") + Text("b", "bold magenta"), 10).parts
    assert [(text.text, text.get("fill"), text.get("font-weight")) for text in texts] == [
        ("a", None, None),
        ("b", "#cb1ecf", "bold"),
    ]


def test_wide_characters_take_two_columns():
    figure = lines_figure(Panel(Text("日本|x"), width=10), 10)
    text = figure.parts[-1]
    assert float(text.get("textLength")) == pytest.approx(6 * 7.224, abs=0.1)


@pytest.mark.parametrize("width", [20, 80, 200])
def test_lines_are_within_the_requested_width(width):
    report = planned_report((2**20, 2**20), {"a" * 30: 2}, ("a" * 30,), name="n" * 300)
    lines = "".join(parsed(to_html(report, width=width)).find("pre").itertext()).splitlines()
    assert max(map(len, lines)) <= width
