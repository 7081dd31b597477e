"""Changes of shardings: as they are made in the lowered program, and as they are written in the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...facts.reports.advice import RemedyKind
from ...facts.reports.left_out import LeftOut
from ...xla.hlo.source import Frame

Axes = tuple[tuple[str, ...], ...]
"""Mesh axes of each dimension."""
Columns = tuple[int, int] | None
"""Columns of an expression, from 0: the first, and that after the last; None if unknown."""


class Site(NamedTuple):
    """An expression of the user's source whose value is an array of the program."""

    file: str
    """Path of the file."""
    line: int
    """Number of its first line, from 1."""
    column: int
    """Column at which it begins, from 0, in UTF-8 bytes as Python counts."""
    end_line: int
    """Number of its last line."""
    end_column: int
    """Column after its end, in UTF-8 bytes."""

    @property
    def size(self) -> tuple[int, int]:
        """Lines and bytes from its beginning to its end."""
        return self.end_line - self.line, self.end_column - self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteValue:
    """The value of an expression."""

    site: Site
    shape: tuple[int, ...]
    """Shape as the expression has it: without the dimension of a ``vmap``."""
    nbytes: int
    """Bytes of the whole value."""


class Edit(NamedTuple):
    """A sharding in the lowered program that changes. It can be written as JSON."""

    kind: Literal["argument", "output", "constraint", "result", "operand"]
    """The sharding of an argument or an output; that of an existing constraint; a constraint that is added on
    a result or on an operand of an operation."""
    number: int
    """Number of the argument or the output; else of the operation, in the order of the module as it is read:
    each operation before those in its regions."""
    axes: Axes | None
    """Mesh axes of each dimension; None takes the sharding, or the constraint, away."""
    place: int = 0
    """Number of the result or the operand of the operation."""


class Pin(NamedTuple):
    """A sharding as the user writes it: one that stands there, or a constraint that is added."""

    kind: RemedyKind
    axes: Axes | None
    """Mesh axes of each dimension; None if a constraint is taken away."""
    before: Axes = ()
    """The mesh axes that stand there."""
    paths: tuple[str, ...] = ()
    """Paths of the arguments, or of the outputs, that change together."""
    site: Site | None = None
    """The expression on which a constraint is added."""
    frames: tuple[Frame, ...] = ()
    """Call chain of an existing constraint, innermost first: the user's lines alone."""
    columns: tuple[Columns, ...] = ()
    """Columns of each of these lines."""


class Candidate(NamedTuple):
    """Changes that are tried together."""

    rule: str
    """Name of the rule that proposes them."""
    because: str
    """Its reason, one sentence."""
    pins: tuple[Pin, ...]
    """The changes as they are written."""
    edits: tuple[Edit, ...]
    """The same in the lowered program."""
    weight: float = 0.0
    """Bytes that may be saved, about: it orders the candidates of a rule."""
    number: int = 0
    """Number among those of its rule, in the order of the program."""


class Ranked(NamedTuple):
    """The candidates of a program, in the order of their tries."""

    candidates: tuple[Candidate, ...]
    by_propagation: bool
    """Whether Shardy's propagation has ranked them."""
    left_out: tuple[LeftOut, ...] = ()
    """Rules that failed."""
