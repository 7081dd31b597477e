"""An entry of the table of kinds of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .explanation import Operand
from .places import Finder
from .site import Recipe
from .source import Place


class Facts(NamedTuple):
    """What is told of an error apart from the parts of its message."""

    words: Mapping[str, str]
    """Words of the rule that are not groups of the pattern."""

    operands: Sequence[Operand] | None = None
    """Operands; None for those of the expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of error: the message, the rule that was broken, and recipes for edits."""

    name: str
    """Name, such as ``ambiguous contraction``."""

    pattern: str
    """Regular expression of the beginning of the message; a dot also matches the end of a line."""

    rule: str
    """One sentence. ``{call}`` is the user's call, other names are groups of the pattern or facts."""

    recipes: tuple[Recipe, ...] = ()
    """Functions that yield edits; none if no edit of one expression can work."""

    place: Finder | None = None
    """A function to the place of the edits, where it is not the expression that raised."""

    facts: Callable[[re.Match[str], Place], Facts] | None = None
    """A function to facts of the user's line that the rule needs; None if the message alone has them."""
