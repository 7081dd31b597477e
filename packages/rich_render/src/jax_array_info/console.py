"""The console that everything is printed on: as wide and as colourful as the environment says."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from rich.console import Console

_WIDTH_OF_NOTHING = 80
_ANY_HEIGHT = 100
"""Without one, rich takes a dumb terminal for 80 columns wide, whatever it is and ``COLUMNS`` says."""
WIDEST = 10_000
"""The widest console: rich fills lines with blanks, so ``COLUMNS`` must not decide on gigabytes."""


class _TerminalConsole(Console):
    """A console that fails as ``print`` does when its pipe is closed."""

    def on_broken_pipe(self) -> None:
        """Let the BrokenPipeError go on; Rich would end the program and take its stdout away."""
        raise  # Rich calls this while it handles the error.


def terminal_console(*, most: int | None = None, file: TextIO | None = None, plain: bool = False) -> Console:
    """Return a console for stdout, or for a file, that heeds the environment.

    Its width is that of ``COLUMNS``, else of the terminal, else 80, and at most 10,000; ``COLUMNS`` that is
    no positive number counts as none. ``NO_COLOR`` takes the colours away and leaves bold; ``FORCE_COLOR``
    brings them to pipes and files; ``TERM=dumb`` has no escapes at all. What the encoding lacks is the
    renderers' care.

    Args:
        most: How wide it is at most, and where nothing says how wide the terminal is.
        file: Where it writes, as text; stdout, or the notebook, when None.
        plain: Whether there are no colours whatever the environment says.
    """
    console = _TerminalConsole(
        file=file,
        width=most,
        height=_ANY_HEIGHT,
        force_terminal=False if plain else None,
        force_jupyter=None if file is None else False,
        # Rich reads other digits than 0 to 9 as a number, and fails.
        _environ={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )
    if not console.is_jupyter:
        known = min(shutil.get_terminal_size((0, 0)).columns, WIDEST)
        if most is None:
            # Of stdout that is a pipe, rich asks stdin and stderr how wide the terminal is.
            console.width = known or console.width or _WIDTH_OF_NOTHING
        elif known:
            console.width = min(most, known)
    return console


def shows_colors(console: Console) -> bool:
    """Return whether pictures may be filled with colours: not in pipes, in files, in a notebook's text."""
    return console.color_system is not None and not (console.no_color or console.is_jupyter)
