"""Rich output as HTML and SVG, with SVG lines for the boxes of tables.

Rich's own SVG export loads fonts from the network and has a fixed background. Its HTML export keeps lone
surrogates and links, and cannot inherit the text color of the page.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from jax_array_info_core.text import printable

from .boxes import ARMS, LINE_HEIGHT, STEP, box_lines
from .figure import FONT, FONT_SIZE, Element, Figure, text
from .page_colors import COLORS


def rich_lines(renderable: RenderableType, width: int) -> list[list[Segment]]:
    """Return the lines of a renderable, at most ``width`` characters wide."""
    console = Console(
        file=StringIO(),
        width=width,
        height=100,  # without a height, rich assumes 80 columns in a dumb terminal
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        force_jupyter=False,
        legacy_windows=False,
    )
    return console.render_lines(renderable, console.options.update(highlight=False), pad=False)


def lines_html(renderable: RenderableType, width: int) -> str:
    """Return a renderable as a ``pre`` element with inline styles."""
    lines = ("".join(map(_span, line)).rstrip() for line in rich_lines(renderable, width))
    look = f"font-family:{FONT};font-size:13px;line-height:1.2;white-space:pre;overflow-x:auto;margin:0"
    look += ";color:inherit;background:none;border:0;padding:0"
    return f'<pre style="{html.escape(look)}">' + "\n".join(lines) + "</pre>"


def _span(segment: Segment) -> str:
    words = html.escape(printable(segment.text))
    look = ";".join(f"{name}:{value}" for name, value in _css(segment.style).items())
    return f'<span style="{look}">{words}</span>' if look and words.strip() else words


def lines_figure(renderable: RenderableType, width: int) -> Figure:
    """Return a renderable as selectable text, with its boxes as lines."""
    lines = rich_lines(renderable, width)
    texts: list[Element] = []
    boxes: list[tuple[str, int, int]] = []
    for number, line in enumerate(lines):
        for column, words, style in _runs(line):
            if words[0] in ARMS:
                boxes += ((character, place, number) for place, character in enumerate(words, column))
                continue
            baseline = number * LINE_HEIGHT + 0.95 * FONT_SIZE
            # textLength keeps the columns of a table aligned in every font.
            looks: dict[str, float | str] = {"textLength": cell_len(words) * STEP, **_css(style)}
            if "color" in looks:
                looks["fill"] = looks.pop("color")
            texts.append(text(column * STEP, baseline, words, **looks))
    columns = max((Segment.get_line_length(line) for line in lines), default=0)
    return Figure(columns * STEP, len(lines) * LINE_HEIGHT, (*box_lines(boxes), *texts))


def _runs(line: Sequence[Segment]) -> Iterator[tuple[int, str, Style | None]]:
    """Yield column, text and style of each run of text or box characters, without surrounding spaces."""
    column = 0
    for segment in line:
        for _, characters in groupby(segment.text, ARMS.__contains__):
            words = "".join(characters)
            if words.strip():
                yield column + len(words) - len(words.lstrip()), words.strip(), segment.style
            column += cell_len(words)


def _css(style: Style | None) -> dict[str, str]:
    """Return a rich style as CSS properties, which are SVG attributes, too."""
    looks = {}
    if style and style.color is not None and not style.color.is_default:
        looks["color"] = COLORS.get(style.color.name) or style.color.get_truecolor().hex
    if style and style.bold:
        looks["font-weight"] = "bold"
    if style and style.italic:
        looks["font-style"] = "italic"
    return looks
