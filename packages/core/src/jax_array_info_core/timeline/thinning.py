"""Fewer samples in the older segments of a record, which keeps its peaks and marks."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from ..reports.json import write_whole
from .segments import is_written, segment_paths

FEWEST = 8
"""A segment with at most this number of samples loses none."""
_PIECE = 50
"""Number of lines that are read before other threads run."""
_LONGEST_LINE = 2**20
"""Bytes of a line that are read; a sample has a few hundred, unless memory ran out."""
_ALIKE = 0.75
"""Segments of at least this part of the largest are of one size: the oldest of them is thinned first."""


def thin_segments(folder: Path, process: int, max_nbytes: int) -> Iterator[None]:
    """Remove samples from closed segments until they have at most a number of bytes, in small pieces of work.

    Of two neighboring samples, the one with more bytes in use on its fullest device stays; all marks stay.
    If no segment can lose samples, the oldest one is deleted.

    Args:
        folder: Folder of the record.
        process: Index of the process.
        max_nbytes: Bytes of all its closed segments.

    Raises:
        OSError: If a file cannot be read or written.
    """
    done: set[Path] = set()
    while True:
        sizes = {path: path.stat().st_size for path in segment_paths(folder, process) if not is_written(path)}
        yield
        if sum(sizes.values()) <= max_nbytes:
            return
        rest = {path: size for path, size in sizes.items() if path not in done}
        if not rest:
            next(iter(sizes)).unlink()
            continue
        largest = max(rest.values())
        path = next(path for path, size in rest.items() if size >= _ALIKE * largest)
        if not (yield from _thin(path)):
            done.add(path)


class _Sample(NamedTuple):
    """A sample that may be removed."""

    data: bytes
    nbytes: int
    """Bytes in use on the fullest device."""
    groups: tuple[int, ...]


def _thin(path: Path) -> Generator[None, None, bool]:
    """Remove about every second sample of a segment, and return whether it lost any."""
    kept: list[tuple[bytes, int | None]] = []  # lines, with the number of a group
    used: set[int] = set()
    last: _Sample | None = None
    sample_count = removed = 0
    stays = False  # the sample after an error has all groups; without the first, a peak after it has no begin

    def keep(sample: _Sample | None) -> None:
        if sample is not None:
            kept.append((sample.data, None))
            used.update(sample.groups)

    with open(path, "rb") as file:
        for index, data in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b"")):
            if index % _PIECE == 0:
                yield
            found = _parsed(data)
            if isinstance(found, int):
                kept.append((data, found))
            elif isinstance(found, str):
                # Neighbors are on one side of a mark.
                keep(last)
                last = None
                kept.append((data, None))
                stays = found in ("start", "out of memory")
            elif found is not None:
                sample_count += 1
                if stays:
                    keep(found)
                    stays = False
                elif last is None:
                    last = found
                else:
                    keep(last if last.nbytes >= found.nbytes else found)
                    last = None
                    removed += 1
    keep(last)
    if not removed or sample_count <= FEWEST:
        return False
    yield
    write_whole(path, b"".join(data for data, group in kept if group is None or group in used))
    return True


def _parsed(data: bytes) -> _Sample | int | str | None:
    """Return a sample, the number of a group or the name of another line; None for an incomplete line."""
    try:
        line = json.loads(data)
        if line["line"] == "sample":
            return _Sample(data, max(line["in_use"], default=0), tuple(line["groups"]))
        return int(line["id"]) if line["line"] == "group" else str(line["line"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None  # the process was killed, or the file is damaged
