"""Which device holds which slice of an array: one numpy array of device ids says it all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import LayoutError
from ..quantities import counted, format_device_ids


class Placement(NamedTuple):
    """What a layout needs to know of some devices."""

    ids: np.ndarray[Any, Any]
    """Their ids."""
    platform: str
    processes: Processes
    """Which are whose, where there are several processes."""


MAX_DEVICES = 2**20
"""How many devices a mesh or a sharding may have that is given as numbers."""


def _most_axes() -> int:
    """Return how many axes an array of device ids may have without the one for the replicas."""
    try:
        np.empty((1,) * 64)
    except ValueError:  # numpy 1
        return 31
    return 63


MAX_AXES = _most_axes()
"""How many axes an array may have that is laid out."""
Index = tuple[slice, ...]
"""A slice for each axis of an array, with start and stop given, as in ``array[index]``."""
Processes = tuple[tuple[int, tuple[int, ...]], ...]
"""``(process index, ids of its devices)``, in the order of the processes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardingLayout:
    """Which device holds which slice of an array of a given shape.

    Two layouts are equal when the same devices hold the same slices, in the same order.
    """

    shape: tuple[int, ...]
    """Shape of the whole array."""

    device_ids: NDArray[np.int64]
    """Ids of the devices, of shape ``(*shard_counts, replicas)``; read-only."""

    platform: str | None = None
    """Platform of the devices (``cpu``, ``gpu``, ``tpu``); None for a mesh without devices."""

    processes: Processes = ()
    """``(process index, ids of its devices)`` in the order of the processes, where there are several."""

    shard_counts: tuple[int, ...] = field(init=False, default=(), repr=False)
    """Into how many shards each axis is cut; 1 where it is whole."""

    shard_shape: tuple[int, ...] = field(init=False, default=(), repr=False)
    """Shape of the first shard, which is the largest: ``ceil(dim / count)`` along each axis."""

    replicas: int = field(init=False, default=1, repr=False)
    """How many devices hold each shard."""

    def __post_init__(self) -> None:
        if self.device_ids.ndim != len(self.shape) + 1 or not self.device_ids.size:
            raise LayoutError(
                f"device_ids of shape {self.device_ids.shape} does not fit an array of shape {self.shape}: "
                f"expected {len(self.shape) + 1} axes of length 1 or more, "
                "one for each array axis and one for the replicas"
            )
        if self.shape and min(self.shape) < 0:
            raise LayoutError(f"an array of shape {self.shape} has an axis of negative length")
        # A view: freezing the caller's own array would change it under their hands.
        frozen = self.device_ids.astype(np.int64, copy=False).view()
        frozen.flags.writeable = False
        object.__setattr__(self, "device_ids", frozen)
        *counts, replicas = frozen.shape
        object.__setattr__(self, "shard_counts", tuple(counts))
        object.__setattr__(self, "shard_shape", tuple(map(_chunk_size, self.shape, counts)))
        object.__setattr__(self, "replicas", replicas)

    @property
    def fraction(self) -> float:
        """The part of the array that a device holds: 0.125 for an eighth. The first holds the most."""
        pairs = zip(self.shard_shape, self.shape, strict=True)
        return math.prod(part / whole for part, whole in pairs if whole)

    @property
    def sharded_axes(self) -> tuple[int, ...]:
        """The axes that are cut into more than one shard."""
        return tuple(axis for axis, count in enumerate(self.shard_counts) if count > 1)

    def axis_slice(self, axis: int, shard: int) -> slice:
        """Return what the ``shard``-th of the shards along an axis covers.

        ``start = min(shard * chunk, dim)`` with ``chunk = ceil(dim / count)``, as XLA tiles an axis:
        where the count does not divide the axis, the last shards are smaller or empty.
        """
        return _shard_slice(self.shape[axis], self.shard_counts[axis], shard)

    def shard_index(self, shard_index: Sequence[int]) -> Index:
        """Return the slices of the array that the shard at this position of the grid covers."""
        return tuple(map(_shard_slice, self.shape, self.shard_counts, self._checked(shard_index)))

    def index_of(self, device_id: int) -> Index:
        """Return the slices of the array that a device holds.

        Raises:
            LayoutError: the device holds no part of the array.
        """
        return self.shard_index(self._position(device_id))

    def holders_of(self, device_id: int) -> tuple[int, ...]:
        """Return the ids of all devices that hold what a device holds, itself included.

        Raises:
            LayoutError: the device holds no part of the array.
        """
        return self.devices_of(self._position(device_id))

    def devices_of(self, shard_index: Sequence[int]) -> tuple[int, ...]:
        """Return the ids of the devices that hold the shard at this position of the grid.

        Raises:
            LayoutError: there is no such shard.
        """
        return tuple(self.device_ids[self._checked(shard_index)].tolist())

    def _position(self, device_id: int) -> tuple[int, ...]:
        """Return where in the grid of shards the one of a device is."""
        ids = self.device_ids.reshape(-1)
        try:
            # Few devices are found faster in a list, many in an array.
            few = ids.size <= 256
            found = ids.tolist().index(device_id) if few else int(np.flatnonzero(ids == device_id)[0])
        except (ValueError, IndexError):
            raise LayoutError(
                f"device {device_id} holds no shards of this array, "
                f"which is on devices {format_device_ids(np.unique(ids).tolist())}"
            ) from None
        *position, _ = map(int, np.unravel_index(found, self.device_ids.shape))
        return tuple(position)

    def _checked(self, shard_index: Sequence[int]) -> tuple[int, ...]:
        position = tuple(shard_index)
        counts = self.shard_counts
        if len(position) != len(counts) or not all(
            0 <= index < count for index, count in zip(position, counts, strict=True)
        ):
            raise LayoutError(f"there is no shard {position}: the shards form a grid of {counts}")
        return position

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardingLayout):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.platform == other.platform
            and self.processes == other.processes
            and np.array_equal(self.device_ids, other.device_ids)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.device_ids.shape, self.device_ids.tobytes()))


def _chunk_size(dim: int, count: int) -> int:
    return -(-dim // count)


def _shard_slice(dim: int, count: int, shard: int) -> slice:
    chunk = _chunk_size(dim, count)
    return slice(min(shard * chunk, dim), min((shard + 1) * chunk, dim))


def require_few_axes(count: int) -> None:
    """Raise LayoutError for an array of more axes than numpy has."""
    if count > MAX_AXES:
        raise LayoutError(f"{count} axes exceed the limit of {MAX_AXES}")


def mesh_layout(
    shape: Sequence[int],
    axis_sizes: Mapping[str, int],
    axes: Sequence[Sequence[str]],
    device_ids: NDArray[Any] | None = None,
    platform: str | None = None,
    processes: Processes = (),
) -> ShardingLayout:
    """Return the layout of an array whose axes are cut by the named axes of a mesh.

    An array axis named by several mesh axes is cut by their product, the first the most major, as in
    JAX. Mesh axes that cut nothing replicate.

    Args:
        shape: Shape of the whole array.
        axis_sizes: Size of each mesh axis, in the mesh's order.
        axes: The mesh axes that cut each array axis; those left out are whole.
        device_ids: Ids of the mesh's devices, in the mesh's shape; 0…n−1 when None.
        platform: Platform of the devices.
        processes: Which devices are whose, where there are several processes.
    """
    shape = tuple(map(int, shape))
    require_few_axes(len(shape))
    if len(axes) > len(shape):
        raise LayoutError(
            f"the spec has {counted(len(axes), 'entry', 'entries')}, "
            f"but the array has {counted(len(shape), 'axis', 'axes')}: shape {shape}"
        )
    if device_ids is None:
        device_ids = np.arange(math.prod(axis_sizes.values())).reshape(tuple(axis_sizes.values()))
    order = {name: number for number, name in enumerate(axis_sizes)}
    used = [order.pop(name) for entry in axes for name in entry]
    counts = [math.prod([axis_sizes[name] for name in entry]) for entry in axes]
    counts += [1] * (len(shape) - len(axes))
    placed = device_ids.transpose([*used, *order.values()])
    return ShardingLayout(
        shape=shape, device_ids=placed.reshape([*counts, -1]), platform=platform, processes=processes
    )


def slices_layout(
    shape: Sequence[int],
    slices: Mapping[int, Index],
    *,
    platform: str | None = None,
    processes: Processes = (),
) -> ShardingLayout:
    """Return the layout in which each device holds the slices that are given for it.

    Args:
        shape: Shape of the whole array.
        slices: For each device id, a slice along each axis; None stands for the axis' own bound.
        platform: Platform of the devices.
        processes: Which devices are whose, where there are several processes.

    Raises:
        LayoutError: the slices are no regular grid (equal chunks, each held equally often).
    """
    shape = tuple(map(int, shape))
    resolved = {
        device: tuple(piece.indices(dim)[:2] for piece, dim in zip(index, shape, strict=True))
        for device, index in slices.items()
    }
    cuts = [sorted({index[axis] for index in resolved.values()}) for axis in range(len(shape))]
    cells: dict[tuple[int, ...], list[int]] = {}
    for device, index in resolved.items():
        position = tuple(cuts[axis].index(piece) for axis, piece in enumerate(index))
        cells.setdefault(position, []).append(device)
    counts = tuple(map(len, cuts))
    replicas = max(map(len, cells.values()))
    if len(cells) == math.prod(counts) and all(len(held) == replicas for held in cells.values()):
        ids = np.array([cells[position] for position in np.ndindex(*counts)])
        layout = ShardingLayout(
            shape=shape, device_ids=ids.reshape(*counts, replicas), platform=platform, processes=processes
        )
        if all(
            (piece.start, piece.stop) == cut
            for axis, axis_cuts in enumerate(cuts)
            for shard, cut in enumerate(axis_cuts)
            for piece in [layout.axis_slice(axis, shard)]
        ):
            return layout
    raise LayoutError(
        f"the slices of an array of shape {shape} on {len(slices)} devices "
        "do not form a regular grid of shards"
    )
