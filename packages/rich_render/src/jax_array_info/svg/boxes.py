"""Box characters → lines, which meet whatever the font is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from .figure import CHARACTER, FONT_SIZE, Element, element

LINE_HEIGHT = 1.2 * FONT_SIZE
STEP = CHARACTER * FONT_SIZE
"""From one character to the next."""

ARMS = {
    "─": "0101", "━": "0202", "│": "1010", "┃": "2020",
    "┌": "0110", "┐": "0011", "└": "1100", "┘": "1001",
    "╭": "0110", "╮": "0011", "╰": "1100", "╯": "1001",
    "├": "1110", "┤": "1011", "┬": "0111", "┴": "1101", "┼": "1111",
    "┏": "0220", "┓": "0022", "┗": "2200", "┛": "2002",
    "┣": "2220", "┫": "2022", "┳": "0222", "┻": "2202", "╋": "2222",
    "┡": "2210", "┩": "2012", "╇": "2212", "╈": "1222",
}  # fmt: skip
"""Where the lines of a box character go: up, right, down, left; 2 where they are heavy."""


class Boxes:
    """Gathers box characters, whose arms are half a character long, as lines that are as long as they go."""

    def __init__(self) -> None:
        # By direction, weight and line of characters: which half characters it goes through.
        self._arms: dict[tuple[str, str, int], set[int]] = defaultdict(set)

    def add(self, character: str, column: int, line: int) -> None:
        """Add a box character at a place in the grid of characters."""
        up, right, down, left = tuple(ARMS[character])
        self._arms["v", up, column].add(2 * line)
        self._arms["v", down, column].add(2 * line + 1)
        self._arms["h", left, line].add(2 * column)
        self._arms["h", right, line].add(2 * column + 1)

    def elements(self) -> Iterator[Element]:
        """Yield the lines, those of each weight as one element."""
        for weight in "12":
            strokes = [
                stroke
                for (direction, of, place), halves in self._arms.items()
                if of == weight
                for stroke in _strokes(direction, place, sorted(halves))
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


def _strokes(direction: str, place: int, halves: Sequence[int]) -> Iterator[str]:
    """Yield a stroke for each run of half characters."""
    start = 0
    for stop in range(1, len(halves) + 1):
        if stop < len(halves) and halves[stop] == halves[stop - 1] + 1:
            continue
        first, last = halves[start], halves[stop - 1] + 1
        if direction == "h":
            y = (place + 0.5) * LINE_HEIGHT
            yield f"M{first * STEP / 2:.1f} {y:.1f}H{last * STEP / 2:.1f}"
        else:
            x = (place + 0.5) * STEP
            yield f"M{x:.1f} {first * LINE_HEIGHT / 2:.1f}V{last * LINE_HEIGHT / 2:.1f}"
        start = stop
