"""Progress line of a long search, erased when the search ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from ..console import terminal_console
from .show import prints_here

_FIRST = 1.0
"""Seconds until the line first appears. It is then updated every second."""


@contextlib.contextmanager
def progress_line(task: str, max_seconds: float | None) -> Iterator[Callable[[float], None] | None]:
    """Yield a function that shows the elapsed seconds on stderr, or None if stderr is not a terminal.

    Nothing is shown in pipes, files and notebooks.

    Args:
        task: Name of the search, as ``searching for referrers``.
        max_seconds: Time limit in seconds, which the line shows too. None for no limit.
    """
    terminal = _terminal()
    if terminal is None:
        yield None
        return
    line = _Line(terminal, task, "" if max_seconds is None else f" (max_seconds={max_seconds:g})")
    try:
        yield line.show
    finally:
        line.erase()


class _Line:
    def __init__(self, terminal: TextIO, task: str, limit: str) -> None:
        self._terminal = terminal
        self._task, self._limit = task, limit
        self._next = _FIRST
        self._shown = ""

    def show(self, seconds: float) -> None:
        """Show the line after the first second, and then once per second."""
        if seconds < self._next:
            return
        self._next = int(seconds) + 1.0
        text = f"{self._task}: {int(seconds)} s{self._limit}"
        # A character in the last column may wrap to the next line.
        room = max(terminal_console(file=self._terminal).width - 1, 0)
        self._shown = text if cell_len(text) <= room else set_cell_size(text, room)
        self._write(f"\r{self._shown}")

    def erase(self) -> None:
        if self._shown:
            self._write(f"\r{' ' * cell_len(self._shown)}\r")

    def _write(self, text: str) -> None:
        # stderr may have been closed.
        with contextlib.suppress(OSError, ValueError):
            self._terminal.write(text)
            self._terminal.flush()


def _terminal() -> TextIO | None:
    """Return stderr if it is a terminal and this process prints, else None."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is missing or closed
        return None
    if not is_terminal or not prints_here() or terminal_console().is_jupyter:
        return None
    return sys.stderr
