"""What concrete arrays tell, on each version of jax, and the arrays of other libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..text import plain_length, plain_text
from .private import private
from .referents import attribute_dicts
from .shardings import device_assignment

if TYPE_CHECKING:
    import jax


def host_copy(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """Return the value of a concrete 0-d array, waiting for it; None where that cannot be had harmlessly.

    Up to jax 0.11, reading an array that is on several devices, or of a dtype that is not numpy's own,
    leaves one more live array behind, so a passing alias of it is read instead. Of an array that
    spans processes no alias is made.
    """
    import jax

    sharding = array.sharding
    if not array.is_fully_addressable:
        return None
    devices = np.array(device_assignment(sharding, array.shape))
    alias = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, ("jax_array_info alias",)),
        jax.sharding.PartitionSpec(),
        memory_kind=sharding.memory_kind,
    )
    try:
        # Inside a trace, device_put would become part of the user's program.
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.device_put(array, alias))
    except Exception:
        # The computation that makes it has failed, a transfer guard forbids to read it, or this is
        # the inside of shard_map up to jax 0.6, from where no trace can be left: whatever is raised
        # there, the user's program goes on without this value.
        return None


def label_carrier(array: Any) -> Any:
    """Return the array that ``jax.live_arrays`` lists for this one: for PRNG keys the one under them."""
    return getattr(array, "_base_array", array)


def shard_views(arrays: Sequence[jax.Array]) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield the single-device arrays that ``array.addressable_shards`` has made, each with its ``array``.

    They share the buffers of the array. Reading the attribute would make them, so its cache is read.
    """
    # All at once is far faster than one by one, and most programs have no such arrays.
    if not any("addressable_shards" in part for part in attribute_dicts(*arrays)):
        return
    for array in arrays:
        for part in attribute_dicts(array):
            for shard in part.get("addressable_shards", ()):
                view = getattr(shard, "_data", None)
                if view is not None and view is not array:
                    yield view, array


def shard_place(shard: Any) -> tuple[Any, tuple[tuple[int, int], ...] | None, int | None]:
    """Return the device of a ``jax.Shard``, its start and stop along each axis, and its replica.

    The index and the replica are None where the sharding does not tell them. The data are left alone.
    """
    shape = getattr(shard, "_global_shape", None)
    try:
        index = tuple(
            (piece.start or 0, dim if piece.stop is None else piece.stop)
            for piece, dim in zip(shard.index, shape or (), strict=True)
        )
        return shard.device, index, int(shard.replica_id)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return shard.device, None, None


def traceback_of(array: Any) -> Any:
    """Return the traceback of what made a live array, which has a hash; None where this jax does not tell."""
    try:
        return array.traceback
    except (AttributeError, RuntimeError):
        # It is undocumented; of a deleted array it may be refused.
        return None


def tells_tracebacks() -> bool:
    """Return whether arrays remember what made them."""
    return hasattr(private("array").ArrayImpl, "traceback")


def traceback_lines(traceback: Any) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of such a traceback, the innermost first."""
    return [(frame.file_name, frame.line_num, frame.function_name) for frame in traceback.frames]


@dataclass(frozen=True, slots=True)
class ForeignDtype:
    """The dtype of an array that is not numpy's."""

    name: str
    itemsize: int | None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayLike:
    """The facts that an object states which has a shape and a dtype, read once."""

    shape: tuple[int | str, ...]
    dtype: np.dtype[Any] | ForeignDtype
    weak_type: bool
    sharding: Any


def array_like(value: Any) -> ArrayLike | None:
    """Return the facts that an object states of itself; None without a tuple of lengths and a dtype."""
    shape, dtype = attribute(value, "shape"), attribute(value, "dtype")
    if dtype is None or not issubclass(type(shape), tuple):
        return None
    weak_type = attribute(value, "weak_type") is True
    return ArrayLike(
        tuple(map(plain_length, tuple.__iter__(shape))),
        _plain_dtype(dtype),
        weak_type,
        attribute(value, "sharding"),
    )


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of any object; None where it has none, or where reading it raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        # A property or ``__getattr__`` of the user's may raise anything.
        return None


def _plain_dtype(dtype: Any) -> np.dtype[Any] | ForeignDtype:
    """Return a dtype as numpy's, that of a class such as ``np.float32`` too; else as it describes itself."""
    found: np.dtype[Any]
    if issubclass(type(dtype), np.dtype):
        found = dtype
        return found
    if issubclass(type(dtype), type):
        try:
            found = np.dtype(dtype)
        except Exception:
            # A class may have a dtype of its own: a descriptor that raises anything.
            found = np.dtype(object)
        if not found.hasobject:
            return found
    itemsize = attribute(dtype, "itemsize")
    return ForeignDtype(plain_text(dtype), itemsize if type(itemsize) is int else None)
