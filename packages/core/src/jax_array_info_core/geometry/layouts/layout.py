"""Layouts of sharded arrays in closed form: one numpy array of device ids, without an object per device."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...base.errors import LayoutError, UnsupportedValueError
from ...base.grouping import by_key
from ...base.notebooks import Displayed
from ...base.quantities import counted, format_device_ids
from ...base.text import plain_text

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DevicePlacement(NamedTuple):
    """Ids, platform and processes of some devices."""

    ids: np.ndarray[Any, Any]
    """Device ids."""
    platform: str
    """Platform of the devices."""
    processes: Processes
    """Devices by process; empty for a single process."""


MAX_DEVICES = 2**20
"""Maximum number of devices of a planned mesh or of a parsed sharding."""


def _most_axes() -> int:
    """Return the maximum number of array axes: numpy's limit, less one axis for the replicas."""
    try:
        np.empty((1,) * 64)
    except ValueError:  # numpy 1
        return 31
    return 63


MAX_AXES = _most_axes()
"""Maximum number of axes of an array with a layout."""
Index = tuple[slice, ...]
"""A slice with start and stop for each axis of an array, as in ``array[index]``."""
Processes = tuple[tuple[int, tuple[int, ...]], ...]
"""``(process index, ids of its devices)``, in ascending order of the index."""


@functools.lru_cache(maxsize=64)
def _owned(processes: Processes) -> NDArray[np.int64]:
    """Return the ids of all devices of some processes; layouts on one mesh share its processes."""
    return np.array([device for _, devices in processes for device in devices], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardingLayout(Displayed):
    """Shards of an array, with the devices that hold each of them.

    Two layouts are equal if they have the same shape, platform and processes, and if each shard is on the
    same devices, with its replicas in the same order, and partial sums over the same mesh axes.
    """

    shape: tuple[int, ...]
    """Global shape of the array."""

    device_ids: np.ndarray[Any, np.dtype[np.int64]]
    """Device ids, of shape ``(*shard_counts, partial_sums * replicas)``, with the replicas of a partial sum
    next to each other; read-only."""

    platform: str | None = None
    """Platform of the devices (``cpu``, ``gpu``, ``tpu``); None for a mesh without devices."""

    processes: Processes = ()
    """``(process index, ids of its devices)``, in ascending order of the index; empty if all devices belong
    to one process."""

    partial_sums: int = 1
    """Number of partial sums of each shard, which add up to its values; 1 for an array that is not unreduced.
    """

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums; empty if there are none, or their names are unknown.
    """

    shard_counts: tuple[int, ...] = field(init=False, default=(), repr=False)
    """Number of shards along each axis; 1 for an unsharded axis."""

    shard_shape: tuple[int, ...] = field(init=False, default=(), repr=False)
    """Shape of the first shard, which is the largest: ``ceil(dim / count)`` along each axis."""

    replicas: int = field(init=False, default=1, repr=False)
    """Number of devices that hold each shard; of an unreduced array, each partial sum of a shard."""

    def __post_init__(self) -> None:
        if self.device_ids.ndim != len(self.shape) + 1 or not self.device_ids.size:
            raise LayoutError(
                f"device_ids of shape {self.device_ids.shape} does not fit an array of shape {self.shape}: "
                f"expected {len(self.shape) + 1} axes of length 1 or more, "
                "one for each array axis and one for the replicas"
            )
        if self.shape and min(self.shape) < 0:
            raise LayoutError(f"an array of shape {self.shape} has an axis of negative length")
        if self.processes and not np.isin(self.device_ids, _owned(self.processes)).all():
            raise LayoutError("a layout with devices that belong to no process")
        # A view, so that the caller's own array stays writable.
        frozen = self.device_ids.astype(np.int64, copy=False).view()
        frozen.flags.writeable = False
        object.__setattr__(self, "device_ids", frozen)
        *counts, holders = frozen.shape
        if self.partial_sums < 1 or holders % self.partial_sums:
            raise LayoutError(f"{holders} devices per shard cannot hold {self.partial_sums} partial sums")
        object.__setattr__(self, "shard_counts", tuple(counts))
        chunks = tuple(-(-dim // count) for dim, count in zip(self.shape, counts, strict=True))
        object.__setattr__(self, "shard_shape", chunks)
        object.__setattr__(self, "replicas", holders // self.partial_sums)

    @property
    def fraction(self) -> float:
        """Size of the largest shard as a fraction of the array, such as 0.125."""
        pairs = zip(self.shard_shape, self.shape, strict=True)
        return math.prod(shard_dim / dim for shard_dim, dim in pairs if dim)

    @property
    def sharded_axes(self) -> tuple[int, ...]:
        """Indices of the array axes that are split into more than one shard."""
        return tuple(axis for axis, count in enumerate(self.shard_counts) if count > 1)

    def axis_slice(self, axis: int, shard: int) -> slice:
        """Return the slice of an axis that a shard covers.

        Shard ``k`` starts at ``min(k * chunk, dim)`` with ``chunk = ceil(dim / count)``, as in XLA. If the
        axis is not divisible by its number of shards, the last shards are smaller or empty.

        Args:
            axis: Index of the array axis.
            shard: Index of the shard along that axis.
        """
        dim, chunk = self.shape[axis], self.shard_shape[axis]
        return slice(min(shard * chunk, dim), min((shard + 1) * chunk, dim))

    def shard_index(self, shard_index: Sequence[int]) -> Index:
        """Return the slices of the array that a shard covers.

        Args:
            shard_index: Index of the shard along each axis.

        Raises:
            LayoutError: (a ValueError) If there is no such shard.
        """
        return tuple(self.axis_slice(axis, shard) for axis, shard in enumerate(self._checked(shard_index)))

    def index_of(self, device_id: int) -> Index:
        """Return the slices of the array that a device holds.

        Raises:
            LayoutError: (a ValueError) If the device holds no shard of the array.

        >>> layout = ShardingLayout(shape=(8, 16), device_ids=np.array([[[0, 1]], [[2, 3]]]))
        >>> layout.index_of(3)
        (slice(4, 8, None), slice(0, 16, None))
        """
        return self.shard_index(self._position(device_id))

    def holders_of(self, device_id: int) -> tuple[int, ...]:
        """Return the ids of all devices that hold the same shard as a device, including that device.

        Raises:
            LayoutError: (a ValueError) If the device holds no shard of the array.

        >>> layout = ShardingLayout(shape=(8, 16), device_ids=np.array([[[0, 1]], [[2, 3]]]))
        >>> layout.holders_of(3)
        (2, 3)
        """
        return self.devices_of(self._position(device_id))

    def devices_of(self, shard_index: Sequence[int]) -> tuple[int, ...]:
        """Return the ids of the devices that hold a shard, one for each replica of each partial sum.

        Args:
            shard_index: Index of the shard along each axis.

        Raises:
            LayoutError: (a ValueError) If there is no such shard.
        """
        return tuple(self.device_ids[self._checked(shard_index)].tolist())

    def _position(self, device_id: int) -> tuple[int, ...]:
        """Return the index along each axis of the shard on a device."""
        ids = self.device_ids.reshape(-1)
        try:
            # Searching a list is faster for few devices, an array for many.
            few = ids.size <= 256
            position = ids.tolist().index(device_id) if few else int(np.flatnonzero(ids == device_id)[0])
        except (ValueError, IndexError):
            raise LayoutError(
                f"device {device_id} holds no shards of this array, "
                f"which is on devices {format_device_ids(np.unique(ids).tolist())}"
            ) from None
        *shard_index, _ = map(int, np.unravel_index(position, self.device_ids.shape))
        return tuple(shard_index)

    def _checked(self, shard_index: Sequence[int]) -> tuple[int, ...]:
        position = tuple(shard_index)
        counts = self.shard_counts
        if len(position) != len(counts) or not all(
            0 <= index < count for index, count in zip(position, counts, strict=True)
        ):
            raise LayoutError(
                f"there is no shard {position}: the shards form a grid of {counts}. Count from 0"
            )
        return position

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardingLayout):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.platform == other.platform
            and self.processes == other.processes
            and self.partial_sums == other.partial_sums
            and self.unreduced == other.unreduced
            and np.array_equal(self.device_ids, other.device_ids)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.device_ids.shape, self.device_ids.tobytes()))


def require_few_axes(count: int) -> None:
    """Raise LayoutError for an array with more axes than numpy supports."""
    if count > MAX_AXES:
        raise LayoutError(f"{count} axes exceed the limit of {MAX_AXES}")


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of integers.

    Raises:
        UnsupportedValueError: (a ValueError) If it is not a sequence of integers.
    """
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        raise UnsupportedValueError(
            f"a shape is a sequence of integers, such as (8, 4), got {plain_text(shape, repr)}"
        ) from None


def mesh_layout(
    shape: Sequence[int],
    axis_sizes: Mapping[str, int],
    axes: Sequence[Sequence[str]],
    device_ids: NDArray[Any] | None = None,
    platform: str | None = None,
    processes: Processes = (),
    unreduced: Sequence[str] = (),
) -> ShardingLayout:
    """Return the layout of an array that is sharded over the axes of a mesh.

    The number of shards along an array axis is the product of the sizes of its mesh axes, the first one
    most major, as in JAX. The array is replicated over the remaining mesh axes.

    Args:
        shape: Global shape of the array.
        axis_sizes: Size of each mesh axis, in the order of the mesh.
        axes: Mesh axes of each array axis; array axes beyond the last entry are unsharded.
        device_ids: Device ids in the shape of the mesh; 0…n−1 when None.
        platform: Platform of the devices.
        processes: Devices by process; empty for a single process.
        unreduced: Mesh axes over which the values are partial sums.

    Raises:
        LayoutError: If the spec has more entries than the array has axes, or the array has too many axes.
    """
    shape = as_shape(shape)
    require_few_axes(len(shape))
    if len(axes) > len(shape):
        raise LayoutError(
            f"the spec has {counted(len(axes), 'entry', 'entries')}, "
            f"but the array has {counted(len(shape), 'axis', 'axes')}: shape {shape}"
        )
    if device_ids is None:
        device_ids = np.arange(math.prod(axis_sizes.values())).reshape(tuple(axis_sizes.values()))
    order = {name: number for number, name in enumerate(axis_sizes)}
    used = [order.pop(name) for entry in (*axes, unreduced) for name in entry]
    counts = [math.prod([axis_sizes[name] for name in entry]) for entry in axes]
    counts += [1] * (len(shape) - len(axes))
    by_shard = device_ids.transpose([*used, *order.values()]).reshape([*counts, -1])
    summed = tuple(name for name in unreduced if axis_sizes[name] > 1)
    return ShardingLayout(
        shape=shape,
        device_ids=by_shard,
        platform=platform,
        processes=processes,
        partial_sums=math.prod(axis_sizes[name] for name in summed),
        unreduced=summed,
    )


def slices_layout(
    shape: Sequence[int],
    slices: Mapping[int, Index],
    *,
    platform: str | None = None,
    processes: Processes = (),
) -> ShardingLayout:
    """Return the layout with the given slices on each device.

    Args:
        shape: Global shape of the array.
        slices: For each device id, a slice along each axis; a start or stop of None is the end of the axis.
        platform: Platform of the devices.
        processes: Devices by process; empty for a single process.

    Raises:
        LayoutError: If the slices do not form a regular grid (chunks of equal size, each with the same number
            of replicas).
    """
    shape = as_shape(shape)
    resolved = {
        device: tuple(piece.indices(dim)[:2] for piece, dim in zip(index, shape, strict=True))
        for device, index in slices.items()
    }
    bounds = [sorted({index[axis] for index in resolved.values()}) for axis in range(len(shape))]
    cells = by_key(
        (tuple(bounds[axis].index(piece) for axis, piece in enumerate(index)), device)
        for device, index in resolved.items()
    )
    counts = tuple(map(len, bounds))
    replicas = max(map(len, cells.values()))
    if len(cells) == math.prod(counts) and all(len(held) == replicas for held in cells.values()):
        ids = np.array([cells[position] for position in np.ndindex(*counts)])
        layout = ShardingLayout(
            shape=shape, device_ids=ids.reshape(*counts, replicas), platform=platform, processes=processes
        )
        if all(
            (piece.start, piece.stop) == start_and_stop
            for axis, axis_bounds in enumerate(bounds)
            for shard, start_and_stop in enumerate(axis_bounds)
            for piece in [layout.axis_slice(axis, shard)]
        ):
            return layout
    raise LayoutError(
        f"the slices of an array of shape {shape} on {len(slices)} devices "
        "do not form a regular grid of shards: only shardings with equal slices along each axis are supported"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPart:
    """The part of a multi-process array on the devices of one process."""

    process: int
    """Index of the process: the result of ``jax.process_index()`` in that process."""

    devices: tuple[int, ...]
    """Ids of the process's devices that hold a shard, ascending."""

    shard_count: int
    """Number of different shards on these devices."""

    element_count: int
    """Number of elements in these shards, without replicas."""

    index: tuple[tuple[int, int], ...] | None
    """Start and stop along each axis if the shards form one contiguous block of the array, else None."""

    nbytes: int | None
    """Bytes of these shards, without replicas; None if the size of the dtype is unknown."""

    device_nbytes: int | None
    """Bytes in total on these devices, with replicas; None if the size of the dtype is unknown."""


def local_part(layout: ShardingLayout, process: int, bits: int | None) -> LocalPart:
    """Return the part of a multi-process array on the devices of one process.

    Args:
        layout: Layout of the array.
        process: Index of the process.
        bits: Bits per element on a device; None where they are not known.
    """
    # A layout without processes is on devices of a single process, and that is another one.
    local_ids = dict(layout.processes).get(process, ())
    ids = layout.device_ids.reshape(-1)
    places = np.flatnonzero(np.isin(ids, local_ids))
    # A process has few of the devices, so the rest works on these alone.
    numbers, replica_counts = np.unique(places // layout.device_ids.shape[-1], return_counts=True)
    shards = np.array(np.unravel_index(numbers, (1, *layout.shard_counts)))[1:].T
    starts = np.minimum(shards * layout.shard_shape, layout.shape)
    stops = np.minimum((shards + 1) * layout.shard_shape, layout.shape)
    element_counts = (stops - starts).prod(axis=1, dtype=np.int64)
    nbytes = -(-element_counts * (bits or 0) // 8)
    return LocalPart(
        process=process,
        devices=tuple(np.sort(ids[places]).tolist()),
        shard_count=len(shards),
        element_count=int(element_counts.sum()),
        index=_box(starts, stops, int(element_counts.sum())),
        nbytes=None if bits is None else int(nbytes.sum()),
        device_nbytes=None if bits is None else int(nbytes @ replica_counts),
    )


def _box(
    starts: NDArray[np.int64], stops: NDArray[np.int64], element_count: int
) -> tuple[tuple[int, int], ...] | None:
    """Return the bounds of the box that some shards fill; None if they do not fill one or there are none."""
    if not len(starts):
        return None
    lowest, highest = starts.min(axis=0).tolist(), stops.max(axis=0).tolist()
    bounds = tuple(zip(lowest, highest, strict=True))
    # Shards do not overlap, so they fill the box around them if they have as many elements.
    return bounds if math.prod(stop - start for start, stop in bounds) == element_count else None
