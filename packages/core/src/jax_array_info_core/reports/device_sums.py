"""Bytes on devices, as ``(device id, bytes)`` of each."""

from __future__ import annotations

from collections import Counter

DeviceNbytes = tuple[tuple[int, int], ...]
"""``(device id, bytes)`` of devices."""


def fullest_nbytes(device_nbytes: DeviceNbytes) -> int:
    """Return the bytes on the device that has the most."""
    return max((nbytes for _, nbytes in device_nbytes), default=0)


def added_nbytes(*device_nbytes: DeviceNbytes) -> DeviceNbytes:
    """Return the bytes of several kinds of arrays together, on each device that holds any of them."""
    together: Counter[int] = Counter()
    for nbytes in device_nbytes:
        together.update(dict(nbytes))
    return tuple(sorted(together.items()))
