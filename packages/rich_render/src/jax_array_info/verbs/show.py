"""How every verb prints: on the console, or under the cell of a notebook."""

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
    """Let a verb print nothing where it fails because the interpreter is ending, as in a ``__del__``.

    By then modules are gone, and Python has cleared the globals of those that are left, so that the
    wrapper uses none.
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
    """Return whether this process shall print."""
    return config.process == "all" or config.process == compat.process_index()


def show_rendered(
    renderable: RenderableType,
    *,
    most: int | None = None,
    file: TextIO | None = None,
    parts: Callable[[], Sequence[Part]] | None = None,
) -> None:
    """Print what a renderer has made of a report, where this process shall print.

    Args:
        renderable: What to print.
        most: Number of characters a line may have, where the console is wider.
        file: Where to print, as text; the standard output, or the notebook, when None.
        parts: Returns what is shown in a notebook instead.
    """
    if not prints_here():
        return
    console = terminal_console(most=most, file=file)
    if console.is_jupyter:
        display(bundle_of(renderable, parts or (lambda: [renderable]), console.width))
    else:
        console.print(renderable, crop=False, highlight=False)
