"""Values that every device computes or holds whole, and the finding about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base import quantities
from ...base.quantities import counted, format_bytes, grouped
from ...geometry.layouts.dtypes import type_text
from .array import ArrayType
from .findings import Finding, FindingLeaf
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedValue(ArrayType):
    """Equal values of one line that each device computes or holds whole, after a collective.

    What the collective moves is sharded. Devices then use parts of the value, or they all compute the same.
    """

    op: str
    """Name of the operation that computes the value, such as ``fft``."""

    shape: tuple[quantities.Size, ...]
    """Shape on a device."""

    nbytes: quantities.Size
    """Bytes on a device of the value, or of an array that is gathered for it if that is larger."""

    repeated_nbytes: quantities.Size
    """Those of ``nbytes`` that a device would not hold with the sharding before."""

    repeated_flops: quantities.Total | None = None
    """Floating-point operations of a device in one call that other devices do as well; None if they are not
    counted."""

    axes: tuple[str, ...] | None = None
    """Mesh axes that sharded it, or what it is computed from, before; None if they are not known."""

    is_sum: bool = False
    """Whether each device scatters into all of it, and the results are summed. Else it is gathered, or
    computed from what is."""

    before_shape: tuple[quantities.Size, ...] = ()
    """Shape on a device of what is moved: a shard, or what is summed. Of several arrays, the one of the most
    repeated bytes."""

    before_dtype: str = ""
    """Name of its dtype."""

    before_axes: tuple[str, ...] | None = None
    """Mesh axes over which it is gathered or summed; None if they are not known."""

    path: str | None = None
    """Path of the argument that is gathered; None if something else is."""

    origin: Origin | None = None
    """Line of the operation."""

    count: quantities.Count = 1
    """Number of equal values."""

    @property
    def words(self) -> str:
        """What was sharded before: ``gathered over x from float32[64,8] of a``."""
        over = f" over {', '.join(self.before_axes)}" if self.before_axes else ""
        before = type_text(self.before_dtype, self.before_shape)
        if self.is_sum:
            return f"each device scatters into all of it, summed{over}"
        return f"gathered{over} from {before}{'' if self.path is None else f' of {self.path}'}"


def repeated_values(rows: Sequence[RepeatedValue]) -> Iterator[Finding]:
    """Yield the finding on values that every device computes or holds whole, if there are any."""
    if not rows:
        return
    leaves = tuple(
        FindingLeaf(
            path=row.op,
            shape=row.shape,
            dtype=row.dtype,
            nbytes=row.repeated_nbytes,
            change=row.words,
            remedy=f"repeats {grouped(row.repeated_flops)} FLOPs" if row.repeated_flops else "",
            origin=row.origin,
            count=row.count,
        )
        for row in rows
    )
    largest = max(row.repeated_nbytes for row in rows)
    are = counted(sum(row.count for row in rows), "value is", "values are")
    size = "" if len(leaves) == 1 and rows[0].count == 1 else f" The largest takes {format_bytes(largest)}."
    yield Finding(
        kind="repeated value",
        problem=f"{are} computed or held whole by every device, of what is sharded before or after.{size}",
        remedy=" ".join(dict.fromkeys(_REMEDIES[_kind(row)] for row in rows)),
        nbytes=largest,
        leaves=leaves,
        mesh_axes=tuple(dict.fromkeys(name.partition(":")[0] for row in rows for name in row.axes or ())),
    )


_REMEDIES = {
    "fft": "In a shard_map, transform the axes that a device has whole, shard another one with all_to_all,"
    " and transform the rest.",
    "sum": "In a shard_map, let each device scatter into its own part, and exchange the borders.",
    "": "Shard a dimension that the operation does not need whole, or compute it on shards in a shard_map.",
}


def _kind(row: RepeatedValue) -> str:
    return "fft" if row.op == "fft" else "sum" if row.is_sum else ""
