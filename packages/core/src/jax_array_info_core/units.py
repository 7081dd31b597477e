"""Bytes, devices and untrusted text as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")


def format_bytes(nbytes: int) -> str:
    """Return a number of bytes with one decimal and the binary unit that keeps it below 1024.

    The unit follows the *rounded* number: 1,048,575 bytes are ``1.0 MiB``, never ``1024.0 KiB``.

    >>> format_bytes(8 * 2**20), format_bytes(2**20 - 1), format_bytes(0)
    ('8.0 MiB', '1.0 MiB', '0.0 B')
    """
    size = float(nbytes)
    for unit in _BINARY_UNITS:
        if abs(round(size, 1)) < 1024 or unit == _BINARY_UNITS[-1]:
            break
        size /= 1024
    return f"{size:.1f} {unit}"


def packed_nbytes(shape: Sequence[int | str], bits: int | None) -> int | None:
    """Return ``ceil(elements * bits / 8)``, None where the shape is symbolic or the dtype has no size."""
    lengths = [dim for dim in shape if isinstance(dim, int)]
    if bits is None or len(lengths) < len(shape):
        return None
    return -(-math.prod(lengths) * bits // 8)


def format_device_ids(ids: Sequence[int]) -> str:
    """Return device ids in ascending order, runs folded.

    Three or more consecutive ids become ``0-7``; five or more with one larger stride ``0-62:2``;
    all others are listed.

    >>> format_device_ids([3, 2, 1, 0]), format_device_ids([0, 2, 4, 6]), format_device_ids(range(0, 64, 2))
    ('0-3', '0,2,4,6', '0-62:2')
    """
    ordered = sorted(ids)
    pieces: list[str] = []
    start = 0
    while start < len(ordered):
        stop = _run_end(ordered, start)
        length = stop - start
        stride = ordered[start + 1] - ordered[start] if length > 1 else 0
        if stride == 1 and length >= 3:
            pieces.append(f"{ordered[start]}-{ordered[stop - 1]}")
        elif stride > 1 and length >= 5:
            pieces.append(f"{ordered[start]}-{ordered[stop - 1]}:{stride}")
        else:
            # Only the first: the others may begin a longer run.
            stop = start + 1
            pieces.append(str(ordered[start]))
        start = stop
    return ",".join(pieces)


def _run_end(ordered: Sequence[int], start: int) -> int:
    """Return the end of the longest arithmetic progression that begins at ``start``."""
    stop = start + 1
    while stop < len(ordered) and (
        stop == start + 1 or ordered[stop] - ordered[stop - 1] == ordered[start + 1] - ordered[start]
    ):
        stop += 1
    return stop


def format_devices(platform: str | None, ids: Sequence[int]) -> str:
    """Return ``CPU 0-3`` for devices of a platform, ``device 0-3`` where no platform is known."""
    return f"{platform.upper() if platform else 'device'} {format_device_ids(ids)}"


def device_name(device: object) -> str:
    """Return a device's own name; the ``TFRT_CPU_2`` of jax ≤0.9 is written ``cpu:2`` as on newer ones."""
    return str(device).replace("TFRT_CPU_", "cpu:")


def printable(text: str, encoding: str = "utf-8") -> str:
    r"""Return text of unknown origin so that a terminal of this encoding shows it and obeys nothing in it.

    What is not printable (control characters, terminal escapes, line breaks, directional marks,
    lone surrogates) and what the encoding lacks becomes a backslash escape.

    >>> printable("params[0]\x1b[31m"), printable("größe", "ascii")
    ('params[0]\\x1b[31m', 'gr\\xf6\\xdfe')
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text.encode(encoding, "backslashreplace").decode(encoding)
