"""Drawings that change on a terminal: a progress bar, and a page on the whole of it, with keys.

The page is drawn each second until it is quit. The terminal is restored whichever way it ends: a key, an
exception, a signal. It is also restored while the program is suspended, and set up again afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_SECONDS = 1.0
"""Seconds until a progress bar appears."""
_BAR_WIDTH = 20
EVERY = 1.0
"""Seconds between two pages."""
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_KEY = re.compile(r"\x1b[\[O]([A-D])|\x1b\[[0-9;]*[ -/]*[@-~]|(.)", re.DOTALL)
"""An arrow, another key that sends an escape sequence, or a character."""
_DEADLY = ("SIGTERM", "SIGHUP", "SIGQUIT")
_HANDLED = ("SIGINT", "SIGTSTP", "SIGCONT", "SIGWINCH", *_DEADLY)
_SIGCONT, _SIGHUP, _SIGWINCH = (
    getattr(signal, name, None) for name in ("SIGCONT", "SIGHUP", "SIGWINCH")
)  # Windows has none of them


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

    from ..style import terminal_console

    console = terminal_console(file=sys.stderr)
    if console.is_dumb_terminal:
        yield None
        return
    column = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - _BAR_WIDTH - 2, 1))
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


def can_show(console: Console) -> bool:
    """Return whether stdout is a terminal on which a page can be drawn in place."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and console.is_interactive and not console.is_dumb_terminal


def show_pages(
    console: Console, draw: Callable[[int, int], RenderableType], on_key: Callable[[str], bool]
) -> None:
    """Draw a page each second, and after each key and each change of the terminal's size, until it is quit.

    Ctrl+C quits. A signal that ends the program does so after the terminal was restored. If the standard
    input is not a terminal, or on Windows, there are no keys.

    Args:
        console: Console of the terminal. Its size follows that of the terminal.
        draw: Function of the width and the height of the terminal that returns the page.
        on_key: Function of a key, a character or ``up``, ``down``, ``left`` and ``right``. Returns whether to
            quit.
    """
    from rich.live import Live

    keyboard = keyboard_of_terminal()
    screen = partial(Live, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with _Signals() as signals:
        reason: int | None = signal.SIGINT
        while True:
            try:
                with _cbreak(keyboard), screen(console=console) as live:
                    reason = _show(live, keyboard, signals, draw, on_key)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                reason = _SIGHUP  # the terminal is gone
            if reason is None or reason == signal.SIGINT:
                return
            if reason != _SIGCONT:  # after a stop that was not noticed, the terminal is only set up again
                signals.obey(reason)


def keyboard_of_terminal() -> int | None:
    """Return the descriptor of the standard input if its keys can be read one by one, else None."""
    try:
        import termios  # noqa: F401
    except ImportError:
        return None
    return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None


def _show(
    live: Live,
    keyboard: int | None,
    signals: _Signals,
    draw: Callable[[int, int], RenderableType],
    on_key: Callable[[str], bool],
) -> int | None:
    """Draw pages until a key quits, and return None, or until a signal comes, and return its number."""
    from rich.console import ConsoleDimensions

    while True:
        received = signals.take()
        if received is not None:
            return received
        width, height = shutil.get_terminal_size()
        live.console.size = ConsoleDimensions(width, height)
        live.update(draw(width, height), refresh=True)
        due = time.monotonic() + EVERY
        is_changed = False
        while not is_changed and (seconds := due - time.monotonic()) > 0:
            sources = [signals.fileno(), *([] if keyboard is None else [keyboard])]
            ready, _, _ = select.select(sources, [], [], seconds)
            is_changed = bool(ready)
            if signals.fileno() in ready:
                signals.clear()
            if keyboard is not None and keyboard in ready:
                if not (keys := _keys(keyboard)):
                    return _SIGHUP  # the end of a terminal that is gone
                if any(on_key(key) for key in keys):
                    return None


def _keys(keyboard: int) -> list[str]:
    """Return the keys that were pressed; none at the end of the file."""
    typed = os.read(keyboard, 1024).decode("latin-1")
    return [_ARROWS.get(arrow, char) or "other" for arrow, char in _KEY.findall(typed)]


@contextlib.contextmanager
def _cbreak(keyboard: int | None) -> Iterator[None]:
    """Let the terminal pass on each key at once and without showing it; signals of keys stay."""
    if keyboard is None:
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard, termios.TCSADRAIN)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


class _Signals:
    """Signals that wait until the terminal is restored."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._handlers: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def __enter__(self) -> _Signals:
        self._former = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in filter(None, (getattr(signal, name, None) for name in _HANDLED)):
            # nohup and background jobs of a shell ignore some signals on purpose.
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN:
                self._handlers[number] = handler
                signal.signal(number, self._receive)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former)
        self._reader.close()
        self._writer.close()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number != _SIGWINCH:
            self._received.append(number)

    def fileno(self) -> int:
        """Return the descriptor that can be read after a signal."""
        return self._reader.fileno()

    def clear(self) -> None:
        """Wait for further signals."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def take(self) -> int | None:
        """Return the next signal, except for changes of the size; None if there is none."""
        return self._received.pop(0) if self._received else None

    def obey(self, number: int) -> None:
        """Do what a signal does by default: suspend the program until it is continued, or end it."""
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, handler)
        self._received = [other for other in self._received if other != _SIGCONT]
