"""Labels that fit the cells of an SVG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from ..svg import CHARACTER
from .fitting import wrapped
from .labels import Labels
from .palette import DeviceGroup

SIZES = (12, 11, 10, 9, 8)
LINE = 1.2
"""Line height of a label, relative to its font size."""
_ONE_LINE = 16


def room_for(labels: Iterable[str]) -> tuple[float, float]:
    """Return the width and height of a cell for the longest label, which may take several lines."""
    longest = max(map(cell_len, labels), default=0)
    lines = -(-longest // _ONE_LINE)
    return min(longest, _ONE_LINE) * CHARACTER * SIZES[0] + 12, lines * LINE * SIZES[0] + 8


def fitting_labels(
    formats: Sequence[Labels], groups: Sequence[DeviceGroup], width: float, height: float
) -> tuple[Labels | None, float]:
    """Return the first label format that fits the cells, and its font size; None if no format fits.

    A format that fits in one line is preferred to one that needs several.
    """
    for most_lines in (1, height):
        for labels in formats:
            for size in SIZES:
                lines = (label_lines(labels.write(group), width, height, size) for group in groups)
                if all(0 < len(each) <= most_lines for each in lines):
                    return labels, size
    return None, SIZES[-1]


def label_lines(label: str, width: float, height: float, size: float) -> list[str]:
    """Return a label in lines that fit a cell; an empty list if they do not fit."""
    characters = int((width - 4) / (CHARACTER * size))
    words = re.findall(r"[^\s,]+,?", label)
    if not words or max(map(cell_len, words)) > characters:
        return []
    lines = wrapped(label, characters)
    return lines if len(lines) * LINE * size <= height - 2 else []
