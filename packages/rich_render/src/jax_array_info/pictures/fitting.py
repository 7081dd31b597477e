"""Sizes, ratios and text that fit into the room of a picture, in characters or in pixels."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

MAX_TEXT = 2000
"""Longer names, labels and paths are clipped."""


def clipped(text: str) -> str:
    """Return a text whose middle is left out where it is longer than 2,000 characters.

    To be called before a text is measured: rich takes seconds for one of 10 MB.
    """
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]} ... {text[-MAX_TEXT // 4 :]}"


def first_and_last(count: int, most: int) -> list[int]:
    """Return at most so many of ``range(count)``: all, or the first and the last with one gap between them.

    >>> first_and_last(9, 9), first_and_last(9, 5)
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 7, 8])
    """
    most = max(most, 1)
    if count <= most:
        return list(range(count))
    return [*range(most - most // 2), *range(count - most // 2, count)]


def fit(wanted: Sequence[int], needed: Sequence[int], limit: int) -> list[int] | None:
    """Return sizes that together are within a limit: as wanted, or the largest made smaller as far as needed.

    None where what is needed is beyond the limit.
    """

    def sizes(cap: int) -> list[int]:
        return [max(need, min(want, cap)) for want, need in zip(wanted, needed, strict=True)]

    if sum(needed) > limit:
        return None
    # The largest cap that fits: a larger one never takes less room.
    caps = range(max(wanted, default=0) + 1)
    return sizes(bisect_right(caps, limit, key=lambda cap: sum(sizes(cap))) - 1)


def compressed(ratio: float, most: float, doubling: float) -> float:
    """Return a ratio of lengths, compressed by its logarithm beyond the most that is drawn as it is.

    Args:
        ratio: The ratio, 0 or larger.
        most: The largest that stays, and its inverse the smallest.
        doubling: How much is added each time that a larger ratio doubles.
    """
    if 0 < ratio < 1:
        return 1 / compressed(1 / ratio, most, doubling)
    return ratio if ratio <= most else most + doubling * math.log2(ratio / most)


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines, broken after blanks and commas; only what is longer than a line is cut up.

    Widths are those on a terminal, where many characters of Asian scripts take two places.
    """
    lines = [""]
    for piece in re.findall(r"[^\s,]*,?\s*", text):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        if cell_len(lines[-1].rstrip()) > width:
            lines[-1:] = chop_cells(lines[-1].rstrip(), width)
    return [line.rstrip() for line in lines]
