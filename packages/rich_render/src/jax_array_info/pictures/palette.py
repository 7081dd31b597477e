"""Colors that show the position of a device in the mesh.

The hue follows the largest mesh axis and the lightness the next; further axes subdivide each step of
lightness. Without a mesh, devices are in the order of their ids. Rows and columns of a mesh are gradients,
and an array that is replicated over an axis does not vary along its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.color import Color
from rich.style import Style

from jax_array_info_core.base.text import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

ColorMap = Callable[[float], Sequence[float]]
"""Function from 0…1 to red, green, blue (and alpha) in 0…1, like matplotlib's colormaps."""

DeviceGroup = tuple[int, ...]
"""Ids of the devices that hold a shard: its replicas."""

HUES = (20.0, 340.0)
"""First and last hue in degrees, from red over green and blue to purple."""
LIGHTNESSES = (0.81, 0.62)
"""Lightest and darkest lightness. Black text is legible on both, also with only 256 colors."""
CHROMA = 0.115
CHROMA_OF_ENDS = 0.09
"""Chroma at the lightest and darkest colors, the most that sRGB has for every hue."""

_ROUNDING = 1e-6


def group_styles(
    groups: Iterable[DeviceGroup], mesh: NDArray[np.int64], color_map: ColorMap | None = None
) -> dict[DeviceGroup, Style]:
    """Return a background color and a legible text color for each set of devices in a document.

    Devices that hold replicas of one shard get the color at the mean of their positions. A color map is
    divided evenly among the sets.

    Args:
        groups: Devices of every cell of the document, in order.
        mesh: Device ids in the shape of the mesh of the document.
        color_map: Colors to use instead.
    """
    every = list(dict.fromkeys(groups))
    if color_map is None:
        colors = [place_color(*place) for place in _places(every, mesh)]
    else:
        colors = [mapped_color(color_map, at) for at in np.linspace(0, 1, len(every)).tolist()]
    return dict(zip(every, map(readable, colors), strict=True))


def _places(groups: Iterable[DeviceGroup], mesh: NDArray[np.int64]) -> Iterator[tuple[float, float]]:
    """Yield the position of each set of devices along the hues and the lightnesses, from 0 to 1.

    An axis of n devices has n steps. A device is in the middle of its step, a set at the mean of its devices.
    """
    by_size = sorted(range(mesh.ndim), key=lambda axis: -mesh.shape[axis])
    ids = mesh.transpose(by_size).reshape(-1)
    size = max((1, *mesh.shape))
    steps = max(ids.size // size, 1)
    order = np.argsort(ids)
    for group in groups:
        along, across = np.divmod(order[np.searchsorted(ids, group, sorter=order)], steps)
        yield (float(along.mean()) + 0.5) / size, (float(across.mean()) + 0.5) / steps


def place_color(along: float, across: float) -> Color:
    """Return the color of a position in the mesh, chosen in OKLCH.

    Args:
        along: Position along the hues, from 0 to 1.
        across: Position along the lightnesses, from 0 to 1.
    """
    hue = HUES[0] + (HUES[1] - HUES[0]) * along
    lightness = LIGHTNESSES[0] + (LIGHTNESSES[1] - LIGHTNESSES[0]) * across
    chroma = CHROMA + (CHROMA_OF_ENDS - CHROMA) * abs(2 * across - 1)
    return _oklch_color(lightness, chroma, math.radians(hue))


def _oklch_color(lightness: float, chroma: float, hue: float) -> Color:
    """Return an OKLCH color in sRGB, clipped to its gamut.

    Björn Ottosson, A perceptual color space for image processing, https://bottosson.github.io/posts/oklab/
    """
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    encoded = (
        12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
        for part in (min(max(part, 0.0), 1.0) for part in linear)
    )
    return Color.from_rgb(*(round(255 * part) for part in encoded))


def mapped_color(color_map: ColorMap, at: float) -> Color:
    """Return the color of a color map at a position from 0 to 1.

    Raises:
        TypeError: If the color map is not callable.
        ValueError: If its return value is not a color.
    """
    expected = "red, green and blue from 0 to 1, like matplotlib's colormaps"
    if not callable(color_map):
        raise TypeError(f"color_map must be a function that returns {expected}, got {color_map!r}")
    returned = color_map(at)
    try:
        parts = None if isinstance(returned, (str, bytes)) else [float(part) for part in returned]
    except (TypeError, ValueError):
        parts = None
    # Rounding errors may put a component slightly outside of 0…1.
    if parts is None or len(parts) < 3 or not all(-_ROUNDING <= part <= 1 + _ROUNDING for part in parts[:3]):
        raise ValueError(f"color_map must return {expected}, got {printable(repr(returned))} for {at}")
    return Color.from_rgb(*(255 * min(max(part, 0.0), 1.0) for part in parts[:3]))


def check_color_map(color_map: ColorMap | None) -> None:
    """Check a color map at 0 and 1, with the errors of ``mapped_color``."""
    if color_map is not None:
        for at in (0.0, 1.0):
            mapped_color(color_map, at)


def readable(background: Color) -> Style:
    """Return a style with black or white text on a background, whichever has more contrast.

    Both have the same contrast at a relative luminance of 0.179,
    https://www.w3.org/TR/WCAG21/#dfn-relative-luminance. The text colors are RGB values, because themes
    redefine a terminal's named colors.
    """
    return Style(color="#000000" if luminance(background) > 0.179 else "#ffffff", bgcolor=background)


def luminance(color: Color) -> float:
    """Return the relative luminance of a color, 0 for black and 1 for white."""
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in color.get_truecolor())
    )
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
