"""XLA shardings: parser, layouts and equivalent partition specs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import LayoutError
from ..quantities import format_number
from .layout import (
    MAX_AXES,
    MAX_DEVICES,
    Placement,
    ShardingLayout,
)
from .scanner import Scanner
from .spec import Spec


@dataclass(frozen=True, slots=True)
class XlaSharding:
    """A sharding in XLA's notation, such as ``{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}``."""

    kind: Literal["replicated", "manual", "unknown", "maximal", "tiled"]
    """Form of the sharding. ``maximal``: one device holds the whole array. ``tiled``: each device holds one
    tile, and several devices may hold replicas of it."""

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
        devices = _commas(self.listed) if self.listed else f"<=[{_commas(self.iota)}]"
        if self.permutation:
            devices += f"T({_commas(self.permutation)})"
        last = ""
        if self.subgroups == ("replicated",):
            last = " last_tile_dim_replicate"
        elif self.subgroups:
            last = f" last_tile_dims={{{', '.join(self.subgroups)}}}"
        return f"{{devices=[{_commas(self.tiles)}]{devices}{last}}}"


def _commas(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def parse_xla_sharding(text: str) -> XlaSharding:
    """Parse a sharding in XLA's notation.

    Raises:
        NotationError: (a ValueError) If the text is not an XLA sharding. The message marks the error.

    >>> parse_xla_sharding("{devices=[2,2]<=[2,2]T(1,0)}").device_ids.tolist()
    [[[0], [2]], [[1], [3]]]
    """
    scanner = Scanner(text)
    scanner.expect(r"\{", "'{'")
    sharding = _xla_body(scanner)
    scanner.expect(r"\}", "'}'")
    scanner.end()
    return sharding


_WITHOUT_TILES: tuple[Literal["replicated", "manual", "unknown"], ...] = ("replicated", "manual", "unknown")


def _xla_body(scanner: Scanner) -> XlaSharding:
    if scanner.take("maximal"):
        scanner.expect(r"device\s*=", "'device='")
        return XlaSharding("maximal", listed=(scanner.number(),))
    for form in _WITHOUT_TILES:
        if scanner.take(form):
            return XlaSharding(form)
    scanner.expect(r"devices\s*=\s*\[", "'devices=[', 'replicated', 'maximal', 'manual' or 'unknown'")
    start = scanner.position
    tiles = scanner.listed(lambda: scanner.number(least=1), "]")
    iota: tuple[int, ...] = ()
    permutation: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()
    devices_at = scanner.position
    if scanner.take(r"<=\s*\["):
        iota = scanner.listed(lambda: scanner.number(least=1), "]")
        if scanner.take(r"T\s*\("):
            at = scanner.position
            permutation = scanner.listed(scanner.number, ")")
            if sorted(permutation) != list(range(len(iota))):
                scanner.fail(f"expected a permutation of the {len(iota)} axes of [{_commas(iota)}]", at)
    else:
        listed = scanner.separated(scanner.number, ",")
        if len(set(listed)) < len(listed):
            scanner.fail("a device is listed twice", devices_at)
    subgroups: tuple[str, ...] = ()
    if scanner.take("last_tile_dim_replicate"):
        subgroups = ("replicated",)
    elif scanner.take(r"last_tile_dims\s*=\s*\{"):
        subgroups = scanner.listed(
            lambda: scanner.expect("replicated|manual|unreduced|maximal", "'replicated' or 'manual'"), "}"
        )
    if max(len(tiles), len(iota)) > MAX_AXES:
        scanner.fail(f"more than {MAX_AXES} tile or device dimensions", start)
    count = math.prod(iota) if iota else len(listed)
    if math.prod(tiles) != count:
        scanner.fail(f"{format_number(math.prod(tiles))} tiles, but {format_number(count)} devices", start)
    if len(subgroups) > len(tiles):
        scanner.fail(f"{len(subgroups)} subgroups, but {len(tiles)} tile dimensions", start)
    return XlaSharding("tiled", tiles, subgroups, iota, permutation, listed)


def spec_of_xla(sharding: XlaSharding, mesh: Mapping[str, int]) -> Spec | None:
    """Return the PartitionSpec that is equivalent to an XLA sharding on a mesh; None if there is none.

    The spec ends with the last sharded axis: ``P(None, 'a')``, not ``P(None, 'a', None)``. It is unique
    up to mesh axes of size 1.

    Args:
        sharding: A parsed sharding.
        mesh: Size of each mesh axis by name.

    Raises:
        LayoutError: (a ValueError) If the sharding has more than 1,048,576 devices.

    >>> spec_of_xla(parse_xla_sharding("{devices=[4,2]<=[2,4]T(1,0)}"), {"x": 2, "y": 4})
    Spec(axes=(('y',), ('x',)), unconstrained=(), unreduced=())
    """
    # Along each array axis, the index of a device's shard must be a mixed-radix number. Its digits, from
    # major to minor, are the coordinates of the device along the mesh axes of the entry.
    if sharding.kind == "replicated":
        return Spec(())
    if sharding.kind != "tiled" or set(sharding.subgroups) - {"replicated", "unreduced"}:
        return None
    sizes = tuple(mesh.values())
    ids = sharding.device_ids.reshape(sharding.tiles)
    if sorted(ids.ravel().tolist()) != list(range(math.prod(sizes))):
        return None
    names = tuple(mesh)
    entries: list[tuple[str, ...]] = []
    # The index of each device's tile along each dimension. The leading 1 allows for no dimensions at all.
    _, *places = np.unravel_index(np.argsort(ids, axis=None), (1, *ids.shape))
    for axis, along in enumerate(places):
        digits = _mixed_radix(along.reshape(sizes))
        if digits is None and axis < len(sharding.counts):
            return None
        entries.append(tuple(names[number] for number in digits or ()))
    unreduced = [
        name
        for entry, subgroup in zip(entries[len(sharding.counts) :], sharding.subgroups, strict=True)
        for name in entry
        if subgroup == "unreduced"
    ]
    axes = entries[: len(sharding.counts)]
    while axes and not axes[-1]:
        axes.pop()
    return Spec(tuple(axes), unreduced=tuple(sorted(unreduced)))


def _mixed_radix(places: NDArray[np.int64]) -> list[int] | None:
    """Return the axes, major to minor, whose coordinates are the digits of ``places``; None if none are."""
    axes = [axis for axis, size in enumerate(places.shape) if size > 1]
    strides = {axis: int(places.take(1, axis=axis).flat[0]) for axis in axes}
    coordinates = np.ix_(*map(np.arange, places.shape))
    number = sum((coordinates[axis] * stride for axis, stride in strides.items()), np.zeros(1, np.int64))
    if not np.array_equal(np.broadcast_to(number, places.shape), places):
        return None
    return sorted((axis for axis in axes if strides[axis]), key=strides.__getitem__, reverse=True)


def xla_layout(
    shape: tuple[int, ...], sharding: XlaSharding, devices: Placement | None = None
) -> ShardingLayout | None:
    """Return the layout of an array under an XLA sharding.

    None if the sharding is for another number of axes, or if the devices of one tile hold more than
    replicas of it, such as partial sums.

    Args:
        shape: Global shape of the array.
        sharding: The sharding, which numbers the devices 0…n−1.
        devices: Devices by these numbers; when None, the numbers are the device ids.
    """
    tiles: NDArray[np.int64] | None = None
    if sharding.kind == "maximal":
        tiles = sharding.device_ids.reshape([1] * len(shape) + [-1])
    elif sharding.kind == "replicated" and devices is not None:
        tiles = np.arange(len(devices.ids)).reshape([1] * len(shape) + [-1])
    elif sharding.kind == "tiled" and len(sharding.counts) == len(shape):
        tiles = sharding.device_ids if set(sharding.subgroups) <= {"replicated"} else None
    if tiles is None:
        return None
    if devices is None:
        return ShardingLayout(shape=shape, device_ids=tiles)
    return ShardingLayout(
        shape=shape, device_ids=devices.ids[tiles], platform=devices.platform, processes=devices.processes
    )
