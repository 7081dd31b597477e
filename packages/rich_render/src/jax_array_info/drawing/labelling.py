"""What stands in the cells, where there is room for it: who holds them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from jax_array_info_core import ShardingLayout
from jax_array_info_core.units import format_device_ids

from ..arrangement import Labeller
from ..fitting import wrapped
from .figures import CHARACTER

SIZES = (12, 11, 10, 9, 8)
LINE = 1.2
"""Height of a line of a label, in font sizes."""
LISTED_WIDTH = 40
"""Two lines of this many characters list the devices of a cell; more are told by their number."""
_ONE_LINE = 16

Holder = tuple[int, ...]
"""Ids of the devices that hold a shard."""

Labels = dict[Holder, str]


def label_styles(layout: ShardingLayout, holders: Iterable[Holder]) -> list[Labels]:
    """Return ways to label some holders, the most telling first: with processes, with the platform, ids."""
    every = list(holders)
    styles = []
    for owners in (True, False) if layout.processes else (False,):
        labeller = Labeller(layout, LISTED_WIDTH, owners=owners)
        styles.append({holder: labeller(holder) for holder in every})
    if max(map(len, every)) <= LISTED_WIDTH:
        styles.append({holder: format_device_ids(holder) for holder in every})
    return styles


def room_for(labels: Labels) -> tuple[float, float]:
    """Return how large a cell must be for the longest label, in one line or, if that is long, in several."""
    longest = max(map(cell_len, labels.values()), default=0)
    lines = -(-longest // _ONE_LINE)
    return min(longest, _ONE_LINE) * CHARACTER * SIZES[0] + 12, lines * LINE * SIZES[0] + 8


def fitting_labels(styles: Sequence[Labels], width: float, height: float) -> tuple[Labels, float]:
    """Return the first of some styles that fits cells of a size, and its font size; else no labels."""
    for labels in styles:
        for size in SIZES:
            if all(label_lines(label, width, height, size) for label in labels.values()):
                return labels, size
    return {}, SIZES[-1]


def label_lines(label: str, width: float, height: float, size: float) -> list[str]:
    """Return a label in lines that fit a cell; none where they do not."""
    characters = int((width - 4) / (CHARACTER * size))
    words = re.findall(r"[^\s,]+,?", label)
    if not words or max(map(cell_len, words)) > characters:
        return []
    lines = wrapped(label, characters)
    return lines if len(lines) * LINE * size <= height - 2 else []
