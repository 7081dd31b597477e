"""The axes of an SVG: their names, their lengths, and the numbers along them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..svg.figure import Element, text, text_width
from .subject import Subject
from .svg_plan import Span

SIZE = 10
"""Font size, in pixels."""
LINE = 1.5 * SIZE
NEAR = 0.4 * SIZE
"""How far the numbers are from the cells."""
ROOM_ACROSS = 2 * LINE + NEAR
"""How much an axis takes over the cells."""


class Axis(NamedTuple):
    """An axis over or beside the cells, which begin at 0, 0."""

    elements: list[Element]
    left: float
    """How far it reaches to the left of the cells, in pixels."""
    length: float
    """How far its end is from where the cells begin."""


def axis_across(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis over the columns that are drawn of it."""
    title, numbers = _words(subject, axis, spans)
    end = max(spans[-1].end, text_width(title, SIZE))
    places = spaced([(words, at, text_width(words, SIZE) + SIZE / 2) for words, at in numbers])
    elements = [text(at, -NEAR, words, font_size=SIZE, text_anchor="middle") for words, at in places]
    elements.append(text(end / 2, -NEAR - LINE, title, font_size=SIZE, text_anchor="middle"))
    # Half of the first and of the last number may be beyond the cells.
    (first, start), (last, stop) = numbers[0], numbers[-1]
    left = max(text_width(first, SIZE) / 2 - start, 0)
    return Axis(elements, left, max(end, stop + text_width(last, SIZE) / 2))


def axis_down(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis to the left of the rows that are drawn of it."""
    title, numbers = _words(subject, axis, spans)
    end = max(spans[-1].end, text_width(title, SIZE))
    left = LINE + 2 * NEAR + max(text_width(words, SIZE) for words, _ in numbers)
    places = spaced([(words, at, 1.1 * SIZE) for words, at in numbers])
    elements = [
        text(-NEAR, at + 0.35 * SIZE, words, font_size=SIZE, text_anchor="end") for words, at in places
    ]
    # In front of the numbers, read from below.
    turned = f"translate({NEAR - left:.1f} {end / 2:.1f}) rotate(-90)"
    elements.append(text(0, 0.75 * SIZE, title, font_size=SIZE, text_anchor="middle", transform=turned))
    return Axis(elements, left, end)


def _words(subject: Subject, axis: int, spans: Sequence[Span]) -> tuple[str, list[tuple[str, float]]]:
    """Return the name and length of an axis, and its numbers, each with its place in pixels.

    An array's axis has a number at each cut, a mesh's one for each device.
    """
    title = f"{subject.names[axis]}: {subject.layout.shape[axis]}{subject.over_words(axis)}"
    if subject.is_mesh:
        return title, [(str(span.shard), span.middle) for span in spans]
    slices = [subject.layout.axis_slice(axis, span.shard) for span in spans]
    cuts = [(str(piece.start), span.start) for piece, span in zip(slices, spans, strict=True)]
    return title, [*cuts, (str(slices[-1].stop), spans[-1].end)]


def spaced(numbers: Sequence[tuple[str, float, float]]) -> list[tuple[str, float]]:
    """Return the numbers that have room, each with its place: first and last, and of those between what fits.

    Args:
        numbers: Each with its place and its size along the axis.
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
