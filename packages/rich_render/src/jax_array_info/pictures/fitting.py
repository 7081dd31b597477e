"""Labels of cells, and sizes, ratios and text that fit the available space, in characters or pixels."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from jax_array_info_core import format_devices
from jax_array_info_core.base.quantities import format_device_ids
from jax_array_info_core.base.text import printable

from .palette import DeviceGroup


def first_and_last(count: int, most: int) -> list[int]:
    """Return at most ``most`` items of ``range(count)``: all, or the first and last ones with one gap.

    >>> first_and_last(9, 9), first_and_last(9, 5)
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 7, 8])
    """
    most = max(most, 1)
    if count <= most:
        return list(range(count))
    return [*range(most - most // 2), *range(count - most // 2, count)]


def fit(wanted: Sequence[int], needed: Sequence[int], limit: int) -> list[int] | None:
    """Return sizes whose sum is within a limit: the wanted ones, or with the largest ones reduced.

    Returns None if the needed sizes exceed the limit.
    """

    def sizes(cap: int) -> list[int]:
        return [max(need, min(want, cap)) for want, need in zip(wanted, needed, strict=True)]

    if sum(needed) > limit:
        return None
    # The largest cap that fits: a larger one never takes less room.
    caps = range(max(wanted, default=0) + 1)
    return sizes(bisect_right(caps, limit, key=lambda cap: sum(sizes(cap))) - 1)


def compressed(ratio: float, most: float, doubling: float) -> float:
    """Return a ratio of lengths, compressed logarithmically beyond ``most``.

    Args:
        ratio: The ratio, 0 or larger.
        most: Largest ratio that stays unchanged; its inverse is the smallest.
        doubling: Increment for each doubling beyond ``most``.
    """
    if 0 < ratio < 1:
        return 1 / compressed(1 / ratio, most, doubling)
    return ratio if ratio <= most else most + doubling * math.log2(ratio / most)


LISTED_WIDTH = 40
"""Characters per line of the device list of an SVG cell; a list over two lines becomes ``N of M``."""


class Labels(NamedTuple):
    """A label format."""

    write: Callable[[DeviceGroup], str]
    """Function from device ids to a label."""
    notes: tuple[str, ...] = ()
    """Notes below the picture that complete the labels, one per line."""


def label_formats(platform: str | None, process_of: Mapping[int, int], width: int) -> list[Labels]:
    """Return the label formats of a layout, the longest first.

    The formats are: platform and process (the process only on cells of one device), platform, bare ids.

    Args:
        platform: Platform of the devices.
        process_of: Process of each device; empty to omit processes.
        width: Characters per line of a device list; a list over two lines becomes ``N of M``.
    """

    @cache
    def named(devices: DeviceGroup) -> str:
        return listed_devices(platform, devices, width)

    @cache
    def bare(devices: DeviceGroup) -> str:
        label = format_device_ids(devices)
        return label if len(label) <= 2 * width else f"{len(devices)} of {min(devices)}-{max(devices)}"

    def owned(devices: DeviceGroup) -> str:
        return f"{named(devices)} p{process_of[devices[0]]}" if len(devices) == 1 else named(devices)

    note = f"cells show {format_devices(platform and printable(platform), ())}ids"
    return [*([Labels(owned)] if process_of else []), Labels(named), Labels(bare, (note,))]


def listed_devices(platform: str | None, devices: Sequence[int], width: int) -> str:
    """Return a list of device ids with runs folded, or their number and range if that exceeds two lines."""
    platform = platform and printable(platform)
    label = format_devices(platform, devices)
    if len(label) <= 2 * width:
        return label
    return f"{len(devices)} of {format_devices(platform, [min(devices)])}-{max(devices)}"
