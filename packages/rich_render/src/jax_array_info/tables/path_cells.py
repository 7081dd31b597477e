"""Cells with the path of a leaf, which is never truncated."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from jax_array_info_core.text import printable


class PathCell:
    """A path that wraps after ``/``, and inside a key only if the key is longer than the line.

    Args:
        path: Path of a leaf.
        note: Text in the next line, indented.
    """

    def __init__(self, path: str, note: str = "") -> None:
        self._path = path or "(root)"
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        path, note = self._texts(options)
        lines = _lines(path, options.max_width)
        if note:
            lines += [f"  {line}" for line in chop_cells(note, max(1, options.max_width - 2))]
        yield Text("\n".join(lines), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        path, note = self._texts(options)
        widest = max(cell_len(path), cell_len(note) + 2 if note else 0)
        return Measurement(max(map(cell_len, _keys(path))), widest).with_maximum(options.max_width)

    def _texts(self, options: ConsoleOptions) -> tuple[str, str]:
        return printable(self._path, options.encoding), printable(self._note, options.encoding)


def _keys(path: str) -> list[str]:
    """Return the keys of a path, each with the slash after it."""
    return re.findall("[^/]*/|[^/]+", path)


def _lines(path: str, width: int) -> list[str]:
    lines = [""]
    for key in _keys(path):
        if lines[-1] and cell_len(lines[-1]) + cell_len(key) > width:
            lines.append("")
        lines[-1:] = chop_cells(lines[-1] + key, width)
    return lines
