"""Labels of cells: their devices, with the platform or as bare ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jax_array_info_core import format_devices
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.text import printable

from .palette import DeviceGroup

LISTED_WIDTH = 40
"""Characters per line of the device list of an SVG cell; a list over two lines becomes ``N of M``."""


@dataclass(frozen=True, slots=True)
class Labels:
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
