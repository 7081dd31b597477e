"""Axes of an SVG: names, lengths and tick numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..svg import Element, text, text_width
from .subject import Subject
from .svg_plan import Span

SIZE = 10
"""Font size, in pixels."""
LINE = 1.5 * SIZE
NEAR = 0.4 * SIZE
"""Distance between the numbers and the cells."""
ROOM_ACROSS = 2 * LINE + NEAR
"""Height of an axis above the cells."""


class Axis(NamedTuple):
    """An axis above or to the left of the cells, whose corner is at (0, 0)."""

    elements: list[Element]
    left: float
    """Extent to the left of the cells, in pixels."""
    length: float
    """Distance from the corner of the cells to the end of the axis, in pixels."""


def axis_across(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis above the columns that are drawn."""
    title, numbers = _words(subject, axis, spans)
    end = max(spans[-1].end, text_width(title, SIZE))
    places = spaced([(words, at, text_width(words, SIZE) + SIZE / 2) for words, at in numbers])
    elements = [text(at, -NEAR, words, font_size=SIZE, text_anchor="middle") for words, at in places]
    elements.append(text(end / 2, -NEAR - LINE, title, font_size=SIZE, text_anchor="middle"))
    # The first and last numbers are centered on the edges of the cells, and so extend beyond them.
    (first, start), (last, stop) = numbers[0], numbers[-1]
    left = max(text_width(first, SIZE) / 2 - start, 0)
    return Axis(elements, left, max(end, stop + text_width(last, SIZE) / 2))


def axis_down(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis to the left of the rows that are drawn."""
    title, numbers = _words(subject, axis, spans)
    end = max(spans[-1].end, text_width(title, SIZE))
    left = LINE + 2 * NEAR + max(text_width(words, SIZE) for words, _ in numbers)
    places = spaced([(words, at, 1.1 * SIZE) for words, at in numbers])
    elements = [
        text(-NEAR, at + 0.35 * SIZE, words, font_size=SIZE, text_anchor="end") for words, at in places
    ]
    # Left of the numbers, turned by 90°.
    turned = f"translate({NEAR - left:.1f} {end / 2:.1f}) rotate(-90)"
    elements.append(text(0, 0.75 * SIZE, title, font_size=SIZE, text_anchor="middle", transform=turned))
    return Axis(elements, left, end)


def _words(subject: Subject, axis: int, spans: Sequence[Span]) -> tuple[str, list[tuple[str, float]]]:
    """Return the title of an axis, and its numbers with their positions in pixels.

    The axis of an array has a number at each shard bound, the axis of a mesh one for each device.
    """
    title = f"{subject.names[axis]}: {subject.layout.shape[axis]}{subject.over_words(axis)}"
    if subject.is_mesh:
        return title, [(str(span.shard), span.middle) for span in spans]
    slices = [subject.layout.axis_slice(axis, span.shard) for span in spans]
    bounds = [(str(piece.start), span.start) for piece, span in zip(slices, spans, strict=True)]
    return title, [*bounds, (str(slices[-1].stop), spans[-1].end)]


def spaced(numbers: Sequence[tuple[str, float, float]]) -> list[tuple[str, float]]:
    """Return the first and last numbers and as many others as fit, with their positions.

    Args:
        numbers: Text, position and size along the axis of each number.
    """
    chosen = [numbers[0]]
    *between, last = numbers[1:] or numbers
    for number in between:
        if _apart(chosen[-1], number) and _apart(number, last):
            chosen.append(number)
    if _apart(chosen[-1], last):
        chosen.append(last)
    return [(words, at) for words, at, _ in chosen]


def _apart(one: tuple[str, float, float], other: tuple[str, float, float]) -> bool:
    return other[1] - one[1] >= (one[2] + other[2]) / 2
