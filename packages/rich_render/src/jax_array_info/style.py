"""How things look: colours, marks and box characters, and what an encoding can show of them."""

from __future__ import annotations

from dataclasses import dataclass

LENGTH = "bold magenta"
SHARDED_LENGTH = "bold green"
VARYING_LENGTH = "bold bright_cyan"
PUNCTUATION = "blue"
ASIDE = "bright_black"
WARNING = "red"

PALETTE = (
    "#dd3311",
    "#7711ee",
    "#558822",
    "#aa44ff",
    "#338844",
    "#0055cc",
    "#dd7766",
    "#cc66ff",
    "#aa2255",
    "#1177cc",
    "#7799aa",
    "#9988cc",
    "#447777",
    "#bb0099",
    "#ff3399",
)
"""Colours that stand out from black and from white, and each from all others, for colour-blind eyes too.

These are 15; after them they come again."""


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


_UNICODE = Marks("✔", "×", "─", "│", ("┌", "┬", "┐"), ("├", "┼", "┤"), ("└", "┴", "┘"), ("█", "▒", "░"))
_ASCII = Marks("yes", "x", "-", "|", *(("+",) * 3,) * 3, ("#", "+", "."))


def marks(encoding: str) -> Marks:
    """Return the marks that an encoding has; rich, too, draws boxes only in the UTF family."""
    return _UNICODE if encoding.lower().startswith("utf") else _ASCII
