"""Array axes that are not divisible by their number of shards."""

from __future__ import annotations

from dataclasses import dataclass

from ..quantities import format_number


@dataclass(frozen=True, slots=True)
class UnevenAxis:
    """An array axis that is not divisible by its number of shards. ``str()`` describes the problem and a fix.

    >>> from jax_array_info_core import uneven_axes
    >>> [axis] = uneven_axes((17, 16), {"x": 8}, ("x",))
    >>> print(str(axis).partition(": ")[2])
    17 % 8 = 1. Pad it to 24, or leave it unsharded.
    """

    axis: int
    """Index of the array axis."""

    shape: tuple[int, ...]
    """Global shape of the array."""

    names: tuple[str, ...]
    """Mesh axes over which it is sharded; empty if they are not known."""

    count: int
    """Number of shards: the product of the sizes of the mesh axes in ``names``."""

    fitting: tuple[str, ...]
    """The combination of mesh axes that splits the array axis evenly into as many shards as possible; empty
    if there is none. Mesh axes that the spec uses for other array axes are excluded."""

    fitting_count: int
    """Number of shards over the mesh axes in ``fitting``; 1 if it is empty."""

    @property
    def padded(self) -> int:
        """The next larger length that is divisible by ``count``."""
        return -(-self.shape[self.axis] // self.count) * self.count

    def __str__(self) -> str:
        dim, count = self.shape[self.axis], format_number(self.count)
        divisor = f"{count} shards"
        if self.names:
            axes = "axis" if len(self.names) == 1 else "axes"
            divisor = f"mesh {axes} {_names_text(self.names)} of size {count}"
        remedy = "leave it unsharded"
        if self.fitting:
            size = format_number(self.fitting_count)
            remedy = f"shard it over {_names_text(self.fitting)} of size {size}"
        return (
            f"axis {self.axis} of shape {self.shape} is not divisible by {divisor}: "
            f"{dim} % {count} = {dim % self.count}. Pad it to {format_number(self.padded)}, or {remedy}."
        )


def _names_text(names: tuple[str, ...]) -> str:
    """Return names of mesh axes as in a PartitionSpec: one by itself, several as a tuple."""
    return repr(names[0] if len(names) == 1 else names)
