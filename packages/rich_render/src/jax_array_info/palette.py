"""Colours for cells: the same devices, the same colour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from rich.color import Color
from rich.style import Style

from jax_array_info_core.units import printable

from . import style

ColorMap = Callable[[float], Sequence[float]]
"""From 0…1 to red, green, blue (and alpha) in 0…1, as matplotlib's colormaps."""

_ROUNDING = 1e-6


def cell_styles(
    grids: Sequence[Sequence[Sequence[Hashable]]], color_map: ColorMap | None
) -> dict[Hashable, Style]:
    """Return a style for each holder that stands in the cells of some grids.

    Of our own palette a holder takes the next colour that none of those has which are beside, above or
    below it in any of the grids; a colour map is divided evenly among the holders.
    """
    holders = list(dict.fromkeys(holder for grid in grids for row in grid for holder in row))
    if color_map is not None:
        positions = np.linspace(0, 1, len(holders)).tolist()
        mapped = (mapped_color(color_map, at) for at in positions)
        return {holder: readable(color) for holder, color in zip(holders, mapped, strict=True)}
    neighbours = _neighbours(grids)
    count = len(style.PALETTE)
    chosen: dict[Hashable, int] = {}
    latest = -1
    for holder in holders:
        taken = {chosen.get(other) for other in neighbours[holder]}
        following = [(latest + step) % count for step in range(1, count + 1)]
        # Among very many neighbours all colours may be taken.
        latest = next((number for number in following if number not in taken), following[0])
        chosen[holder] = latest
    return {holder: readable(Color.parse(style.PALETTE[number])) for holder, number in chosen.items()}


def mapped_color(color_map: ColorMap, at: float) -> Color:
    """Return the colour that a colour map has at a place from 0 to 1.

    Raises:
        TypeError: it is no function.
        ValueError: what it returns is no colour.
    """
    wanted = "red, green and blue from 0 to 1, as matplotlib's colormaps do"
    if not callable(color_map):
        raise TypeError(f"color_map is a function of a number that returns {wanted}, got {color_map!r}")
    returned = color_map(at)
    try:
        parts = None if isinstance(returned, (str, bytes)) else [float(part) for part in returned]
    except (TypeError, ValueError):
        parts = None
    # What is computed may be beyond 0 and 1 by a rounding.
    if parts is None or len(parts) < 3 or not all(-_ROUNDING <= part <= 1 + _ROUNDING for part in parts[:3]):
        raise ValueError(f"color_map returned {printable(repr(returned))} for {at}: it must return {wanted}")
    return Color.from_rgb(*(255 * min(max(part, 0.0), 1.0) for part in parts[:3]))


def check_color_map(color_map: ColorMap | None) -> None:
    """Raise, as ``mapped_color`` does, for what returns no colours for the first and last of some holders."""
    if color_map is not None:
        for at in (0.0, 1.0):
            mapped_color(color_map, at)


def _neighbours(grids: Sequence[Sequence[Sequence[Hashable]]]) -> Mapping[Hashable, set[Hashable]]:
    """Return for each holder which others stand beside, above or below it."""
    found: dict[Hashable, set[Hashable]] = defaultdict(set)
    for grid in grids:
        beside = [pair for row in grid for pair in pairwise(row)]
        above = [pair for upper, lower in pairwise(grid) for pair in zip(upper, lower, strict=True)]
        for one, other in (*beside, *above):
            found[one].add(other)
            found[other].add(one)
    return found


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
