"""A progress bar on stderr while a command reads files."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SECONDS = 1.0
"""Seconds until the bar appears."""
_BAR_WIDTH = 20


@contextlib.contextmanager
def progress_bar(task: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that updates a progress bar, or None if stderr is not a terminal.

    The function takes the amount that is done and the total. The bar appears after the first second, also if
    the function was not called, and is erased at the end.

    Args:
        task: Description before the bar, such as ``reading model.safetensors``.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(task)
    timer = threading.Timer(_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.stop()


class _Bar:
    """A bar that is started by one thread, and updated and stopped by another."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._amounts: tuple[int, int | None] = (0, None)
        self._is_over = False

    def start(self) -> None:
        """Show the bar, unless reading is over or the terminal cannot move its cursor."""
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        from jax_array_info.console import terminal_console

        console = terminal_console(file=sys.stderr)
        with self._lock:
            if self._is_over or console.is_dumb_terminal:
                return
            room = max(console.width - _BAR_WIDTH - 2, 1)
            column = Column(no_wrap=True, overflow="ellipsis", max_width=room)
            description = TextColumn("{task.description}", markup=False, table_column=column)
            self._progress = Progress(description, BarColumn(_BAR_WIDTH), console=console, transient=True)
            done, total = self._amounts
            self._progress.add_task(self._task, completed=done, total=total)
            self._progress.start()

    def update(self, done: int, total: int) -> None:
        """Show how much is done."""
        with self._lock:
            self._amounts = done, total
            if self._progress is not None:
                self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def stop(self) -> None:
        """Erase the bar."""
        with self._lock:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()
