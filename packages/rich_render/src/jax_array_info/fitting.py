"""How much of a picture fits: which rows, columns and facets are shown, how large, and how text wraps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

Fitted = list[tuple[int, int]]
"""Which rows or columns are shown, each with its size in characters without borders."""


MAX_TEXT = 2000
"""Longer names, labels and paths are clipped."""


def clipped(text: str) -> str:
    """Return a text whose middle is left out where it is longer than 2,000 characters.

    To be called before a text is measured: rich takes seconds for one of 10 MB.
    """
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]} ... {text[-MAX_TEXT // 4 :]}"


def spread(count: int, most: int) -> list[int]:
    """Return at most so many of ``range(count)``, evenly spread, first and last among them."""
    if count <= most:
        return list(range(count))
    if most < 2:
        return [0]
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


def fit(wanted: Sequence[int], needed: Sequence[int], limit: int, border: int) -> Fitted:
    """Return which rows or columns to show, and their sizes, so that they fit a limit with their borders.

    As large as wanted if that fits; else the largest made smaller, down to what their labels need;
    else as many as fit that, evenly spread. Two are always shown where there are two.
    """
    everything = range(len(wanted))

    def fits(chosen: Sequence[int], cap: int) -> Fitted | None:
        sizes = [max(needed[item], min(wanted[item], cap)) for item in chosen]
        total = sum(sizes) + border * (len(sizes) + 1)
        return list(zip(chosen, sizes, strict=True)) if total <= limit else None

    if fits(everything, 0):
        # The largest cap that fits, by bisection: a larger one never takes less room.
        low, high = 0, max(wanted)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(everything, middle) else (low, middle - 1)
        return fits(everything, low) or []
    for count in range(min(len(wanted) - 1, limit), 2, -1):
        if fitted := fits(spread(len(wanted), count), 0):
            return fitted
    return [(item, needed[item]) for item in spread(len(wanted), 2)]


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
