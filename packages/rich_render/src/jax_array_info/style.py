"""How things look: colours, marks and box characters, and what an encoding can show of them."""

from __future__ import annotations

from dataclasses import dataclass

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
