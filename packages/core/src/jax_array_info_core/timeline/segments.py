"""Segments of a record: files of lines that are complete or absent."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..files.descriptors import (
    Descriptor,
    LostError,
    UnsuitableError,
    created,
    is_locked,
    lock,
    opened_file,
    opened_folder,
    remove_file,
    write_all,
)
from ..reports.record import LINES, RecordLine

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
    found = ((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))
    return [name for index, name in sorted(found) if process in (None, index)]


def segment_paths(folder: Path, process: int | None = None) -> list[Path]:
    """Return the segments in a folder by process and time, of one process or of all.

    Raises:
        OSError: If the folder cannot be read.
    """
    return [folder / name for name in segment_names(os.listdir(folder), process)]


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
                seconds, rest = divmod(milliseconds, 1000)
                moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
                self.path = folder / f"process-{process}-{moment}-{rest:03}.jsonl"
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
