"""An XLA sharding as plain values, and its tiled notation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import LayoutError
from ..quantities import format_number
from .layout import MAX_DEVICES


@dataclass(frozen=True, slots=True)
class XlaSharding:
    """A sharding in XLA's notation, such as ``{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}``."""

    kind: Literal["replicated", "manual", "unreduced", "unknown", "maximal", "tiled"]
    """Form of the sharding. ``maximal``: one device holds the whole array. ``unreduced``: each device holds a
    partial sum of the whole array. ``tiled``: each device holds one tile, and several devices may hold
    replicas of it."""

    tiles: tuple[int, ...] = ()
    """Number of tiles along each array axis, followed by the sizes of the subgroups."""

    subgroups: tuple[str, ...] = ()
    """Types of the last dimensions of ``tiles``, which are not array axes: ``replicated``, ``manual``,
    ``unreduced`` or ``maximal``."""

    iota: tuple[int, ...] = ()
    """Shape into which the devices 0…n−1 are arranged. ``permutation`` transposes this arrangement, and the
    devices are assigned to the tiles in the resulting order. Empty if the devices are in ``listed``."""

    permutation: tuple[int, ...] = ()
    """Permutation of the axes of ``iota``; empty for the identity."""

    listed: tuple[int, ...] = ()
    """Device of each tile, in version 1 of the notation; empty if the devices are given by ``iota``."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of shards along each array axis."""
        return self.tiles[: len(self.tiles) - len(self.subgroups)]

    @property
    def device_ids(self) -> NDArray[np.int64]:
        """Device ids, of shape ``(*counts, replicas)`` for a tiled sharding.

        For a maximal sharding, the array has a single id; for all others, it is empty.

        Raises:
            LayoutError: (a ValueError) If there are more than 1,048,576 devices.
        """
        if not self.tiles:
            return np.array(self.listed, np.int64)
        if self.listed:
            return np.array(self.listed, np.int64).reshape([*self.counts, -1])
        if math.prod(self.iota) > MAX_DEVICES:
            raise LayoutError(
                f"{format_number(math.prod(self.iota))} devices exceed the limit of {MAX_DEVICES}"
            )
        ids = np.arange(math.prod(self.iota)).reshape(self.iota)
        if self.permutation:
            ids = ids.transpose(self.permutation)
        return ids.reshape([*self.counts, -1])

    @property
    def partial_sums(self) -> int:
        """Number of partial sums of each tile; 1 for a sharding that is not unreduced."""
        sizes = self.tiles[len(self.counts) :]
        return math.prod(
            size for size, kind in zip(sizes, self.subgroups, strict=True) if kind == "unreduced"
        )

    @property
    def holders(self) -> NDArray[np.int64]:
        """Device ids of a tiled sharding, of shape ``(*counts, partial_sums * replicas)``."""
        axes = len(self.counts)
        last = sorted(range(axes, len(self.tiles)), key=lambda dim: self.subgroups[dim - axes] != "unreduced")
        ids = self.device_ids.reshape(self.tiles).transpose([*range(axes), *last])
        return ids.reshape([*self.counts, -1])

    def leading(self, ndim: int) -> XlaSharding:
        """Return the sharding of the first ``ndim`` axes, or this sharding if a later axis is sharded."""
        extra = self.counts[ndim:]
        if not extra or set(extra) != {1}:
            return self
        tiles = (*self.counts[:ndim], *self.tiles[len(self.counts) :])
        return replace(self, tiles=tiles)

    def __str__(self) -> str:
        if self.kind == "maximal":
            return f"{{maximal device={self.listed[0]}}}"
        if self.kind != "tiled":
            return f"{{{self.kind}}}"
        devices = commas(self.listed) if self.listed else f"<=[{commas(self.iota)}]"
        if self.permutation:
            devices += f"T({commas(self.permutation)})"
        last = ""
        if self.subgroups == ("replicated",):
            last = " last_tile_dim_replicate"
        elif self.subgroups:
            last = f" last_tile_dims={{{', '.join(self.subgroups)}}}"
        return f"{{devices=[{commas(self.tiles)}]{devices}{last}}}"


def commas(numbers: tuple[int, ...]) -> str:
    """Return numbers as text: ``4,2``."""
    return ",".join(map(str, numbers))
