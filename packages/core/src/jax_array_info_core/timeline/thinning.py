"""Fewer samples in the older segments of a record, with its peaks and marks."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from ..reports.json import write_whole
from .segments import is_written, segment_paths

_FEWEST = 8
"""Number of samples that a segment keeps."""
_PIECE = 50
"""Number of lines that are read before other threads run."""
_ALIKE = 0.75
"""Segments of at least this part of the largest are of one size: the oldest of them is thinned first."""


def thin_segments(folder: Path, process: int, max_nbytes: int) -> Iterator[None]:
    """Remove samples from closed segments until they have at most a number of bytes, in small pieces of work.

    Of two neighboring samples, the one with more bytes in use on its fullest device stays; all marks stay.
    Where no segment can lose samples, the oldest one is deleted.

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


def _thin(path: Path) -> Generator[None, None, bool]:
    """Remove about every second sample of a segment, and return whether it has become smaller."""
    lines = path.read_bytes().splitlines(keepends=True)
    yield
    kept: list[tuple[bytes, dict[str, Any]]] = []
    pending: tuple[bytes, dict[str, Any]] | None = None
    is_full = False  # the sample after an out-of-memory error has all groups
    removed = 0
    for index, data in enumerate(lines):
        if index % _PIECE == 0:
            yield
        line = _parsed(data)
        if line is None:
            removed += 1
            continue
        if line["line"] != "sample":
            is_full = line["line"] == "out of memory"
            if line["line"] != "group":
                kept += filter(None, [pending])
                pending = None
            kept.append((data, line))
        elif is_full:
            kept.append((data, line))
            is_full = False
        elif pending is None:
            pending = (data, line)
        else:
            kept.append(max(pending, (data, line), key=_fullest))
            pending = None
            removed += 1
    kept += filter(None, [pending])
    samples = [line for _, line in kept if line["line"] == "sample"]
    if not removed or len(samples) < _FEWEST:
        return False
    used = {number for line in samples for number in line.get("groups", ())}
    yield
    write_whole(path, b"".join(data for data, line in kept if line["line"] != "group" or line["id"] in used))
    return True


def _fullest(entry: tuple[bytes, dict[str, Any]]) -> int:
    return max(entry[1].get("in_use", ()), default=0)


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None for one that is incomplete or damaged."""
    try:
        line = json.loads(data)
        return line if isinstance(line.get("line"), str) else None
    except (ValueError, AttributeError, RecursionError):
        return None
