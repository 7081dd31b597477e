"""Memory records that tests write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_array_info_core import timeline_report
from jax_array_info_core.facts.reports.record import (
    RecordDevice,
    RecordEnd,
    RecordGroup,
    RecordLine,
    RecordMark,
    RecordSample,
    RecordStall,
    RecordStart,
    RecordThread,
)
from jax_array_info_core.jobs.timeline.segments import encoded
from jax_array_info_core.reports import Origin, SourceLine, TimelineReport

MIB = 2**20
START = 1_764_115_200.0


def record_start(**fields: object) -> RecordStart:
    """Return the first line of a segment, of a process on another machine."""
    plain: dict[str, object] = {
        "time": START,
        "started": START,
        "segment": 0,
        "process": 0,
        "process_count": 1,
        "host_name": "another machine",
        "pid": 17,
        "platform": "gpu",
        "devices": (RecordDevice(id=0, name="cuda:0", bytes_limit=2**34),),
        "in_use_source": "arrays",
        "every": 1.0,
    }
    return RecordStart(**{**plain, **fields})  # type: ignore[arg-type]


def record_group(number: int, line: int | None = None, *, mib: int = 1, **fields: object) -> RecordGroup:
    """Return a group of arrays of one MiB each, allocated on a line of train.py."""
    plain: dict[str, object] = {
        "id": number,
        "shape": (mib * MIB // 4, number + 1),
        "dtype": "float32",
        "sharding": "P()",
        "shard_nbytes": mib * MIB,
        "devices": (0,),
        "origin": None if line is None else Origin(file="/home/me/train.py", line=line, function="step"),
    }
    return RecordGroup(**{**plain, **fields})  # type: ignore[arg-type]


def write_record(
    folder: Path, lines: Iterable[RecordLine], name: str = "process-0-a.jsonl", tail: bytes = b""
) -> Path:
    """Write a segment, and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(map(encoded, lines)) + tail)
    return path


def report_of(folder: Path, *lines: RecordLine) -> TimelineReport:
    """Write a record with one segment, and return the report on it."""
    write_record(folder, [record_start(), *lines])
    return timeline_report(folder)


def samples_of(
    groups: Sequence[RecordGroup],
    counts: Mapping[int, Callable[[int], int]],
    length: int,
    *,
    every: float = 1.0,
    steps_per_sample: int = 1,
) -> list[RecordSample]:
    """Return samples of one device.

    Args:
        groups: The groups.
        counts: For each group by its id, a function from the number of a sample to the number of arrays.
        length: Number of samples.
        every: Seconds between them.
        steps_per_sample: Number of steps between them.
    """
    found = []
    for number in range(length):
        alive = {group.id: counts[group.id](number) for group in groups if counts[group.id](number)}
        use = sum(group.shard_nbytes * alive.get(group.id, 0) for group in groups)
        found.append(
            RecordSample(
                time=START + every * number,
                step=steps_per_sample * number,
                in_use=(use,),
                groups=tuple(alive),
                counts=tuple(alive.values()),
            )
        )
    return found


GROUP = record_group(0, 7)


def segment(
    start: float = 0.0,
    length: int = 10,
    count: int | Callable[[int], int] = 1,
    *,
    group_number: int = 0,
    end: bool = False,
    **fields: object,
) -> list[Any]:
    """Return a segment that begins some seconds after ``START``.

    Args:
        start: The seconds.
        length: Number of samples, one each second.
        count: Number of arrays, or a function from the number of a sample to it.
        group_number: Id of the group of the arrays.
        end: Whether the recorder stops after it.
        fields: Fields of its first line.
    """
    at, group = START + start, replace(GROUP, id=group_number)
    counts = {group_number: count if callable(count) else lambda _: count}
    return [
        record_start(**{"time": at, "started": at, **fields}),
        group,
        *(replace(one, time=one.time + start) for one in samples_of([group], counts, length)),
        *([RecordEnd(time=at + length, reason="stopped")] if end else []),
    ]


def record_mark(second: float, name: str, *, is_end: bool = False, **fields: object) -> RecordMark:
    """Return a mark some seconds after the start."""
    return RecordMark(time=START + second, name=name, is_end=is_end, **fields)  # type: ignore[arg-type]


def record_stall(second: float, step: int | None, line: int = 41, **fields: object) -> RecordStall:
    """Return a stall in a line of data.py, which is found some seconds after the start, a minute after its begin."""
    origin = SourceLine(file="/home/me/data.py", line=line, function="make_array")
    train = SourceLine(file="/home/me/train.py", line=88, function="train")
    plain: dict[str, object] = {
        "time": START + second,
        "since": START + second - 60,
        "step": step,
        "origin": origin,
        "threads": (RecordThread(name="MainThread", frames=(origin, train)),),
    }
    return RecordStall(**{**plain, **fields})  # type: ignore[arg-type]
