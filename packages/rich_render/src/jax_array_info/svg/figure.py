"""Figures: SVG elements with a size, which can be stacked or placed side by side.

A figure has no links, ids or style sheet, so a page can hold any number of them. Its text is
``currentColor``: the text color of the page around it or, in a file, a grey that is legible on white and on
black.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from xml.etree import ElementTree

from rich.cells import cell_len

from jax_array_info_core.text import printable

from .page_colors import GREY

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
    return _combined(figures, [(left, 0.0) for left in lefts], right - gap, height)


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
