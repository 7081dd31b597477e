"""Colours for cells: the same devices, the same colour."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from rich.color import Color
from rich.style import Style

from . import style

ColorMap = Callable[[float], Sequence[float]]
"""From 0…1 to red, green, blue (and alpha) in 0…1, as matplotlib's colormaps."""


def cell_styles(
    grids: Sequence[Sequence[Sequence[Hashable]]], color_map: ColorMap | None
) -> dict[Hashable, Style]:
    """Return a style for each holder that stands in the cells of some grids.

    Of our own palette a holder takes the next colour that neither of the cells to its left and above
    has; a colour map is divided evenly among the holders.
    """
    if color_map is not None:
        holders = list(dict.fromkeys(holder for grid in grids for row in grid for holder in row))
        positions = np.linspace(0, 1, len(holders)).tolist()
        mapped = (Color.from_rgb(*(255 * part for part in color_map(at)[:3])) for at in positions)
        return {holder: readable(color) for holder, color in zip(holders, mapped, strict=True)}
    chosen: dict[Hashable, int] = {}
    latest = -1
    for grid in grids:
        above: Sequence[Hashable] = ()
        for row in grid:
            for column, holder in enumerate(row):
                if holder not in chosen:
                    beside = [*row[max(column - 1, 0) : column], *above[column : column + 1]]
                    taken = {chosen.get(other) for other in beside}
                    latest = next(
                        number % len(style.PALETTE)
                        for number in range(latest + 1, latest + 5)
                        if number % len(style.PALETTE) not in taken
                    )
                    chosen[holder] = latest
            above = row
    return {holder: readable(Color.parse(style.PALETTE[number])) for holder, number in chosen.items()}


def readable(background: Color) -> Style:
    """Return a background with black or white text on it, whichever contrasts more.

    By relative luminance, https://www.w3.org/TR/WCAG21/#dfn-relative-luminance, both contrast alike at 0.179.
    """
    return Style(color="black" if luminance(background) > 0.179 else "white", bgcolor=background)


def luminance(color: Color) -> float:
    """Return the relative luminance of a colour, 0 for black and 1 for white."""
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in color.get_truecolor())
    )
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
