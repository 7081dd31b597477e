"""A line on the terminal that shows the progress of a long search, and is erased after it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from ..console import terminal_console
from .show import prints_here

_FIRST = 1.0
"""After how many seconds the line is shown; each second it is shown again."""


@contextlib.contextmanager
def progress_line(what: str, max_seconds: float | None) -> Iterator[Callable[[float], None] | None]:
    """Yield a function that shows on stderr how long something has taken; None without a terminal.

    It is shown on a terminal alone: not in pipes, files and notebooks.

    Args:
        what: What takes so long.
        max_seconds: How long it may take; None for no bound.
    """
    terminal = _terminal()
    if terminal is None:
        yield None
        return
    line = _Line(terminal, what, "" if max_seconds is None else f" (max_seconds={max_seconds:g})")
    try:
        yield line.show
    finally:
        line.erase()


class _Line:
    def __init__(self, terminal: TextIO, what: str, bound: str) -> None:
        self._terminal = terminal
        self._what, self._bound = what, bound
        self._next = _FIRST
        self._shown = ""

    def show(self, seconds: float) -> None:
        """Show the line after the first second, and then once a second."""
        if seconds < self._next:
            return
        self._next = int(seconds) + 1.0
        text = f"{self._what}: {int(seconds)} s{self._bound}"
        # In the last column, a terminal may go on to the next line.
        room = max(terminal_console(file=self._terminal).width - 1, 0)
        self._shown = text if cell_len(text) <= room else set_cell_size(text, room)
        self._write(f"\r{self._shown}")

    def erase(self) -> None:
        if self._shown:
            self._write(f"\r{' ' * cell_len(self._shown)}\r")

    def _write(self, text: str) -> None:
        # stderr may be closed meanwhile.
        with contextlib.suppress(OSError, ValueError):
            self._terminal.write(text)
            self._terminal.flush()


def _terminal() -> TextIO | None:
    """Return stderr where it is a terminal, None elsewhere and where this process shall not print."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None
    if not is_terminal or not prints_here() or terminal_console().is_jupyter:
        return None
    return sys.stderr
