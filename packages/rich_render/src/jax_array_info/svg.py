"""SVG elements, and rich output as SVG and HTML."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate, groupby
from xml.etree import ElementTree

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from jax_array_info_core.base.text import printable

GREY = "#767676"
"""Has a WCAG contrast ratio of 4.5:1 on white and on black."""

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
"""Colors of a page for those of a terminal, with a contrast ratio of 4.5:1 on white and on black."""


Element = ElementTree.Element

FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
FONT_SIZE = 12
CHARACTER = 0.602
"""Width of a monospaced character, relative to the font size."""

MARGIN = 8
LEAST_ZOOM = 0.7
"""Smallest factor by which a narrow page may shrink a figure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A part of a drawing."""

    width: float
    """In pixels, like all lengths."""
    height: float
    parts: tuple[Element, ...]
    title: str = ""
    """Accessible title, for screen readers."""


def element(tag: str, *children: Element, words: str | None = None, **attributes: float | str) -> Element:
    """Return an SVG element.

    Args:
        tag: Tag name.
        *children: Child elements.
        words: Text content; characters that are not printable are escaped, because XML forbids many.
        **attributes: Attributes, with ``_`` for ``-`` in their names; numbers are rounded to tenths,
            strings are escaped like ``words``.
    """
    made = Element(tag, {name.replace("_", "-"): _attribute(value) for name, value in attributes.items()})
    made.text = None if words is None else "\n".join(map(printable, words.split("\n")))
    made.extend(children)
    return made


def _attribute(value: float | str) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, **attributes: float | str) -> Element:
    """Return a line of text with its baseline at ``y``; all spaces are kept."""
    if "  " in words:
        attributes["style"] = "white-space:pre"
    return element("text", words=words, x=x, y=y, **attributes)


def text_width(words: str, size: float = FONT_SIZE) -> float:
    """Return the width of a line of text."""
    return cell_len(words) * CHARACTER * size


def moved(figure: Figure, x: float, y: float) -> Element:
    """Return a figure's elements as one group, moved by (x, y)."""
    if not (x or y):
        return element("g", *figure.parts)
    return element("g", *figure.parts, transform=f"translate({_attribute(x)} {_attribute(y)})")


def stacked(figures: Sequence[Figure], gap: float = MARGIN) -> Figure:
    """Return figures stacked from top to bottom."""
    *tops, bottom = accumulate((figure.height + gap for figure in figures), initial=0.0)
    width = max((figure.width for figure in figures), default=0.0)
    return _combined(figures, [(0.0, top) for top in tops], width, bottom - gap)


def side_by_side(figures: Sequence[Figure], gap: float = MARGIN) -> Figure:
    """Return figures side by side, from left to right."""
    *lefts, right = accumulate((figure.width + gap for figure in figures), initial=0.0)
    height = max((figure.height for figure in figures), default=0.0)
    return _combined(figures, [(x, 0.0) for x in lefts], right - gap, height)


def _combined(
    figures: Sequence[Figure], places: Sequence[tuple[float, float]], width: float, height: float
) -> Figure:
    if len(figures) == 1:
        return figures[0]
    title = ", ".join(dict.fromkeys(figure.title for figure in figures if figure.title))
    parts = [moved(figure, *place) for figure, place in zip(figures, places, strict=True)]
    return Figure(max(width, 0.0), max(height, 0.0), tuple(parts), title)


def paragraph(lines: Sequence[str], size: float = FONT_SIZE, **attributes: float | str) -> Figure:
    """Return lines of text."""
    step = round(1.35 * size)
    parts = [
        text(0, step * number + size, line, font_size=size, **attributes)
        for number, line in enumerate(lines)
        if line
    ]
    return Figure(max((text_width(line, size) for line in lines), default=0), step * len(lines), tuple(parts))


def svg(figure: Figure, *, title: str = "", color: str | None = GREY) -> str:
    """Return a figure as an SVG document, or as an element of a page.

    Args:
        figure: The figure.
        title: Accessible title, if the figure has none.
        color: Color of text and lines; None for the color of the page around the element.
    """
    margin = MARGIN if color else 1
    width, height = figure.width + 2 * margin, figure.height + 2 * margin
    root = element(
        "svg",
        moved(figure, margin, margin),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_attribute(width)} {_attribute(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=figure.title or title,
        font_family=FONT,
        font_size=FONT_SIZE,
        fill="currentColor",
    )
    if color is None:
        # Shrink to the width of the page, but stay legible; a narrower page scrolls.
        wide = f"max(100%,{LEAST_ZOOM * width:.0f}px)"
        root.set("style", f"display:block;max-width:{wide};height:auto;margin:{MARGIN}px 0")
    else:
        root.set("color", color)
    return ElementTree.tostring(root, encoding="unicode")


LINE_HEIGHT = 1.2 * FONT_SIZE
STEP = CHARACTER * FONT_SIZE
"""Width of a character, in pixels."""

ARMS = {
    "─": "0101", "━": "0202", "│": "1010", "┃": "2020",
    "┌": "0110", "┐": "0011", "└": "1100", "┘": "1001",
    "╭": "0110", "╮": "0011", "╰": "1100", "╯": "1001",
    "├": "1110", "┤": "1011", "┬": "0111", "┴": "1101", "┼": "1111",
    "┏": "0220", "┓": "0022", "┗": "2200", "┛": "2002",
    "┣": "2220", "┫": "2022", "┳": "0222", "┻": "2202", "╋": "2222",
    "┡": "2210", "┩": "2012", "╇": "2212", "╈": "1222",
}  # fmt: skip
"""Weights of the arms of a box character: up, right, down, left; 0 none, 1 light, 2 heavy."""


def box_lines(boxes: Iterable[tuple[str, int, int]]) -> Iterator[Element]:
    """Yield box characters as one SVG path per weight, with adjacent arms merged into one line.

    Args:
        boxes: Box characters with their column and line.
    """
    # The half characters that each line covers, by direction, weight and position.
    arms: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for character, column, line in boxes:
        up, right, down, left = tuple(ARMS[character])
        arms["v", up, column].add(2 * line)
        arms["v", down, column].add(2 * line + 1)
        arms["h", left, line].add(2 * column)
        arms["h", right, line].add(2 * column + 1)
    for weight in "12":
        strokes = [
            stroke
            for (direction, arm_weight, place), halves in arms.items()
            if arm_weight == weight
            for stroke in _strokes(direction, place, halves)
        ]
        if strokes:
            yield element(
                "path",
                d="".join(strokes),
                stroke="currentColor",
                stroke_width=int(weight),
                stroke_linecap="square",
                shape_rendering="crispEdges",
            )


def _strokes(direction: str, place: int, halves: Iterable[int]) -> Iterator[str]:
    """Yield a stroke for each run of adjacent half characters."""
    # In a run, number minus rank is constant.
    for _, ranked in groupby(enumerate(sorted(halves)), lambda pair: pair[1] - pair[0]):
        run = [half for _, half in ranked]
        start, stop = run[0] / 2, (run[-1] + 1) / 2
        if direction == "h":
            yield f"M{start * STEP:.1f} {(place + 0.5) * LINE_HEIGHT:.1f}H{stop * STEP:.1f}"
        else:
            yield f"M{(place + 0.5) * STEP:.1f} {start * LINE_HEIGHT:.1f}V{stop * LINE_HEIGHT:.1f}"


def rich_lines(renderable: RenderableType, width: int) -> list[list[Segment]]:
    """Return the lines of a renderable for a width; only lines that stay whole are wider."""
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
    return [*Segment.split_lines(console.render(renderable, console.options.update(highlight=False)))]


def lines_html(renderable: RenderableType, width: int) -> str:
    """Return a renderable as a ``pre`` element with inline styles."""
    lines = ("".join(map(_span, line)).rstrip() for line in rich_lines(renderable, width))
    look = f"font-family:{FONT};font-size:13px;line-height:1.2;white-space:pre;overflow-x:auto;margin:0"
    look += ";color:inherit;background:none;border:0;padding:0"
    return f'<pre style="{html.escape(look)}">' + "\n".join(lines) + "</pre>"


def _span(segment: Segment) -> str:
    words = html.escape(printable(segment.text))
    look = ";".join(f"{name}:{value}" for name, value in css(segment.style).items())
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
            looks: dict[str, float | str] = {"textLength": cell_len(words) * STEP, **css(style)}
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


def css(style: Style | None) -> dict[str, str]:
    """Return a rich style as CSS properties, which are SVG attributes, too."""
    looks = {}
    if style and style.color is not None and not style.color.is_default:
        looks["color"] = COLORS.get(style.color.name) or style.color.get_truecolor().hex
    if style and style.bold:
        looks["font-weight"] = "bold"
    if style and style.italic:
        looks["font-style"] = "italic"
    if style and style.underline:
        looks["text-decoration"] = "underline"
    return looks
