"""Explanations of errors: the line, the operands, the rule, and edits that work."""

from __future__ import annotations

from dataclasses import dataclass

from ...base import quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An array in the expression that raised."""

    expression: str
    """Source text, such as ``params["w"]``."""

    type: str = ""
    """Type with its sharding, as JAX prints it: ``f32[8@y,8]``; empty if it is not known."""

    made: str = ""
    """Source of the sharding: ``made at train.py:34``, ``argument of step``; empty if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of the source that removes the error."""

    code: str
    """Source text that replaces ``Explanation.expression`` in its line."""

    sent_nbytes: quantities.Size | None = None
    """Bytes that a device sends for it, computed from the layouts; None if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why JAX raised an error, and what to write instead."""

    kind: str
    """Name of the kind of error, such as ``ambiguous contraction``."""

    rule: str
    """The rule that was broken, as one sentence."""

    file: str = ""
    """Path of the file of the user's line; empty if there is none."""

    line: int | None = None
    """Number of the user's line in it."""

    function: str = ""
    """Name of the user's function."""

    expression: str = ""
    """Source text of the expression that raised, as it stands in the line; empty if it is not known."""

    operands: tuple[Operand, ...] = ()
    """Arrays in the expression, in its order."""

    edits: tuple[Edit, ...] = ()
    """Edits that each remove the error; none if no edit is known to work."""
