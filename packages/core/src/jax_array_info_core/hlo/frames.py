"""Source lines in XLA's text: tables of stack frames, and ``source_file`` of the metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .attributes import read_fields, unescaped
from .module import Frame

SECTIONS = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
"""Titles of the tables at the beginning of a program, since JAX 0.8."""

# JAX keeps ten frames of each operation, unless it is asked for more.
_DEEPEST = 100

_NAME = re.compile(r'(\d{1,9}) "(.*)"')
_ROW = re.compile(r"(\d{1,9}) \{(\w+=\d{1,9}(?: \w+=\d{1,9})*)\}")


@dataclass(slots=True)
class FrameTables:
    """Tables of a program, filled line by line."""

    names: dict[str, dict[int, str]] = field(default_factory=lambda: {"FileNames": {}, "FunctionNames": {}})
    """Names of files and of functions by number."""

    rows: dict[str, dict[int, dict[str, int]]] = field(
        default_factory=lambda: {"FileLocations": {}, "StackFrames": {}}
    )
    """Locations and frames by number: the fields of each."""

    _known: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    """Stacks that were asked for, by the number of the innermost frame."""

    _first: int | None = None
    """What the outermost frame has as the number of its parent."""

    def add(self, section: str, line: str) -> bool:
        """Add a line of a table. Return whether it could be read."""
        if section in self.names:
            name = _NAME.fullmatch(line)
            if name is not None:
                self.names[section][int(name[1])] = unescaped(name[2])
            return name is not None
        row = _ROW.fullmatch(line)
        if row is not None:
            fields = {key: int(value) for key, value in read_fields(row[2]).items()}
            self.rows[section][int(row[1])] = fields
        return row is not None

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return a frame and its callers, innermost first; empty for an unknown number."""
        if number not in self._known:
            self._known[number] = tuple(self._walk(number))
        return self._known[number]

    def _walk(self, number: int) -> list[Frame]:
        """Return a frame and its callers, up to one that is missing."""
        frames = self.rows["StackFrames"]
        if self._first is None:
            # XLA prints the number of the parent plus one, so the outermost frame seems to be its own parent.
            # A version that prints the number itself has 0 there, or nothing.
            self._first = min((row.get("parent_frame_id", 0) for row in frames.values()), default=0)
            self._first = min(self._first, 1)
        found: list[Frame] = []
        for _ in range(_DEEPEST):
            if number not in frames:
                break
            frame = self._frame(frames[number].get("file_location_id", 0))
            if frame is not None:
                found.append(frame)
            number = frames[number].get("parent_frame_id", 0) - self._first
        return found

    def _frame(self, location: int) -> Frame | None:
        """Return the frame at a location; None if it is unknown."""
        fields = self.rows["FileLocations"].get(location, {})
        file = self.names["FileNames"].get(fields.get("file_name_id", 0))
        if file is None:
            return None
        function = self.names["FunctionNames"].get(fields.get("function_name_id", 0), "")
        return Frame(file, fields.get("line", 0), function)


def frames_of(metadata: dict[str, str], tables: FrameTables) -> tuple[Frame, ...]:
    """Return the source lines of an instruction, innermost first.

    Up to JAX 0.7 the metadata has one file and line, without a function.
    """
    number = metadata.get("stack_frame_id", "")
    if _is_number(number):
        stack = tables.stack(int(number))
        if stack:
            return stack
    file, line = metadata.get("source_file"), metadata.get("source_line", "0")
    return (Frame(file, int(line), ""),) if file and _is_number(line) else ()


def _is_number(text: str) -> bool:
    """Return whether a text is a number of at most nine digits."""
    return len(text) < 10 and text.isdecimal()
