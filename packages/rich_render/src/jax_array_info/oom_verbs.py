"""What is printed when a program dies as a device has no memory left."""

from __future__ import annotations

import contextlib
import sys
import weakref
from types import TracebackType
from typing import TextIO

from rich.console import Group
from rich.text import Text

from jax_array_info_core import LiveArrayReport, live_array_report
from jax_array_info_core.collecting import deliver
from jax_array_info_core.exhaustion import out_of_memory_in
from jax_array_info_core.units import printable

from . import style
from .tables import live_array_table
from .verbs import _print

_told: weakref.WeakSet[BaseException] = weakref.WeakSet()
"""The errors that need not be told again, as blocks are nested."""


def report_on_oom(file: TextIO | None = None) -> _ReportOnOom:
    """Return a context manager that prints what was live when a device has no memory left.

    When an exception leaves the block, or the function that it decorates, and it is RESOURCE_EXHAUSTED, was
    caused by one or raised while one was handled, then the table of ``print_array_stats`` is printed,
    by size and with the lines that made the arrays. The exception goes on as it is. An error is told
    once, however many blocks it leaves; within ``collect_reports`` the report is gathered.

    >>> @report_on_oom()
    ... def train(): ...

    Args:
        file: Where to print; ``sys.stderr`` when None.
    """
    return _ReportOnOom(file)


class _ReportOnOom(contextlib.ContextDecorator):
    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            tell_if_out_of_memory(error, self._file)


def tell_if_out_of_memory(error: BaseException, file: TextIO | None = None) -> None:
    """Print what is live, if an exception says that a device has no memory left; raises nothing.

    Its traceback still holds what the functions held that it has left.
    """
    file = sys.stderr if file is None else file
    try:
        cause = out_of_memory_in(error)
        if cause is None or cause in _told:
            return
        with contextlib.suppress(TypeError):  # most built-in exceptions take no weak references
            _told.add(cause)
        reason = str(cause).partition("\n")[0]
        deliver(live_array_report(origins=True), lambda report: _show(report, reason, file))
    except Exception as problem:
        # Whatever it is, it must not hide the user's exception.
        with contextlib.suppress(Exception):
            words = f"{type(problem).__name__}: {problem}".partition("\n")[0]
            print(f"what was live cannot be told: {printable(words, 'ascii')}", file=file)


def _show(report: LiveArrayReport, reason: str, file: TextIO | None) -> None:
    _print(
        lambda console: Group(
            Text(printable(f"what was live at {reason}", console.encoding), style.WARNING, overflow="fold"),
            live_array_table(report, encoding=console.encoding),
        ),
        file=file,
    )
