"""Figures: SVG elements on a canvas of some size, put together above and beside each other.

A figure refers to nothing outside itself, has no ids and no style sheet: any number of them stand on one
page. Its text is ``currentColor``: the page's own where the figure is part of a page, a grey that is
legible on white and on black where it is a file.
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
"""Width of a character of a monospaced font, in font sizes."""

MARGIN = 8
LEAST_ZOOM = 0.7
"""How small a narrow page may make a figure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A part of a drawing."""

    width: float
    """In pixels, as all lengths."""
    height: float
    parts: tuple[Element, ...]
    title: str = ""
    """What it is, for those who do not see it."""


def element(tag: str, *children: Element, words: str | None = None, **attributes: float | str) -> Element:
    """Return an SVG element.

    Args:
        tag: Its name.
        *children: What is in it.
        words: The text in it; its lines are made printable, so that XML can hold them.
        **attributes: Its attributes, ``_`` for ``-`` in their names; numbers are rounded to tenths,
            texts are made printable.
    """
    made = Element(tag, {name.replace("_", "-"): _attribute(value) for name, value in attributes.items()})
    made.text = None if words is None else "\n".join(map(printable, words.split("\n")))
    made.extend(children)
    return made


def _attribute(value: float | str) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, **attributes: float | str) -> Element:
    """Return a line of text whose baseline is at ``y``, all its blanks kept."""
    if "  " in words:
        attributes["style"] = "white-space:pre"
    return element("text", words=words, x=x, y=y, **attributes)


def text_width(words: str, size: float = FONT_SIZE) -> float:
    """Return how wide a line of text is."""
    return cell_len(words) * CHARACTER * size


def moved(figure: Figure, x: float, y: float) -> Element:
    """Return a figure's elements, moved as one."""
    if not (x or y):
        return element("g", *figure.parts)
    return element("g", *figure.parts, transform=f"translate({_attribute(x)} {_attribute(y)})")


def above(figures: Sequence[Figure], gap: float = MARGIN) -> Figure:
    """Return figures as one, each under the one before."""
    *tops, bottom = accumulate((figure.height + gap for figure in figures), initial=0.0)
    width = max((figure.width for figure in figures), default=0.0)
    return _together(figures, [(0.0, top) for top in tops], width, bottom - gap)


def beside(figures: Sequence[Figure], gap: float = MARGIN) -> Figure:
    """Return figures as one, each to the right of the one before."""
    *lefts, right = accumulate((figure.width + gap for figure in figures), initial=0.0)
    height = max((figure.height for figure in figures), default=0.0)
    return _together(figures, [(left, 0.0) for left in lefts], right - gap, height)


def _together(
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
    """Return a figure as an SVG document, or as an element for a page.

    Args:
        figure: What to write.
        title: What it is, for those who do not see it, where the figure does not say.
        color: The colour of text and lines; the page's own when None.
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
        # As wide as its page, but not so small that it cannot be read: then it is moved sideways.
        wide = f"max(100%,{LEAST_ZOOM * width:.0f}px)"
        root.set("style", f"display:block;max-width:{wide};height:auto;margin:{MARGIN}px 0")
    else:
        root.set("color", color)
    return ElementTree.tostring(root, encoding="unicode")
