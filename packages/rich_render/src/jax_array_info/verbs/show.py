"""Output of the functions that print, on the console or below a notebook cell."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TextIO

from rich.console import RenderableType

from jax_array_info_core import compat, config

from ..console import terminal_console
from ..export.notebook import bundle_of, display

if TYPE_CHECKING:
    from ..export.document import Part

_P = ParamSpec("_P")


def silent_at_exit(function: Callable[_P, None]) -> Callable[_P, None]:
    """Return a verb that ignores its errors while the interpreter shuts down, as in a ``__del__``.

    At shutdown, modules may be gone and their globals cleared, so the wrapper uses no globals.
    """
    is_finalizing, anything = sys.is_finalizing, Exception

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except anything:
            if not is_finalizing():
                raise

    return run


def prints_here() -> bool:
    """Return whether this process prints, by ``config.process``."""
    return config.process == "all" or config.process == compat.process_index()


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
        console.print(renderable, crop=False, highlight=False)
