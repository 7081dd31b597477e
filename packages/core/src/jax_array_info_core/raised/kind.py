"""An entry of the table of kinds of errors."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Finder
from .site import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of error: the message, the rule that was broken, and recipes for edits."""

    name: str
    """Name, such as ``ambiguous contraction``."""

    pattern: str
    """Regular expression of the beginning of the message; a dot also matches the end of a line."""

    rule: str
    """One sentence. ``{call}`` is the user's call, other names are groups of the pattern."""

    recipes: tuple[Recipe, ...] = ()
    """Functions that yield edits; none if no edit of one expression can work."""

    place: Finder | None = None
    """A function to the place of the edits, where it is not the expression that raised."""
