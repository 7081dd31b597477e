"""A progress bar on stderr while a command reads files."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

_SECONDS = 1.0
"""Seconds until the bar appears."""
_BAR_WIDTH = 20


@contextlib.contextmanager
def progress_bar(task: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that updates a progress bar, or None if stderr is not a terminal that can show one.

    The function takes the amount that is done and the total. The bar appears after the first second, also if
    the function was not called, and is erased at the end.

    Args:
        task: Description before the bar, such as ``reading model.safetensors``.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    from jax_array_info.console import terminal_console

    console = terminal_console(file=sys.stderr)
    if console.is_dumb_terminal:
        yield None
        return
    room = max(console.width - _BAR_WIDTH - 2, 1)
    column = Column(no_wrap=True, overflow="ellipsis", max_width=room)
    description = TextColumn("{task.description}", markup=False, table_column=column)
    bar = Progress(description, BarColumn(_BAR_WIDTH), console=console, transient=True)
    added = bar.add_task(task, total=None)
    timer = threading.Timer(_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: bar.update(added, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
