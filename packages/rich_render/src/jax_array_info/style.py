"""The console for all output, its styles and marks, with a fallback for encodings that lack them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from jax_array_info_core.base.text import clipped, printable

LEAST_WIDTH = 20
"""Least width of a picture or a page."""
LENGTH = "bold magenta"
SHARDED_LENGTH = "bold green"
VARYING_LENGTH = "bold bright_cyan"
PUNCTUATION = "blue"
ASIDE = "bright_black"
WARNING = "red"


class Marks(NamedTuple):
    """Characters beyond ASCII that pictures and tables use, or their ASCII substitutes."""

    check: str
    times: str
    at_most: str
    horizontals: str
    """Horizontal lines, by weight: between devices, round a host, round a slice."""
    verticals: str
    boxes: Mapping[tuple[int, int], str]
    """Corners and crossings of boxes by the weights of their vertical and horizontal lines: left, middle and
    right of the first, the middle and the last line."""
    bar: tuple[str, str, str]
    """Characters for memory in use, memory up to the peak, and free memory."""
    skipped_rows: str
    """Placeholder for rows that are left out."""
    skipped_columns: str
    becomes: str
    """Arrow from a figure before to the one after."""

    @property
    def horizontal(self) -> str:
        """The light horizontal line."""
        return self.horizontals[0]

    @property
    def vertical(self) -> str:
        """The light vertical line."""
        return self.verticals[0]


_UNICODE = Marks(
    "✔",
    "×",
    "≤",
    "─━═",
    "│┃║",
    {
        (0, 0): "┌┬┐├┼┤└┴┘",
        (0, 1): "┍┯┑┝┿┥┕┷┙",
        (0, 2): "╒╤╕╞╪╡╘╧╛",
        (1, 0): "┎┰┒┠╂┨┖┸┚",
        (1, 1): "┏┳┓┣╋┫┗┻┛",
        (2, 0): "╓╥╖╟╫╢╙╨╜",
        # No character joins a heavy and a double line.
        **dict.fromkeys([(1, 2), (2, 1), (2, 2)], "╔╦╗╠╬╣╚╩╝"),
    },
    ("█", "▒", "░"),
    "⋮",
    "⋯",
    "→",
)
_ASCII = Marks(
    "yes",
    "x",
    "<=",
    "-=#",
    "|HH",
    {(down, across): "+" * 9 for down in range(3) for across in range(3)},
    ("#", "+", "."),
    ":",
    "...",
    "->",
)


def marks(encoding: str) -> Marks:
    """Return the marks that an encoding can show. Rich too draws boxes only in the UTF family."""
    return _UNICODE if encoding.lower().startswith("utf") else _ASCII


class ForConsole:
    """A renderable that is made when it is printed, for the encoding, width and colors of its console."""

    def __init__(self, make: Callable[[Console, ConsoleOptions], RenderableType]) -> None:
        self._make = make

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._make(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._make(console, options))


def folding(picture: Text) -> Text:
    """Return a picture that wraps on a console narrower than the narrowest picture."""
    return Text().join([picture])


_WORD = re.compile(r"(?:[^\s,]|(?<=\d),(?=\d{3}(?!\d)))*,?\s*")
"""A word with the space after it. Words end after a comma, but not inside a number such as 1,024."""
_PIECE = re.compile(rf"(?:[^\s,]*\d (?:[KMGTPE]i)?B\b)?{_WORD.pattern}")
"""A word, or a size with its unit."""


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines, broken after spaces and commas, and inside a word only if it is too long.

    The width is in terminal columns; wide characters, such as Chinese ones, take two.
    """
    text = clipped(text)
    if cell_len(text.rstrip()) <= width:  # as are most labels of a large picture
        return [text.rstrip()]
    lines = [""]
    for piece in _pieces(text, width):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        word = lines[-1].rstrip()
        if cell_len(word) > width:
            space = lines[-1][len(word) :]
            lines[-1:] = chop_cells(word, width)
            lines[-1] += space
    return [line.rstrip() for line in lines]


def packed(texts: Iterable[str], between: str, width: int) -> list[str]:
    """Return texts in lines, as many in each as fit; one that does not fit is wrapped."""
    lines: list[str] = []
    for text in texts:
        if lines and cell_len(lines[-1] + between + text) <= width:
            lines[-1] += between + text
        else:
            lines += wrapped(text, width)
    return lines


def _pieces(text: str, width: int) -> Iterator[str]:
    """Yield the words of a text; a size and its unit separately if they do not fit in a line."""
    for piece in _PIECE.findall(text):
        if cell_len(piece.rstrip()) > width:
            yield from _WORD.findall(piece)
        else:
            yield piece


def written(*lines: str, look: str = "") -> ForConsole:
    """Return lines of untrusted text, with escapes for characters that the console cannot show."""
    return marked(lambda _: lines, look)


def marked(lines: Callable[[Marks], Iterable[str]], look: str = "") -> ForConsole:
    """Return untrusted text as ``written`` does, where its lines depend on the marks of the encoding."""

    def make(console: Console, options: ConsoleOptions) -> Text:
        encoding = options.encoding
        width = max(options.max_width, 1)
        safe_lines = "\n".join(printable(line, encoding) for line in lines(marks(encoding))).split("\n")
        parts = (
            wrapped(line, width) if cell_len(line) > width and clipped(line) == line else [line]
            for line in safe_lines
        )
        return Text("\n".join(part for lines in parts for part in lines), look, overflow="fold")

    return ForConsole(make)


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
        known = min(_known_width(), WIDEST)
        if most is None:
            # If stdout is a pipe, Rich takes the width of the terminal of stdin or stderr.
            console.width = known or console.width or _DEFAULT_WIDTH
        elif known:
            console.width = min(most, known)
    return console


def _known_width() -> int:
    """Return the width as ``shutil.get_terminal_size`` does, without its import; 0 if it is not known."""
    with contextlib.suppress(KeyError, ValueError):
        if (width := int(os.environ["COLUMNS"])) > 0:
            return width
    with contextlib.suppress(AttributeError, ValueError, OSError):  # it is closed, or no terminal
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else 0
    return 0


def shows_colors(console: Console) -> bool:
    """Return whether to fill pictures with colors: not in pipes, files or a notebook's text output."""
    return console.color_system is not None and not (console.no_color or console.is_jupyter)


def has_many_colors(console: Console) -> bool:
    """Return whether a console shows 256 colors or more. With 16, neighboring areas can look alike."""
    return console.color_system in ("256", "truecolor")


_INDENT = "  "
"""Space before all lines of a path but the first."""


def path_pieces(path: str) -> list[str]:
    """Return the keys of a path, each with the slash after it."""
    return re.findall("[^/]*/|[^/]+", path)


def path_lines(path: str, width: int, keys: Callable[[str], Sequence[str]] = path_pieces) -> list[str]:
    """Return a path in lines of a width, broken between its keys, and inside a key only if it is too long.

    All lines but the first are indented, so that a row of a table begins where a line does not.

    Args:
        path: The path.
        width: Maximum line length in characters.
        keys: A function that returns the keys of a path, with what separates them.
    """
    indent = _INDENT if width > 4 * len(_INDENT) else ""
    lines, line, room = [], "", width
    for piece in keys(path):
        if line and cell_len(line) + cell_len(piece) > room:
            lines.append(line)
            line, room = "", width - len(indent)
        line += piece
        while cell_len(line) > room:
            # Four characters per column are enough, even with combining characters.
            part = chop_cells(line[: 4 * room], room)[0] or line[0]
            part = part[: part.rstrip().rfind(" ") + 1] or part
            lines.append(part)
            line, room = line[len(part) :], width - len(indent)
    return [text if number == 0 else indent + text for number, text in enumerate([*lines, line])]
