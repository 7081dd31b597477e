"""Labels of cells: which devices hold them, at length or as bare ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jax_array_info_core import format_devices
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.text import printable

from .palette import Holder

LISTED_WIDTH = 40
"""Two lines of this many characters list the devices of a cell of an SVG; more are told by their number."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A way to label cells."""

    write: Callable[[Holder], str]
    """Returns the label of some devices."""
    notes: tuple[str, ...] = ()
    """What the labels leave out, said once: a line each."""


def label_ways(platform: str | None, process_of: Mapping[int, int], width: int) -> list[Labels]:
    """Return the ways to label the cells of a layout, the longest first.

    With platform and process (of a single device, where processes are given), with the platform, as
    bare ids.

    Args:
        platform: The platform of the devices.
        process_of: The process of each device, where processes are wanted and there are several.
        width: Two lines of this many characters list the devices of a cell; of more, their number is said.
    """

    @cache
    def named(devices: Holder) -> str:
        return listed_devices(platform, devices, width)

    @cache
    def bare(devices: Holder) -> str:
        label = format_device_ids(devices)
        return label if len(label) <= 2 * width else f"{len(devices)} of {min(devices)}-{max(devices)}"

    def owned(devices: Holder) -> str:
        return f"{named(devices)} p{process_of[devices[0]]}" if len(devices) == 1 else named(devices)

    words = f"cells show {format_devices(platform and printable(platform), ())}ids"
    return [*([Labels(owned)] if process_of else []), Labels(named), Labels(bare, (words,))]


def listed_devices(platform: str | None, devices: Sequence[int], width: int) -> str:
    """Return devices' ids, folded; of more than two lines can list, how many and from where to where."""
    platform = platform and printable(platform)
    label = format_devices(platform, devices)
    if len(label) <= 2 * width:
        return label
    return f"{len(devices)} of {format_devices(platform, [min(devices)])}-{max(devices)}"
