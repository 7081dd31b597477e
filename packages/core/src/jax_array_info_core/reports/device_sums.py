"""Sums of bytes per device."""

from __future__ import annotations

from collections import Counter

DeviceNbytes = tuple[tuple[int, int], ...]
"""``(device id, bytes)``, one pair for each device."""


def fullest_nbytes(device_nbytes: DeviceNbytes) -> int:
    """Return the bytes on the fullest device."""
    return max((nbytes for _, nbytes in device_nbytes), default=0)


def added_nbytes(*device_nbytes: DeviceNbytes) -> DeviceNbytes:
    """Return the sum of several lists of bytes per device, in ascending order of device ids."""
    together: Counter[int] = Counter()
    for nbytes in device_nbytes:
        together.update(dict(nbytes))
    return tuple(sorted(together.items()))
