"""Segments of a record: files of lines that are complete or absent."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from ..reports.record import LINES, RecordLine

_NAMES = {kind: name for name, kind in LINES.items()}
_NAME = re.compile(r"process-(\d{1,9})-\d{8}T\d{6}-\d{3}\.jsonl")
_MODE = 0o666


def encoded(line: RecordLine) -> bytes:
    """Return a line of a record as JSON, with its line break."""
    fields = {"line": _NAMES[type(line)], **_fields(line)}
    return json.dumps(fields, separators=(",", ":"), default=_fields).encode("ascii") + b"\n"


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass. msgspec takes 40 ms to import, while the program runs."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def segment_paths(folder: Path, process: int | None = None) -> list[Path]:
    """Return the segments in a folder by process and time, of one process or of all.

    Raises:
        OSError: If the folder cannot be read.
    """
    found = []
    for name in os.listdir(folder):
        match = _NAME.fullmatch(name)
        if match and process in (None, int(match[1])):
            found.append((int(match[1]), name))
    return [folder / name for _, name in sorted(found)]


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
        self.path, self._descriptor = _create(folder, process, started)
        self.nbytes = 0
        """Bytes that have been written."""
        with contextlib.suppress(ImportError, OSError):  # some file systems have no locks
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, line: RecordLine) -> None:
        """Append a line, or nothing of it.

        Raises:
            OSError: If it cannot be written, or the file was removed.
        """
        if os.fstat(self._descriptor).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        rest = encoded(line)
        size = len(rest)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.nbytes)
            raise
        self.nbytes += size

    def close(self) -> None:
        """Close the file. Forks of this process keep no lock on it."""
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def is_written(path: Path) -> bool:
    """Return whether a recorder has a segment open for writing.

    Raises:
        OSError: If the file cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (ImportError, OSError):
            return False
    return False


def _create(folder: Path, process: int, started: float) -> tuple[Path, int]:
    """Return the path and the descriptor of a new file, whose name is free."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_BINARY", 0)
    milliseconds = int(started * 1000)
    while True:
        seconds, rest = divmod(milliseconds, 1000)
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
        path = folder / f"process-{process}-{moment}-{rest:03}.jsonl"
        with contextlib.suppress(FileExistsError):
            return path, os.open(path, flags, _MODE)
        milliseconds += 1
