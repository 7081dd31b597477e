"""The axes of a drawing: their names and lengths, and where they are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis beside or over the cells, which begin at 0, 0."""

    title: str
    """Its name and length."""
    cuts: list[tuple[str, float]]
    """The numbers along it, each with its place in pixels."""
    length: float
    """In pixels."""

    def across(self) -> Iterator[Element]:
        """Yield its elements over the cells."""
        for words, at in spaced([(words, at, text_width(words, SIZE) + SIZE / 2) for words, at in self.cuts]):
            yield text(at, -NEAR, words, font_size=SIZE, text_anchor="middle")
        yield text(self.title_middle, -NEAR - LINE, self.title, font_size=SIZE, text_anchor="middle")

    def down(self) -> Iterator[Element]:
        """Yield its elements to the left of the cells."""
        for words, at in spaced([(words, at, 1.1 * SIZE) for words, at in self.cuts]):
            yield text(-NEAR, at + 0.35 * SIZE, words, font_size=SIZE, text_anchor="end")
        place = f"translate({NEAR - self.room_of_down:.1f} {self.title_middle:.1f}) rotate(-90)"
        # In front of the numbers, read from below.
        yield text(0, 0.75 * SIZE, self.title, font_size=SIZE, text_anchor="middle", transform=place)

    @property
    def title_middle(self) -> float:
        """Where the middle of its title is: that of the cells, or further on where the title is longer."""
        return max(self.length, self.title_length) / 2

    @property
    def title_length(self) -> float:
        """How long its title is, in pixels."""
        return text_width(self.title, SIZE)

    @property
    def underhang(self) -> float:
        """How far its first number reaches before the cells."""
        words, at = self.cuts[0]
        return max(text_width(words, SIZE) / 2 - at, 0)

    @property
    def overhang(self) -> float:
        """How far its last number reaches beyond the cells."""
        words, at = self.cuts[-1]
        return max(at + text_width(words, SIZE) / 2 - self.length, 0)

    @property
    def room_of_down(self) -> float:
        """How much it takes to the left of the cells."""
        return LINE + 2 * NEAR + max(text_width(words, SIZE) for words, _ in self.cuts)


def axis_of(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis of what is drawn, with the rows or columns that are drawn of it.

    An array's axis has a number at each cut, a mesh's one for each device.
    """
    title = f"{subject.names[axis]}: {subject.layout.shape[axis]}{subject.over_words(axis)}"
    if subject.is_mesh:
        return Axis(title, [(str(span.shard), span.middle) for span in spans], spans[-1].end)
    slices = [subject.layout.axis_slice(axis, span.shard) for span in spans]
    cuts = [(str(piece.start), span.start) for piece, span in zip(slices, spans, strict=True)]
    return Axis(title, [*cuts, (str(slices[-1].stop), spans[-1].end)], spans[-1].end)


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
