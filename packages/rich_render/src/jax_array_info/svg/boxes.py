"""Box-drawing characters as SVG lines, which join in every font."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from .figure import CHARACTER, FONT_SIZE, Element, element

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
