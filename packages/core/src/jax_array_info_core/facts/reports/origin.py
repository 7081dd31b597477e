"""Lines of source code, the pass of a step that they are in, and the operations there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from ...base import quantities

Phase = Literal["forward", "backward"]
"""Part of a training step: the forward pass, or the backward pass with what it recomputes."""
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The passes, in their order."""

MOST_CALLERS = 16
"""Maximum number of callers of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of source code."""

    file: str
    """Path of the source file as Python records it; a name such as ``<stdin>`` for code without a file."""

    line: int
    """Line number, from 1."""

    function: str
    """Name of the function; ``<module>`` for module-level code."""

    cell: int | None = None
    """Number of the notebook cell; None outside notebooks. ``line`` is then a line of the cell."""

    @property
    def name(self) -> str:
        """File without its folders, such as ``train.py``, or notebook cell, such as ``Cell In[8]``."""
        return re.split(r"[\\/]", self.file)[-1] if self.cell is None else f"Cell In[{self.cell}]"

    @property
    def place(self) -> str:
        """File and line, such as ``train.py:141`` or ``Cell In[8], line 4``."""
        return f"{self.name}{':' if self.cell is None else ', line '}{self.line}"

    def __str__(self) -> str:
        """Return the text form, such as ``train.py:141 init_params``."""
        is_cell = self.cell is not None and self.function == "<module>"
        return self.place if is_cell else f"{self.place} {self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(SourceLine):
    """A line of source code: the allocation site of an array, or the definition of a function."""

    callers: tuple[SourceLine, ...] = ()
    """Lines of the user's code that called this one, nearest first, at most 16. Programs have none up to JAX
    0.7, where XLA records one line for each operation."""

    skipped: tuple[SourceLine, ...] = ()
    """Lines of installed packages that this line called, innermost first: at most ``config.show_frames``."""

    code: str = field(default="", compare=False)
    """Text of the line when a program was compiled, with its indentation. Empty in reports on arrays, and if
    it could not be read."""

    is_near: bool = False
    """Whether it is the line of a neighboring operation. XLA gives a collective that it inserts the line of
    the operation that computes the array or uses it first, not that of a sharding constraint between them."""

    def text(self, callers: int) -> str:
        """Return the line and a number of its callers: ``utils.py:3 make from train.py:12 train``."""
        # Logs of XLA do not tell the function.
        return " from ".join(str(one).rstrip() for one in (*self.skipped, self, *self.callers[:callers]))

    def __str__(self) -> str:
        """Return the text form, such as ``train.py:141 init_params``; ``near train.py:141 step``."""
        return f"near {SourceLine.__str__(self)}" if self.is_near else SourceLine.__str__(self)

    def __hash__(self) -> int:
        """Return a hash of the line alone: reports on many arrays compute many."""
        return hash((self.file, self.line, self.function))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFact:
    """A fact about an operation of the program: the base of values, losses and conflicts."""

    op: str
    """Name of the operation in JAX, such as ``dot_general``."""

    origin: Origin | None = None
    """Line of the operation."""

    columns: tuple[quantities.Size, quantities.Size] | None = None
    """Columns of the operation in the line, from 0: the first one, and the one after the last. None if
    unknown."""

    phase: Phase | None = None
    """Forward or backward pass; None outside gradients."""

    count: quantities.Count = 1
    """Number of equal facts."""

    is_meant: bool = False
    """For a loss or a conflict: whether it gathers a value for an operation with another operand that is
    sharded over the mesh axis in a dimension of its own, such as the batch. So is a conflict that costs no
    more than a parameter with the mesh axis, and the loss of one that later values have ``again``. No finding
    is about it."""
