"""Segments of a record: files of lines that are complete or absent, their process, and their thinning."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...base.files import (
    Descriptor,
    LostError,
    UnsuitableError,
    created,
    is_locked,
    lock,
    names_in,
    opened_file,
    opened_folder,
    remove_abandoned,
    remove_file,
    replace_file,
    write_all,
)
from ...base.text import clipped, plain_text
from ...compat.processes import job_of, launcher_rank
from ...facts.reports.record import LINES, RecordLine, RecordStart

FEWEST = 8
"""A segment with at most this number of samples loses none."""
_PIECE = 2**14
"""Bytes that are read before other threads run."""
_FILES = 50
"""Number of files that are looked at before other threads run."""
_LONGEST_LINE = 2**20
"""Bytes of a line that are read; a sample has a few hundred, unless memory ran out."""
_FIRST_PIECE = 2**14
_ALIKE = 0.75
"""Segments of at least this part of the largest are of one size: the oldest of them is thinned first."""
_NAMES = {kind: name for name, kind in LINES.items()}
_NAME = re.compile(r"process-(\d{1,9})-\d{8}T\d{6}-\d{3}\.jsonl")

_open: set[Descriptor] = set()
"""Files of this process that are open for writing."""


def encoded(line: RecordLine) -> bytes:
    """Return a line of a record as JSON, with its line break."""
    fields = {"line": _NAMES[type(line)], **_fields(line)}
    return json.dumps(fields, separators=(",", ":"), default=_fields).encode("ascii") + b"\n"


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass. msgspec takes 40 ms to import, while the program runs."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def segment_names(names: Iterable[str], process: int | None = None) -> list[str]:
    """Return the names of segments among others, by process and time, of one process or of all."""
    pairs = ((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))
    return [name for index, name in sorted(pairs) if process in (None, index)]


class Segment:
    """A new segment, open for writing. It is locked, so that no other recorder thins it."""

    def __init__(self, folder: Path, process: int, started: float) -> None:
        """Create the file.

        Args:
            folder: Folder of the record.
            process: Index of the process.
            started: Time at which the segment begins.

        Raises:
            OSError: If the file cannot be created.
        """
        self._folder = folder
        milliseconds = int(started * 1000)
        with opened_folder(folder) as place:
            while True:
                seconds, thousandths = divmod(milliseconds, 1000)
                moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
                self.path = folder / f"process-{process}-{moment}-{thousandths:03}.jsonl"
                with contextlib.suppress(FileExistsError):
                    self._file = created(self.path.name, place)
                    break
                milliseconds += 1
        _open.add(self._file)
        self.nbytes = 0
        """Bytes that have been written."""
        self._is_locked = lock(self._file)

    def write(self, *lines: RecordLine) -> None:
        """Append lines, or nothing of them.

        Raises:
            LostError: If the program has closed the file.
            OSError: If they cannot be written, or the file was removed.
        """
        if self._checked().st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._is_locked = self._is_locked or lock(self._file)
        data = b"".join(map(encoded, lines))
        try:
            write_all(self._file, data)
        except OSError as error:
            if error.errno == errno.EBADF:  # closed since it was checked
                raise LostError from error
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.number, self.nbytes)
            raise
        self.nbytes += len(data)

    def _checked(self) -> os.stat_result:
        """Return the status of the file.

        Raises:
            LostError: If the descriptor is that of another file by now.
        """
        status = self._file.status()
        # Only the recorder writes to it. A new file may have the inode of one that was removed.
        if status.st_size != self.nbytes:
            raise LostError
        return status

    def close(self) -> None:
        """Close the file, if it is still ours, and remove it if it is empty."""
        if not self.nbytes:
            with contextlib.suppress(OSError, UnsuitableError):
                remove_file(self._folder, self.path.name, self._file.is_at)
        _open.discard(self._file)
        with contextlib.suppress(LostError):
            self._checked()
            self._file.close()


def _close_in_fork() -> None:
    """Close the segments of the parent: it may be killed, and a fork would keep them locked."""
    for file in [*_open]:
        file.close()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)


def is_written(path: Path) -> bool:
    """Return whether a recorder has a segment open for writing; False if that cannot be known."""
    with contextlib.suppress(UnsuitableError, LostError), opened_file(path) as file:
        return bool(is_locked(file))
    return False


class Identity(NamedTuple):
    """Fields of a ``RecordStart`` that identify a process."""

    host_name: str
    pid: int
    pid_started: int | None
    pid_namespace: str | None
    job: str | None
    rank: int | None


def identity() -> Identity:
    """Return the identity of this process."""
    pid = os.getpid()
    job = job_of()
    return Identity(
        socket.gethostname(),
        pid,
        _started(pid),
        _namespace(),
        None if job is None else clipped(plain_text(job)),
        launcher_rank(),
    )


def is_gone(start: RecordStart) -> bool:
    """Return whether the process of a record is known to run no longer.

    False for a process of another machine or container, which cannot be known.
    """
    if (start.host_name, start.pid_namespace) != (socket.gethostname(), _namespace()) or not start.pid:
        return False
    try:
        os.kill(start.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it belongs to another user
    return start.pid_started is not None and _started(start.pid) != start.pid_started


def _started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine started; None where that is unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name of the program is in parentheses, and may contain any character.
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _namespace() -> str | None:
    """Return the name of the namespace of process ids, such as that of a container."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


class _File(NamedTuple):
    """A closed segment."""

    nbytes: int
    is_at: Callable[[os.stat_result], bool]
    """Whether a status is that of the file."""


def thin_segments(
    folder: Path, process: int, max_nbytes: int, leave_out: Callable[[str, str], object] = lambda *_: None
) -> Iterator[None]:
    """Remove samples from closed segments until they have at most a number of bytes, in small pieces of work.

    Of two neighboring samples, the one with more bytes in use on its fullest device stays; all marks stay.
    If no segment can lose samples, the oldest one is deleted. Files that are no segments of a recorder are
    left alone: links, files with several names, and those that do not begin with a ``RecordStart``.

    Args:
        folder: Folder of the record.
        process: Index of the process.
        max_nbytes: Bytes of all its closed segments.
        leave_out: Called with the name of a file that is left alone, and the reason.

    Raises:
        OSError: If the folder cannot be read.
    """
    done: set[str] = set()
    while True:
        files = yield from _segments(folder, process, leave_out)
        if sum(segment.nbytes for segment in files.values()) <= max_nbytes:
            return
        sizes = {name: segment.nbytes for name, segment in files.items() if name not in done}
        largest = max(sizes.values(), default=0)
        name = next((name for name, nbytes in sizes.items() if nbytes >= _ALIKE * largest), next(iter(files)))
        try:
            if not sizes:
                remove_file(folder, name, files[name].is_at)
            elif not (yield from _thin(folder, name)):
                done.add(name)
        except UnsuitableError as error:
            leave_out(name, str(error))
            done.add(name)
        except OSError:
            return  # the folder or the disk; after the next segment, it is tried again


def _segments(
    folder: Path, process: int, leave_out: Callable[[str, str], object]
) -> Generator[None, None, dict[str, _File]]:
    """Return the closed segments of a process by name."""
    with opened_folder(folder) as place:
        remove_abandoned(place)
        names = iter(segment_names(names_in(place), process))
    segments = {}
    while piece := [*itertools.islice(names, _FILES)]:
        yield
        with opened_folder(folder) as place:
            for name in piece:
                try:
                    with opened_file(name, place) as file:
                        if file.status().st_size and not is_locked(file):
                            segments[name] = _checked(file)
                except LostError:
                    continue
                except UnsuitableError as error:
                    leave_out(name, str(error))
    return segments


def _checked(file: Descriptor) -> _File:
    """Return a file that is a segment of a recorder."""
    status = file.status()
    if status.st_nlink > 1:
        raise UnsuitableError("a file with several names")
    for size in (_FIRST_PIECE, _LONGEST_LINE):
        first, _, ending = os.pread(file.number, size, 0).partition(b"\n")
        if ending:
            break
    if _parsed(first) != "start":
        raise UnsuitableError("not a segment of a record")
    return _File(status.st_size, file.is_at)


class _Sample(NamedTuple):
    """A sample that may be removed."""

    data: bytes
    nbytes: int
    """Bytes in use on the fullest device."""
    groups: tuple[int, ...]


def _thin(folder: Path, name: str) -> Generator[None, None, bool]:
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

    with opened_folder(folder) as place, opened_file(name, place) as file:
        _checked(file)
        for data in _lines(file):
            if not data:
                yield
                continue
            parsed = _parsed(data)
            if isinstance(parsed, int):
                kept.append((data, parsed))
            elif isinstance(parsed, str):
                # Neighbors are on one side of a mark.
                keep(last)
                last = None
                kept.append((data, None))
                stays = parsed in ("start", "out of memory")
            elif parsed is not None:
                sample_count += 1
                if stays:
                    keep(parsed)
                    stays = False
                elif last is None:
                    last = parsed
                else:
                    keep(last if last.nbytes >= parsed.nbytes else parsed)
                    last = None
                    removed += 1
        is_at = file.is_at
    keep(last)
    if not removed or sample_count <= FEWEST:
        return False
    yield
    data = b"".join(data for data, group in kept if group is None or group in used)
    replace_file(folder, name, data, lambda status: is_at(status) and status.st_nlink == 1)
    return True


def _lines(file: Descriptor) -> Iterator[bytes]:
    """Yield the complete lines of a file that are not too long, and an empty one after each piece."""
    partial, offset = b"", 0
    # Reading at an offset does not move that of the file.
    while piece := os.pread(file.number, _PIECE, offset):
        offset += len(piece)
        *lines, partial = (partial[: _LONGEST_LINE + 1] + piece).split(b"\n")
        yield from (line + b"\n" for line in lines if line and len(line) < _LONGEST_LINE)
        yield b""


def _parsed(data: bytes) -> _Sample | int | str | None:
    """Return a sample, the number of a group or the name of another line; None for a damaged line."""
    try:
        line = json.loads(data)
        name = line["line"]
        if name == "sample":
            in_use, groups = _numbers(line["in_use"]), _numbers(line["groups"])
            return _Sample(data, max(in_use, default=0), groups)
        if name == "group":
            return _numbers([line["id"]])[0]
        return str.__str__(name)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None  # the process was killed, or the file is damaged


def _numbers(values: Any) -> tuple[int, ...]:
    """Return a list of JSON as whole numbers.

    Raises:
        TypeError: If it is none.
    """
    if type(values) is not list or not all(type(value) is int for value in values):
        raise TypeError
    return tuple(values)
