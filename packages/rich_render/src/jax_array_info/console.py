"""The console for all output, with the width and colors that the environment sets."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from rich.console import Console

_DEFAULT_WIDTH = 80
_ANY_HEIGHT = 100
"""Without a height, Rich assumes 80 columns if TERM=dumb, and ignores ``COLUMNS``."""
WIDEST = 10_000
"""Maximum width: Rich pads lines with blanks, so a huge ``COLUMNS`` would cost gigabytes."""


class _TerminalConsole(Console):
    """A console that raises BrokenPipeError when its pipe is closed, as ``print`` does."""

    def on_broken_pipe(self) -> None:
        """Re-raise the BrokenPipeError. Rich would end the program and redirect its stdout."""
        raise  # Rich calls this in its except block.


def terminal_console(*, most: int | None = None, file: TextIO | None = None, plain: bool = False) -> Console:
    """Return a console for stdout or a file, set up from the environment.

    The width comes from ``COLUMNS``, else from the terminal, else it is 80; it is at most 10,000. A
    ``COLUMNS`` that is not a positive number is ignored. ``NO_COLOR`` removes colors and keeps bold,
    ``FORCE_COLOR`` adds colors in pipes and files, and ``TERM=dumb`` removes all escapes. Renderers replace
    the characters that the encoding lacks.

    Args:
        most: Maximum width, which is also the width if neither ``COLUMNS`` nor a terminal sets one.
        file: File to write to, in text mode. None for stdout or the notebook.
        plain: Whether to omit colors regardless of the environment.
    """
    console = _TerminalConsole(
        file=file,
        width=most,
        height=_ANY_HEIGHT,
        force_terminal=False if plain else None,
        force_jupyter=None if file is None else False,
        # Rich fails on a COLUMNS with digits other than 0 to 9.
        _environ={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )
    if not console.is_jupyter:
        known = min(shutil.get_terminal_size((0, 0)).columns, WIDEST)
        if most is None:
            # If stdout is a pipe, Rich takes the width of the terminal of stdin or stderr.
            console.width = known or console.width or _DEFAULT_WIDTH
        elif known:
            console.width = min(most, known)
    return console


def shows_colors(console: Console) -> bool:
    """Return whether to fill pictures with colors: not in pipes, files or a notebook's text output."""
    return console.color_system is not None and not (console.no_color or console.is_jupyter)
