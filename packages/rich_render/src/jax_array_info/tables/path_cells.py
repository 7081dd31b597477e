"""Cells with the path of a leaf, which is never truncated."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from jax_array_info_core.text import printable

from .. import style
from .trees import path_lines


class PathCell:
    """A path that wraps after ``/``, and inside a key only if the key is longer than the line.

    Args:
        path: Path of a leaf, or of several whose indices are folded.
        count: Number of leaves.
        note: Text in the next line, indented.
    """

    def __init__(self, path: str, count: int = 1, note: str = "") -> None:
        self._path = path or "(root)"
        self._count = count
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        path, note = self._texts(options)
        lines = path_lines(path, options.max_width)
        if note:
            lines += [f"  {line}" for line in chop_cells(note, max(1, options.max_width - 2))]
        yield Text("\n".join(lines), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        path, note = self._texts(options)
        longest_key = max(cell_len(key) + 1 for key in path.split("/"))
        widest = max(cell_len(path), cell_len(note) + 2 if note else 0)
        return Measurement(min(longest_key, widest), widest).with_maximum(options.max_width)

    def _texts(self, options: ConsoleOptions) -> tuple[str, str]:
        path, note = (printable(text, options.encoding) for text in (self._path, self._note))
        times = style.marks(options.encoding).times
        return path if self._count == 1 else f"{path} {times}{self._count}", note
