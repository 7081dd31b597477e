"""The report on a device memory profile: bytes by device and allocation site."""

from __future__ import annotations

from collections import Counter

from ..compat.devices import device_name
from ..errors import ProfileError, UnsupportedValueError
from ..origins.origins import UserLines
from ..reports.devices import MemoryProfileReport, ProfileRow
from ..reports.origin import Origin
from .pprof import Line, Sample, samples

_Place = tuple[str | None, str, Origin | None]
"""Device, ``kind`` label and allocation site of some bytes."""


def buffer_nbytes(profile: bytes) -> dict[str, int]:
    """Return the bytes of all buffers by device name.

    Args:
        profile: The result of ``jax.profiler.device_memory_profile()``.
    """
    nbytes: Counter[str] = Counter()
    for sample in samples(profile, with_lines=False):
        if sample.labels.get("kind") == "buffer":
            nbytes[sample.labels.get("device", "")] += sample.nbytes
    return dict(nbytes)


def memory_profile_report(data: bytes | bytearray | memoryview | None = None) -> MemoryProfileReport:
    """Return the bytes of each allocation site on each device.

    The allocation site is the innermost line of user code, as in ``print_array_stats``. If all lines belong
    to JAX or another skipped library, it is the innermost line. Shared buffers are counted once. The call
    never waits for a computation, adds no array and keeps none alive.

    >>> import jax.numpy as jnp
    >>> weights = jnp.zeros(256)
    >>> [(row.device, row.nbytes) for row in memory_profile_report().rows if row.kind == "buffer"]
    [('cpu:0', 1024)]

    Args:
        data: A pprof profile, as ``jax.profiler.save_device_memory_profile`` writes it, from any machine. If
            None, the default backend of this process is profiled.

    Raises:
        ProfileError: (a ValueError) If the profile is damaged, too large (limits: 256 MiB uncompressed,
            1,000,000 protobuf messages, 10,000,000 frames) or not a memory profile from JAX, or if the
            backend provides no profile.
        UnsupportedValueError: (a ValueError) If ``data`` is not bytes.
    """
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise UnsupportedValueError(f"expected the bytes of a profile, got {type(data)}: read the file first")
    nbytes: Counter[_Place] = Counter()
    counts: Counter[_Place] = Counter()
    lines = UserLines()
    known: dict[tuple[Line, ...], Origin | None] = {}
    for sample in samples(_taken() if data is None else bytes(data)):
        if sample.lines not in known:
            known[sample.lines] = lines.origin(sample.lines)
        place = (*_labels(sample), known[sample.lines])
        nbytes[place] += sample.nbytes
        counts[place] += sample.allocations
    rows = [
        ProfileRow(device=device, kind=kind, origin=origin, nbytes=size, count=counts[device, kind, origin])
        for (device, kind, origin), size in nbytes.items()
    ]
    totals: Counter[str] = Counter()
    for row in rows:
        if row.kind == "buffer" and row.device is not None:
            totals[row.device] += row.nbytes
    return MemoryProfileReport(
        rows=tuple(sorted(rows, key=_largest_first)),
        device_nbytes=tuple(sorted(totals.items(), key=lambda total: (len(total[0]), total[0]))),
    )


def _labels(sample: Sample) -> tuple[str | None, str]:
    device = sample.labels.get("device")
    return None if device is None else device_name(device), sample.labels.get("kind", "unknown")


def _largest_first(row: ProfileRow) -> tuple[object, ...]:
    origin = row.origin
    lines = [origin, *origin.callers] if origin else []
    place = [(one.file, one.line, one.function) for one in lines]
    device = row.device or ""
    return (-row.nbytes, row.kind, place, len(device), device)  # cpu:10 after cpu:9


def _taken() -> bytes:
    import jax

    try:
        return bytes(jax.profiler.device_memory_profile())
    except Exception as error:
        # Backends without a memory profile raise different errors (XlaRuntimeError, NotImplementedError).
        reason = str(error).partition("\n")[0]
        raise ProfileError(f"the {jax.default_backend()} backend has no memory profile: {reason}") from error
