"""How things look: colours, marks and box characters, and what an encoding can show of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from jax_array_info_core.text import printable

LENGTH = "bold magenta"
SHARDED_LENGTH = "bold green"
VARYING_LENGTH = "bold bright_cyan"
PUNCTUATION = "blue"
ASIDE = "bright_black"
WARNING = "red"


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters beyond plain text that a picture wants."""

    check: str
    times: str
    horizontal: str
    vertical: str
    top: tuple[str, str, str]
    """Left, middle and right of a box's first line."""
    middle: tuple[str, str, str]
    bottom: tuple[str, str, str]
    bar: tuple[str, str, str]
    """What is in use, what was at the peak, what is free."""
    skipped_rows: str
    """Stands for rows that are left out."""
    skipped_columns: str


_UNICODE = Marks(
    "✔", "×", "─", "│", ("┌", "┬", "┐"), ("├", "┼", "┤"), ("└", "┴", "┘"), ("█", "▒", "░"), "⋮", "⋯"
)
_ASCII = Marks("yes", "x", "-", "|", *(("+",) * 3,) * 3, ("#", "+", "."), ":", "...")


def marks(encoding: str) -> Marks:
    """Return the marks that an encoding has; rich, too, draws boxes only in the UTF family."""
    return _UNICODE if encoding.lower().startswith("utf") else _ASCII


class ForConsole:
    """A renderable made when it is printed, for the encoding, width and colors of that console."""

    def __init__(self, make: Callable[[Console, ConsoleOptions], RenderableType]) -> None:
        self._make = make

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._make(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._make(console, options))


def folding(picture: Text) -> Text:
    """Return a picture that wraps where the console is narrower than any picture."""
    return Text().join([picture])


def written(*lines: str, look: str = "") -> ForConsole:
    """Return lines of untrusted text, with escapes for what is not printable or not in the encoding."""
    return marked(lambda _: lines, look)


def marked(lines: Callable[[Marks], Iterable[str]], look: str = "") -> ForConsole:
    """Return the lines of ``written`` where they depend on the marks that the encoding has."""

    def make(console: Console, options: ConsoleOptions) -> Text:
        encoding = options.encoding
        return Text(
            "\n".join(printable(line, encoding) for line in lines(marks(encoding))), look, overflow="fold"
        )

    return ForConsole(make)
