"""A line of a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a cell, with its style."""

    text: str
    look: str = ""
    keys: Callable[[str], Sequence[str]] | None = None
    """Function that returns the keys of a path, between which the line may be broken, and inside long ones
    only; None for words."""
