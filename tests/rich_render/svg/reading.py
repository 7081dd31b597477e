"""Helpers that parse drawings."""

import re
from typing import NamedTuple
from xml.etree import ElementTree

from rich.color import Color

from jax_array_info.pictures.palette import luminance

SVG = "{http://www.w3.org/2000/svg}"


class Cell(NamedTuple):
    """A cell of a drawing."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str


class Words(NamedTuple):
    """A line of text in a drawing."""

    text: str
    fill: str


def parsed(svg):
    """Return the root of an SVG document, which must be well-formed."""
    return ElementTree.fromstring(svg)


def cells(svg):
    """Return the cells of a drawing, with their positions on the canvas."""
    found = []

    def visit(element, x, y, title=None):
        if move := re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", "")):
            x, y = x + float(move[1]), y + float(move[2])
        title = element.findtext(f"{SVG}title", title)
        if element.tag == f"{SVG}rect":
            place = (float(element.get(name, 0)) for name in ("x", "y", "width", "height"))
            left, top, width, height = place
            found.append(Cell(x + left, y + top, width, height, element.get("fill"), title))
        for child in element:
            visit(child, x, y, title)

    visit(parsed(svg), 0, 0)
    return found


def texts(svg):
    """Return the visible lines of text of a drawing, without tooltips."""
    return [
        Words(element.text, element.get("fill", "currentColor")) for element in parsed(svg).iter(f"{SVG}text")
    ]


def words(svg):
    """Return the visible text of a drawing, line by line."""
    return [line.text for line in texts(svg)]


def extent(drawn):
    """Return the total width and height of the cells."""
    right, bottom = max(cell.x + cell.width for cell in drawn), max(cell.y + cell.height for cell in drawn)
    return right - min(cell.x for cell in drawn), bottom - min(cell.y for cell in drawn)


def contrast(one, other):
    """Return the contrast ratio of two colors, from 1 to 21, https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio."""
    full = {"#fff": "#ffffff", "#000": "#000000"}
    dark, light = sorted(luminance(Color.parse(full.get(color, color))) for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


def listed(devices):
    """Return the device ids of a label, with runs expanded."""
    ids = []
    for piece in re.sub(r"^\D+", "", devices).split(","):
        start, stop, step = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", piece).groups()
        ids += range(int(start), int(stop or start) + 1, int(step or 1))
    return ids
