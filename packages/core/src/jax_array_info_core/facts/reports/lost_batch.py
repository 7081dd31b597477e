"""Data whose mesh axis is lost inside a program, although the dimension that it shards lives on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base import quantities
from ...base.quantities import counted, format_bytes
from ...geometry.layouts.spec import Spec, effective_spec, spec_code
from .findings import Finding, FindingLeaf
from .origin import OperationFact, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBatch(OperationFact):
    """A mesh axis that stops sharding a dimension of the data at an operation.

    The operation, its line and its columns are those of the value to constrain.
    """

    path: str
    """Path of the argument with the data."""

    shape: tuple[quantities.Size, ...]
    """Global shape of the value to constrain."""

    dtype: str
    """Name of its dtype."""

    mesh_axis: str
    """Mesh axis that stops sharding the dimension."""

    dimension: quantities.Size
    """The dimension of the argument, from 0."""

    before: Spec
    """Sharding of the argument."""

    after: Spec
    """Sharding of what the operation computes, or of what a loop slices."""

    taken_by: str | None = None
    """Path of the argument that has the mesh axis in the result of the operation. None if a loop takes single
    rows of the dimension that it shards."""

    loop: Origin | None = None
    """Line of the loop; None if another argument has the mesh axis."""

    nbytes: quantities.Size
    """Bytes per device of all values after it in the same pass that have the dimension without the mesh axis.
    The body of a loop counts once."""

    expression: str = ""
    """Source of the value to constrain, such as ``params["embed"][tokens]``; empty if it is not known."""

    expected: Spec
    """Sharding to constrain it to."""

    @property
    def code(self) -> str:
        """The constraint as code, such as ``jax.lax.with_sharding_constraint(x[rows], P("data"))``."""
        return f"jax.lax.with_sharding_constraint({self.expression or '…'}, {spec_code(self.expected)})"

    @property
    def change(self) -> str:
        """The shardings before and after, and why they differ."""
        why = f"{self.taken_by} has it" if self.taken_by else "the loop takes single rows of what it shards"
        before, after = (effective_spec(spec, {}) for spec in (self.before, self.after))
        return f"{before} → {after}, because {why}"

    @property
    def problem(self) -> str:
        """What is lost where and why, and what follows."""
        what = "the batch" if self.dimension == 0 else f"dimension {self.dimension} of {self.path}"
        origin = self.loop or self.origin
        at = "" if origin is None else f" at {origin.place}"
        return (
            f"{self.mesh_axis} stops sharding {what}{at}: {self.path} {self.change};"
            f" {format_bytes(self.nbytes)} per device follow without it."
        )

    @property
    def remedy(self) -> str:
        """The constraint to write."""
        at = f" at {self.origin.place}" if self.loop is not None and self.origin is not None else ""
        constrained = f"Constrain its result{at} to {spec_code(self.expected)}."
        words = f"Write {self.code}{at}." if self.expression else constrained
        return f"{words} {_OF_LOOPS}" if self.loop is not None else words


_OF_LOOPS = "Memory and FLOPs fall. More bytes may be sent: gradients are then summed over all devices."
"""What the remedy of a loop changes."""


def lost_batches_found(rows: Sequence[LostBatch]) -> Iterator[Finding]:
    """Yield the finding on the mesh axes that the data loses; its words are about the costliest."""
    if not rows:
        return
    first, others = rows[0], len(rows) - 1
    yield Finding(
        kind="lost batch",
        problem=f"{first.problem} {counted(others, 'other is', 'others are')} like it."
        if others
        else first.problem,
        remedy=first.remedy,
        nbytes=first.nbytes,
        leaves=tuple(
            FindingLeaf(
                path="",
                shape=row.shape,
                dtype=row.dtype,
                nbytes=row.nbytes,
                change=row.op,
                origin=row.origin,
                remedy=row.code if others else "",
            )
            for row in rows
        ),
        mesh_axes=tuple(dict.fromkeys(row.mesh_axis for row in rows)),
    )
