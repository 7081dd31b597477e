"""Labels of cells: which devices hold them, at length or as bare ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jax_array_info_core import ShardingLayout, format_devices
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.text import printable


@dataclass(frozen=True, slots=True)
class Labels:
    """A way to label cells."""

    write: Callable[[Sequence[int]], str]
    """Returns the label of some devices."""
    notes: tuple[str, ...] = ()
    """What the labels leave out, said once: a line each."""


def label_ways(layout: ShardingLayout, width: int, *, owners: bool) -> list[Labels]:
    """Return the ways to label the cells of a layout, the longest first.

    With platform and process (of a single device, where there are several processes), with the platform, as
    bare ids.

    Args:
        layout: The layout.
        width: Two lines of this many characters list the devices of a cell; of more, their number is said.
        owners: Whether processes are wanted.
    """
    platform = layout.platform and printable(layout.platform)

    def named(devices: Sequence[int]) -> str:
        return listed_devices(platform, devices, width)

    def bare(devices: Sequence[int]) -> str:
        label = format_device_ids(devices)
        return label if len(label) <= 2 * width else f"{len(devices)} of {min(devices)}-{max(devices)}"

    ways = [Labels(named), Labels(bare, (f"cells show {format_devices(platform, ())}ids",))]
    if owners and layout.processes:
        process_of = {device: process for process, ids in layout.processes for device in ids}

        def owned(devices: Sequence[int]) -> str:
            label = named(devices)
            return f"{label} p{process_of[devices[0]]}" if len(devices) == 1 else label

        ways.insert(0, Labels(owned))
    return ways


def listed_devices(platform: str | None, devices: Sequence[int], width: int) -> str:
    """Return devices' ids, folded; of more than two lines can list, how many and from where to where."""
    platform = platform and printable(platform)
    label = format_devices(platform, devices)
    if len(label) <= 2 * width:
        return label
    return f"{len(devices)} of {format_devices(platform, [min(devices)])}-{max(devices)}"
