"""The report on the backend's memory profile, decoded from pprof."""

from __future__ import annotations

import functools
import gzip
import io
import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...base.errors import ProfileError, UnsupportedValueError
from ...base.grouping import sums_by_key
from ...base.text import printable
from ...compat.shardings import device_name
from ...facts.reports.devices import MemoryProfileReport, ProfileRow
from ...facts.reports.origin import Origin
from ...xla.hlo.messages import message_classes
from .origins import UserLines

_AGAIN = "save it with jax.profiler.save_device_memory_profile"
MAX_NBYTES = 2**26
"""The size limit of a profile, uncompressed, in bytes. 10,000 arrays take about 1 MiB."""

MAX_FRAMES = 10**7
"""The limit of frames in all samples of a profile. Samples may refer to the same location many times."""

_MEMORY = (("allocations", "count"), ("space", "bytes"))
"""The sample types of JAX's device memory profile, each with its unit."""

_MESSAGES = {
    "Label": "key 1 int64, str 2 int64",
    "ValueType": "type 1 int64, unit 2 int64",
    "Sample": "location_id 1 *uint64, value 2 *int64, label 3 *Label",
    "Line": "function_id 1 uint64, line 2 int64",
    "Location": "id 1 uint64, line 4 *Line",
    "Function": "id 1 uint64, name 2 int64, filename 4 int64",
    "Profile": "sample_type 1 *ValueType, sample 2 *Sample, location 4 *Location, function 5 *Function,"
    " string_table 6 *bytes",
}


Line = tuple[str, int, str]
"""File, line and function of a frame."""


class Sample(NamedTuple):
    """The allocations of one call stack."""

    allocations: int
    """The number of live allocations."""
    nbytes: int
    """Their bytes."""
    labels: dict[str, str]
    """JAX's labels ``kind`` and ``device``."""
    lines: tuple[Line, ...]
    """The frames, the innermost first."""


def samples(data: bytes, *, with_lines: bool = True) -> Iterator[Sample]:
    """Yield the samples of a memory profile.

    Args:
        data: The result of ``jax.profiler.device_memory_profile()``, compressed by gzip or not.
        with_lines: Whether to read the frames, which takes most of the time.

    Raises:
        ProfileError: (a ValueError) If the data are damaged, too large or not a memory profile.
    """
    profile = _decoded(data)
    # Paths may contain bytes that are not UTF-8.
    strings: list[str] = [text.decode("utf-8", "backslashreplace") for text in profile.string_table]

    def string(index: int) -> str:
        if index < 0:
            raise IndexError(index)
        return strings[index]

    try:
        sample_types = [
            (string(value_type.type), string(value_type.unit)) for value_type in profile.sample_type
        ]
        if not set(_MEMORY) <= set(sample_types):
            names = ", ".join(printable(f"{sample_type} in {unit}") for sample_type, unit in sample_types)
            raise ProfileError(f"the data is a pprof profile of {names}, not of JAX device memory")
        count, space = map(sample_types.index, _MEMORY)
        lines = _lines(profile, string) if with_lines else {}
        frame_count = 0
        for sample in profile.sample:
            allocations, nbytes = sample.value[count], sample.value[space]
            if min(allocations, nbytes) < 0:
                raise ProfileError(f"the profile is damaged, a count is negative: {_AGAIN}")
            if with_lines:
                frame_count += sum(len(lines[location]) for location in sample.location_id)
            if frame_count > MAX_FRAMES:
                raise ProfileError(f"the profile has more than {MAX_FRAMES:,} frames, too many to read")
            yield Sample(
                allocations,
                nbytes,
                {string(label.key): string(label.str) for label in sample.label if label.str},
                tuple(itertools.chain.from_iterable(map(lines.__getitem__, sample.location_id)))
                if with_lines
                else (),
            )
    except (IndexError, KeyError) as error:
        raise ProfileError(f"the profile is damaged, it refers to a missing entry: {_AGAIN}") from error


def _lines(profile: Any, string: Callable[[int], str]) -> dict[int, list[Line]]:
    """Return the lines of each location by its id. A location has several lines where calls were inlined."""
    functions = {
        function.id: (string(function.filename), string(function.name)) for function in profile.function
    }

    def line_of(line: Any) -> Line:
        file, name = functions[line.function_id]
        return file, line.line, name

    return {location.id: [*map(line_of, location.line)] for location in profile.location}


def _decoded(data: bytes) -> Any:
    """Return the decoded protobuf message of a profile, which may be compressed by gzip."""
    from google.protobuf.message import DecodeError

    if not data:
        raise ProfileError(f"the profile is empty: {_AGAIN}")
    if data.startswith(b"\x1f\x8b"):
        try:
            # Read no more than the limit: a few compressed bytes may expand to very many.
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_NBYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ProfileError(
                f"the profile is truncated or damaged, gzip cannot decompress it: {_AGAIN}"
            ) from error
    if len(data) > MAX_NBYTES:
        raise ProfileError(
            f"the profile is larger than {MAX_NBYTES >> 20} MiB uncompressed, too large to read"
        )
    try:
        profile = _profile_class().FromString(data)
    except DecodeError as error:
        raise ProfileError(f"the data is not a pprof profile: {_AGAIN}") from error
    # Most byte strings parse as a message of unknown fields. In a profile, the first string is empty.
    if not profile.sample_type or list(profile.string_table[:1]) != [b""]:
        raise ProfileError(f"the data is not a pprof profile: {_AGAIN}")
    return profile


@functools.cache
def _profile_class() -> Any:
    """Return the protobuf class of a pprof profile."""
    return message_classes("pprof", _MESSAGES)["Profile"]


_Place = tuple[str | None, str, Origin | None]
"""Device, ``kind`` label and allocation site of some bytes."""


def buffer_nbytes(profile: bytes) -> dict[str, int]:
    """Return the bytes of all buffers by device name.

    Args:
        profile: The result of ``jax.profiler.device_memory_profile()``.
    """
    return sums_by_key(
        (sample.labels.get("device", ""), sample.nbytes)
        for sample in samples(profile, with_lines=False)
        if sample.labels.get("kind") == "buffer"
    )


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
        ProfileError: (a ValueError) If the profile is damaged, too large (limits: 64 MiB uncompressed,
            10,000,000 frames) or not a memory profile from JAX, or if the
            backend provides no profile.
        UnsupportedValueError: (a ValueError) If ``data`` is not bytes.
    """
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise UnsupportedValueError(f"expected the bytes of a profile, got {type(data)}: read the file first")
    nbytes: Counter[_Place] = Counter()
    counts: Counter[_Place] = Counter()
    lines = UserLines()
    for sample in samples(_taken() if data is None else bytes(data)):
        place = (*_labels(sample), lines.origin(sample.lines))
        nbytes[place] += sample.nbytes
        counts[place] += sample.allocations
    rows = [
        ProfileRow(device=device, kind=kind, origin=origin, nbytes=size, count=counts[device, kind, origin])
        for (device, kind, origin), size in nbytes.items()
    ]
    totals = sums_by_key(
        (row.device, row.nbytes) for row in rows if row.kind == "buffer" and row.device is not None
    )
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
    place = [(line.file, line.line, line.function) for line in lines]
    device = row.device or ""
    return (-row.nbytes, row.kind, place, len(device), device)  # cpu:10 after cpu:9


def _taken() -> bytes:
    import jax

    try:
        return bytes(jax.profiler.device_memory_profile())
    except Exception as error:
        # Backends without a memory profile raise different errors (XlaRuntimeError, NotImplementedError).
        reason = str(error).partition("\n")[0]
        raise ProfileError(
            f"the {jax.default_backend()} backend has no memory profile ({reason}): use print_array_stats()"
        ) from error
