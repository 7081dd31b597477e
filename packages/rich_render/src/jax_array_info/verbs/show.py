"""Output of the functions that print, on the console or below a notebook cell."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType

from jax_array_info_core import config
from jax_array_info_core.arrays.delivery import deliver
from jax_array_info_core.base.notebooks import Displayed
from jax_array_info_core.compat import processes
from jax_array_info_core.facts.pages.folds import check_max_rows

from ..engine.render import print_page, render
from ..export.notebook import bundle_of, display
from ..style import ForConsole, shows_colors, terminal_console

if TYPE_CHECKING:
    from jax_array_info_core.reports import Report

    from ..export.document import Part

_P = ParamSpec("_P")
_R = TypeVar("_R", bound="Report")


def verb(function: Callable[_P, None]) -> Callable[_P, None]:
    """Return a verb that checks ``max_rows`` before anything is computed.

    It ignores its errors while the interpreter shuts down, as in a ``__del__``. Modules may then be gone and
    their globals cleared, so the wrapper uses no globals.
    """
    check, is_finalizing, anything = check_max_rows, sys.is_finalizing, Exception
    # Other verbs may pass such an argument to the user's function.
    has_rows = "max_rows" in inspect.signature(function).parameters

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            if has_rows:
                check(kwargs.get("max_rows"))
            function(*args, **kwargs)
        except anything:
            if not is_finalizing():
                raise

    return run


def prints_here() -> bool:
    """Return whether this process prints, by ``config.process``."""
    return config.process == "all" or config.process == processes.process_index()


def report_on_two(first: Any, second: Any, kind: type[_R], make: Callable[..., _R], **options: Any) -> _R:
    """Return the first argument if it is a report of a kind, else the report on both.

    Raises:
        TypeError: If the second argument is missing or None, or given with a report, as are options.
    """
    if isinstance(first, kind):
        refuse_with(kind, ["the second argument"] * (second is not None) + _given(make, options))
        return first
    if second is None:
        raise TypeError(f"expected two arguments, or a {kind.__name__} alone, got {type(first)} and None")
    return make(first, second, **options)


def report_of(first: Any, kind: type[_R], make: Callable[..., _R], **options: Any) -> _R:
    """Return the first argument if it is a report of a kind, else the report on it.

    Args:
        first: What is printed.
        kind: Class of the report.
        make: Function that returns the report on the first argument.
        **options: Further arguments of this function.

    Raises:
        TypeError: If a report is given with options that are not their defaults.
    """
    if not isinstance(first, kind):
        return make(first, **options)
    refuse_with(kind, _given(make, options))
    return first


def _given(make: Callable[..., Any], options: dict[str, Any]) -> list[str]:
    """Return the options that are not their defaults, as they are written."""
    if not options:
        return []
    defaults = inspect.signature(make).parameters
    return [f"{name}=" for name, value in options.items() if _differs(value, defaults[name])]


def _differs(value: Any, parameter: inspect.Parameter) -> bool:
    default = parameter.default
    is_plain = type(value) is type(default) and isinstance(default, (bool, int, float, str, tuple))
    return value is not default and not (is_plain and value == default)


def refuse_with(kind: type, arguments: Sequence[str]) -> None:
    """Raise TypeError if there are arguments in addition to a report of a kind."""
    if arguments:
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise TypeError(f"{article} {kind.__name__} is printed as it is: remove {', '.join(arguments)}")


def print_table(report: Report, **options: Any) -> None:
    """Deliver a report, and print its page if no ``collect_reports`` block takes it.

    Args:
        report: The report.
        **options: Options of the page, such as ``max_rows``.
    """
    deliver(report, lambda report: show_table(report, **options))


def show_table(report: Report, **options: Any) -> None:
    """Print the page of a report, as ``print_table`` does."""
    show_rendered(
        ForConsole(
            lambda console, room: render(
                report, width=room.max_width, use_color=shows_colors(console), **options
            )
        ),
        parts=lambda: parts_of_report(report, **options),
    )


@verb
def print_report(report: Report) -> None:
    """Print any report, as the function that makes and prints it does.

    >>> from jax_array_info import planned_report, print_report
    >>> print_report(planned_report((16, 16), {"data": 4}, ("data", None)))
    ╭────────────────────────────────────────────────╮
    │ shape: (16, 16)                                │
    │ dtype: float32                                 │
    │ size: 1.0 KiB                                  │
    │ per device: 256.0 B (1/4)                      │
    │ NamedSharding: P('data', None)                 │
    │ axis 0 is sharded: device 0 contains 0:4 (1/4) │
    │                    Total size: 16              │
    │ mesh: data=4                                   │
    ╰────────────────────────────────────────────────╯

    Args:
        report: The report, such as one that ``from_json`` returned.

    Raises:
        TypeError: If ``report`` is not a report.
    """
    if not isinstance(report, Displayed):
        raise TypeError(f"expected a report, got {type(report)}: sharding_info prints any value")
    print_table(report)


def parts_of_report(report: Report, **options: Any) -> Sequence[Part]:
    """Return the parts of a report for a notebook. The drawing code is imported only there."""
    from ..export.document import parts_of

    return parts_of([report], **options)


def show_rendered(
    renderable: RenderableType,
    *,
    most: int | None = None,
    file: TextIO | None = None,
    parts: Callable[[], Sequence[Part]] | None = None,
) -> None:
    """Print a rendered report, if this process prints.

    Args:
        renderable: The rendered report.
        most: Maximum line length in characters, if the console is wider.
        file: File to print to, in text mode. None for stdout or the notebook.
        parts: Function that returns the notebook's version of the report.
    """
    if not prints_here():
        return
    console = terminal_console(most=most, file=file)
    if console.is_jupyter:
        display(bundle_of(renderable, parts or (lambda: [renderable]), console.width))
    else:
        print_page(console, renderable)


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
    return None if not is_terminal or not prints_here() or terminal_console().is_jupyter else sys.stderr
