"""What rich draws as lines of characters → HTML and SVG, the boxes around tables as lines of their own.

Rich's own exports refer to fonts on the network, and have a background that a page may not have.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from jax_array_info_core.text import printable

from .boxes import ARMS, LINE_HEIGHT, STEP, Boxes
from .figure import FONT, FONT_SIZE, GREY, Element, Figure, text

COLORS = {
    "red": "#e12d2d",
    "green": "#148926",
    "yellow": "#947015",
    "blue": "#3771e2",
    "magenta": "#cb1ecf",
    "cyan": "#158291",
    "bright_black": GREY,
    "bright_cyan": "#158291",
    "bright_green": "#148926",
}
"""What the colours of a terminal are on a page, be it white or black: 4.5 to 1 on both."""


class Run(NamedTuple):
    """Characters of one look, somewhere in a line."""

    column: int
    words: str
    style: Style


def rich_lines(renderable: RenderableType, width: int) -> list[list[Segment]]:
    """Return the lines of what rich draws, no wider than so many characters."""
    console = Console(
        file=StringIO(),
        width=width,
        height=100,  # without a height, rich takes a dumb terminal for 80 columns wide
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        force_jupyter=False,
        legacy_windows=False,
    )
    return console.render_lines(renderable, console.options.update(highlight=False), pad=False)


def lines_html(renderable: RenderableType, width: int) -> str:
    """Return what rich draws as a ``pre`` element, whose styles are its own."""
    lines = ("".join(map(_span, line)).rstrip() for line in rich_lines(renderable, width))
    look = f"font-family:{FONT};font-size:13px;line-height:1.2;white-space:pre;overflow-x:auto;margin:0"
    look += ";color:inherit;background:none;border:0;padding:0"
    return f'<pre style="{html.escape(look)}">' + "\n".join(lines) + "</pre>"


def _span(segment: Segment) -> str:
    words = html.escape(printable(segment.text))
    look = ";".join(f"{name}:{value}" for name, value in _css(segment.style or Style.null()))
    return f'<span style="{look}">{words}</span>' if look and words.strip() else words


def lines_figure(renderable: RenderableType, width: int) -> Figure:
    """Return what rich draws as text that can be selected, and the boxes around it as lines."""
    lines = rich_lines(renderable, width)
    texts: list[Element] = []
    boxes = Boxes()
    for number, line in enumerate(lines):
        for run in _runs(line):
            if run.words[0] in ARMS:
                for column, character in enumerate(run.words, run.column):
                    boxes.add(character, column, number)
            else:
                texts.append(_run_text(run, number * LINE_HEIGHT))
    columns = max((sum(segment.cell_length for segment in line) for line in lines), default=0)
    return Figure(columns * STEP, len(lines) * LINE_HEIGHT, (*boxes.elements(), *texts))


def _run_text(run: Run, top: float) -> Element:
    looks: dict[str, float | str] = {name.replace("-", "_"): value for name, value in _css(run.style)}
    if "color" in looks:
        looks["fill"] = looks.pop("color")
    # Whatever the font: the columns of a table stay in line.
    length = cell_len(run.words) * STEP
    return text(
        run.column * STEP,
        top + 0.95 * FONT_SIZE,
        run.words,
        textLength=length,
        **looks,
    )


def _runs(line: Sequence[Segment]) -> Iterator[Run]:
    """Yield the text of a line and its box characters, each with its column; no blanks around them."""
    column = 0
    for segment in line:
        start = 0
        style = segment.style or Style.null()
        for stop in range(1, len(segment.text) + 1):
            is_box = segment.text[start] in ARMS
            if stop < len(segment.text) and (segment.text[stop] in ARMS) == is_box:
                continue
            words = segment.text[start:stop]
            if words.strip():
                blank = len(words) - len(words.lstrip())
                yield Run(column + blank, words.strip(), style)
            column += cell_len(words)
            start = stop


def _css(style: Style) -> Iterator[tuple[str, str]]:
    """Yield what a style of rich's is as properties of CSS, which SVG has as well."""
    if style.color is not None and not style.color.is_default:
        yield "color", _page_color(style.color)
    if style.bold:
        yield "font-weight", "bold"
    if style.italic:
        yield "font-style", "italic"


def _page_color(color: Color) -> str:
    return COLORS.get(color.name) or color.get_truecolor().hex
