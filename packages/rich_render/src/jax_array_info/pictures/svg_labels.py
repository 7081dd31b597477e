"""What stands in the cells, where there is room for it: who holds them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from jax_array_info_core import ShardingLayout

from ..svg.figure import CHARACTER
from .fitting import wrapped
from .labels import label_ways
from .palette import Holder

SIZES = (12, 11, 10, 9, 8)
LINE = 1.2
"""Height of a line of a label, in font sizes."""
LISTED_WIDTH = 40
"""Two lines of this many characters list the devices of a cell; more are told by their number."""
_ONE_LINE = 16

Names = dict[Holder, str]
"""The label of each holder."""


@dataclass(frozen=True, slots=True)
class Labelling:
    """A way to label the cells of a drawing."""

    names: Names
    notes: Sequence[str] = ()
    """What the labels leave out, said once."""
    size: float = SIZES[-1]
    """Font size, in pixels."""


def labellings(layout: ShardingLayout, holders: Iterable[Holder]) -> list[Labelling]:
    """Return ways to label some holders, the most telling first: with processes, with the platform, ids."""
    every = list(holders)
    ways = label_ways(layout, LISTED_WIDTH, owners=True)
    return [Labelling({holder: way.write(holder) for holder in every}, way.notes) for way in ways]


def room_for(names: Names) -> tuple[float, float]:
    """Return how large a cell must be for the longest label, in one line or, if that is long, in several."""
    longest = max(map(cell_len, names.values()), default=0)
    lines = -(-longest // _ONE_LINE)
    return min(longest, _ONE_LINE) * CHARACTER * SIZES[0] + 12, lines * LINE * SIZES[0] + 8


def fitting_labelling(ways: Sequence[Labelling], width: float, height: float) -> Labelling:
    """Return the first of some ways that fits cells of a size in one line, else in several, in its font size.

    Without labels where none fits.
    """
    for most_lines in (1, height):
        for way in ways:
            for size in SIZES:
                lines = [label_lines(label, width, height, size) for label in way.names.values()]
                if all(0 < len(each) <= most_lines for each in lines):
                    return replace(way, size=size)
    return Labelling({})


def label_lines(label: str, width: float, height: float, size: float) -> list[str]:
    """Return a label in lines that fit a cell; none where they do not."""
    characters = int((width - 4) / (CHARACTER * size))
    words = re.findall(r"[^\s,]+,?", label)
    if not words or max(map(cell_len, words)) > characters:
        return []
    lines = wrapped(label, characters)
    return lines if len(lines) * LINE * size <= height - 2 else []
