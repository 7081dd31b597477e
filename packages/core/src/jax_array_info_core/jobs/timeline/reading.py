"""Reading of memory records: the complete lines of the files of a folder, also while they are written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, get_type_hints

from ...base.errors import FileFormatError
from ...base.files import open_regular
from ...base.reading_lock import prepared
from ...base.text import clipped, printable
from ...facts.reports.record import (
    LINES,
    RecordCompilation,
    RecordEnd,
    RecordGroup,
    RecordLine,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStall,
    RecordStart,
)
from .history import History, Numbering

TimedLine: TypeAlias = (
    RecordStart | RecordSample | RecordMark | RecordOutOfMemory | RecordStall | RecordCompilation | RecordEnd
)
"""Line with a time."""
SUFFIX = ".jsonl"
_MANY = (RecordSample, RecordMark)
"""Most lines of a record."""
_LINE = re.compile(rb'\{ ?"line": ?"([a-z ]{1,20})"')
_SURROGATE = b"\\ud"
_CHUNK = 2**20
_LONGEST_LINE = 2**22
"""Maximum length of a line in bytes: a sample of a program that ran out of memory names all groups."""
_MOST_FILES = 2**16
_MOST_BAD_LINES, _BAD_SHARE = 16, 8
"""A file with more lines, and more than this part, that are none of a record is read no further."""
_TAILS = (2**14, 2 * _LONGEST_LINE)
"""Bytes at the end of a file in which its last line is looked for."""
_MOST_OF_TAIL = 100
"""Number of lines at the end of a file that are read to find one with a time."""


@cache
def _type(name: str) -> Any:
    """Return the type of the lines of a name. ``isinstance`` takes it for their class."""
    kind: Any = LINES[name]
    if kind in _MANY:
        import msgspec

        # Frozen dataclasses take fifteen times as long to decode.
        hints = get_type_hints(kind, include_extras=True)
        fields = [(of.name, hints[of.name], *_default(of)) for of in dataclasses.fields(kind)]
        names = {"__class__": property(lambda _: kind)}
        return prepared(msgspec.defstruct(kind.__name__, fields, frozen=True, kw_only=True, namespace=names))
    return prepared(kind)


@cache
def _decoder(name: str) -> Callable[[bytes], RecordLine]:
    import msgspec

    decode: Callable[[bytes], RecordLine] = msgspec.json.Decoder(_type(name)).decode
    return decode


def _default(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    return () if field.default is dataclasses.MISSING else (field.default,)


def read_line(line: bytes) -> RecordLine:
    """Return a line of a record. A sample and a mark have the fields of their class, and another type.

    Raises:
        FileFormatError: If it is not one.
    """
    import msgspec

    found = _LINE.match(line)
    name = found[1].decode() if found else ""
    if name not in LINES:
        raise FileFormatError("not a line of a memory record")
    try:
        if _SURROGATE not in line:
            return _decoder(name)(line)
        # msgspec reads no lone surrogate, such as that of a file name that is not UTF-8.
        fields = json.loads(line)
        del fields["line"]
        found_line: RecordLine = msgspec.convert(fields, _type(name))
        return found_line
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FileFormatError(clipped(printable(str(error)))) from error


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that may be segments of a record, by name.

    Raises:
        FileFormatError: If there are more than 65,536.
        OSError: If the folder cannot be read.
    """
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                found.append(entry.name)
            if len(found) > _MOST_FILES:
                raise FileFormatError(f"more than {_MOST_FILES:,} files that end in {SUFFIX}")
    return [folder / name for name in sorted(found)]


@dataclasses.dataclass(slots=True)
class SegmentReader:
    """A file of a record, and how far it has been read."""

    path: Path
    start: RecordStart | None = None
    """The first line; None until it is complete."""

    problem: str = ""
    """Why the file is not a segment; empty if it may be one."""

    bad_lines: int = 0
    """Number of lines that could not be read."""

    first_problem: str = ""
    """Reason for the first of them."""

    _offset: int = 0
    _line: int = 0
    """Number of lines so far."""

    _unparsed: int = 0
    """Number of lines so far that are no lines of a record."""

    _numbering: Numbering | None = None
    """What its lines mean in the history of its run; None until it is read into one."""

    _last: tuple[int, TimedLine | None] = (0, None)
    """Size of the file when its last line was looked for, and this line."""

    def open_start(self) -> bool:
        """Read the first line, unless it has been read. Return whether there is one."""
        if self.start is None and not self.problem:
            first = next(self._lines(), None)
            if isinstance(first, RecordStart):
                self.start = first
            elif first is not None or self.bad_lines:
                self.problem = "not a memory record"
        return self.start is not None and not self.problem

    def read_into(self, history: History) -> None:
        """Add the lines after the first that were completed since the last call to the history of its run."""
        if self.start is None or self.problem:
            return
        try:
            segment = self._numbering = self._numbering or history.begin(self.start)
        except FileFormatError as error:
            self.problem = str(error)
            return
        for line in self._lines():
            try:
                if line is not None:
                    history.add(line, segment)
            except FileFormatError as error:
                self._leave_out(error)

    def _lines(self) -> Iterator[RecordLine | None]:
        """Yield the complete lines from the place that was reached, None for one that cannot be read."""
        try:
            if not _is_empty(self.path):
                with open_regular(self.path) as file:
                    file.seek(self._offset)
                    yield from self._lines_of(file)
        except FileNotFoundError:
            pass  # thinned away meanwhile
        except OSError as error:
            self.problem = error.strerror or str(error)
        except FileFormatError as error:
            self.problem = str(error)

    def _lines_of(self, file: BinaryIO) -> Iterator[RecordLine | None]:
        while (line := file.readline(_LONGEST_LINE)).endswith(b"\n") or len(line) == _LONGEST_LINE:
            self._line += 1
            self._offset += len(line)
            read = self._read(line)
            if not line.endswith(b"\n") and self.start is not None:
                _pass_line(file)
                self._offset = file.tell()
            yield read
            if self._unparsed > _MOST_BAD_LINES + self._line // _BAD_SHARE:
                raise FileFormatError(f"{self._unparsed:,} of {self._line:,} lines are no lines of a record")

    def last_line(self) -> TimedLine | None:
        """Return the last complete line with a time; None without one.

        It is found from the end of the file, whatever has been read.
        """
        with contextlib.suppress(OSError, FileFormatError):  # which its lines tell
            with open_regular(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != self._last[0]:
                    self._last = size, next(_lines_from_end(file, size), None)
            return self._last[1]
        return None

    @property
    def unread(self) -> str:
        """Why the file or lines of it could not be read, in one line; empty if all were."""
        if self.problem or not self.bad_lines:
            return self.problem
        noun = "line" if self.bad_lines == 1 else "lines"
        return f"{self.bad_lines:,} {noun} left out; {self.first_problem}"

    def _leave_out(self, problem: FileFormatError) -> None:
        """Count a line that cannot be used."""
        self.bad_lines += 1
        self.first_problem = self.first_problem or f"line {self._line:,}: {problem}"

    def _read(self, line: bytes) -> RecordLine | None:
        try:
            if not line.endswith(b"\n"):
                raise FileFormatError(f"longer than {_LONGEST_LINE:,} bytes")
            return read_line(line)
        except FileFormatError as error:
            self._unparsed += 1
            self._leave_out(error)
            return None


def _lines_from_end(file: BinaryIO, size: int) -> Iterator[TimedLine]:
    """Yield lines with a time, the last one first."""
    for tail in _TAILS:
        file.seek(max(size - tail, 0))
        # The first part has no begin, or more lines; the last one is being written.
        for line in reversed(file.read(tail).rsplit(b"\n", _MOST_OF_TAIL + 1)[1:-1]):
            with contextlib.suppress(FileFormatError):
                if not isinstance(found := read_line(line), RecordGroup):
                    yield found


def _is_empty(path: Path) -> bool:
    """Return whether the first line of a file is about to be written."""
    status = os.stat(path)
    return stat.S_ISREG(status.st_mode) and not status.st_size


def _pass_line(file: BinaryIO) -> None:
    """Go to the end of a line, or of the file."""
    while chunk := file.read(_CHUNK):
        end = chunk.find(b"\n")
        if end >= 0:
            file.seek(end + 1 - len(chunk), os.SEEK_CUR)
            return
