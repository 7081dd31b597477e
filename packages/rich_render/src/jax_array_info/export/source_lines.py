"""Lines of Python source around given line numbers."""

from __future__ import annotations

import io
import linecache
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.stored.reading import Budget, read_whole

_MOST_BYTES = 2**21
"""Maximum size of a source file."""
_LONGEST_FUNCTION = 40
"""Functions of up to this number of lines are shown whole."""
_AROUND = 4
"""Number of lines before and after a line in a longer function."""
_SHORTEST_GAP = 3
"""Shorter gaps between shown lines are filled."""
_SHARED_NAMES = ("<string>", "<stdin>", "<unknown>")
"""Names that several sources share: Python 3.13 keeps the source of ``python -c`` as ``<string>``."""
_STARTS = ("def ", "async def ")


def source_lines(file: str) -> list[str]:
    """Return the lines of a Python file, or of a notebook cell; empty if they cannot be read.

    A report can come from someone else's JSON: only files whose name ends in ``.py`` are read.

    Args:
        file: Path or name, as Python records it.
    """
    if file.endswith(".py"):
        try:
            return _decoded(read_whole(Path(file), Budget(_MOST_BYTES)))
        except (OSError, FileFormatError, SyntaxError, ValueError):
            pass
    is_name = file.startswith("<") and file.endswith(">") and file not in _SHARED_NAMES
    if is_name or (file in linecache.cache and not file.startswith("<")):
        return [line.rstrip("\r\n") for line in linecache.getlines(file)]
    return []


def _decoded(data: bytes) -> list[str]:
    """Return the lines of a source file, in the encoding that it declares.

    Raises:
        SyntaxError: If it declares an unknown encoding.
        ValueError: If it is not text.
    """
    if b"\0" in data:
        raise ValueError("a binary file")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    # As in Python, form feeds and other separators of str.splitlines are within a line.
    text = data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")


def shown_ranges(lines: Sequence[str], numbers: Iterable[int]) -> list[range]:
    """Return the ranges of line numbers to show, from 1: short functions as a whole, others in part.

    Functions are found by indentation, so a range can be wrong for unusual source, but never fails.

    Args:
        lines: The lines of the file.
        numbers: Line numbers within the file.
    """
    wanted = sorted({shown for number in numbers for shown in _around(lines, number)})
    ranges: list[range] = []
    for number in wanted:
        if ranges and number - ranges[-1].stop < _SHORTEST_GAP:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return ranges


def _around(lines: Sequence[str], number: int) -> Iterator[int]:
    """Yield the line numbers to show around a line."""
    start = _function_start(lines, number)
    stop = len(lines) if start is None else _function_stop(lines, start)
    if start is not None and stop - start <= _LONGEST_FUNCTION:
        yield from range(start, stop)
        return
    if start is not None:
        yield start
    yield from range(max(1, number - _AROUND), min(len(lines), number + _AROUND) + 1)


def _function_start(lines: Sequence[str], number: int) -> int | None:
    """Return the line number of the function around a line; None in module-level code."""
    indent = _indent(lines[number - 1])
    for candidate in range(number, 0, -1):
        line = lines[candidate - 1]
        if not line.strip():
            continue
        is_outside = _indent(line) < indent or candidate == number
        if is_outside and line.lstrip().startswith(_STARTS):
            return candidate
        indent = min(indent, _indent(line))
    return None


def _function_stop(lines: Sequence[str], start: int) -> int:
    """Return the line number after the last line of a function."""
    indent, last = _indent(lines[start - 1]), start
    for number in range(start + 1, len(lines) + 1):
        line = lines[number - 1]
        if not line.strip():
            continue
        # The closing parenthesis of a signature is not indented.
        if _indent(line) <= indent and not line.lstrip().startswith((")", "]", "}")):
            break
        last = number
    return last + 1


def _indent(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())
