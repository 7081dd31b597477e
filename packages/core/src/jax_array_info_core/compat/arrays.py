"""Facts about arrays of JAX and of other libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layouts.dtypes import bits_per_element, dtype_name
from ..reports.array import Dim
from ..text import plain_shape, plain_text
from .referents import attribute_dicts
from .shardings import device_assignment, sharding_facts
from .tracers import known_by_type, traced_facts
from .values import ArrayFacts, KnownSharding, is_array, is_sharding, is_tracer, private, type_name

if TYPE_CHECKING:
    import jax


def array_facts(value: Any, *, reads_value: bool = True) -> ArrayFacts | None:
    """Return the facts of a JAX array, a traced value or an abstract value; None for any other value.

    Args:
        value: The value.
        reads_value: Whether to read the value of a concrete 0-d array, which waits for its computation.
    """
    import jax

    if is_tracer(value):
        return traced_facts(value)
    cls, is_concrete = type(value), is_array(value)
    if not is_concrete and not issubclass(cls, (jax.ShapeDtypeStruct, jax.core.ShapedArray)):
        return None
    shape = plain_shape(value.shape)
    is_type = issubclass(cls, jax.core.ShapedArray)
    known = known_by_type(value) if is_type else _carried(value.sharding, shape)
    is_deleted = is_concrete and value.is_deleted()
    reads_value = reads_value and is_concrete and shape == () and not is_deleted
    return ArrayFacts(
        kind="array" if is_concrete else "abstract",
        type_name=type_name(value),
        shape=shape,
        dtype=dtype_name(value.dtype),
        bits=bits_per_element(value.dtype),
        weak_type=bool(getattr(value, "weak_type", False)),
        value=_scalar_text(value) if reads_value else None,
        is_deleted=is_deleted,
        is_unsharded=not is_concrete and not is_type and known.source == "unknown",
        known=known,
    )


def _carried(sharding: Any, shape: tuple[Dim, ...]) -> KnownSharding:
    """Return the sharding from a value's ``sharding`` attribute, unknown if it is not a JAX sharding."""
    if not is_sharding(sharding):
        return KnownSharding()
    return KnownSharding(source="array", sharding=sharding_facts(sharding, shape))


def _scalar_text(array: jax.Array) -> str | None:
    """Return the value of a concrete 0-d array as text, once it is computed; None if it cannot be read."""
    import jax

    is_extended = jax.numpy.issubdtype(array.dtype, jax.dtypes.extended)
    copy = None if is_extended else host_copy(array)
    return None if copy is None else str(copy)


def host_copy(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """Return the value of a concrete 0-d array, once it is computed; None if it cannot be read.

    Up to JAX 0.11, reading an array that is on several devices, or whose dtype numpy lacks, adds an array
    to ``jax.live_arrays()``. A temporary alias is read instead. An array that spans processes is not read.
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
        # The computation may have failed, a transfer guard may forbid the transfer, and up to JAX 0.6
        # the trace of a shard_map cannot be left. In each case the user's program continues.
        return None


def is_committed(array: Any) -> bool:
    """Return whether an array was placed on its devices explicitly, so that JAX computes with it there."""
    committed = getattr(array, "committed", None)
    return bool(getattr(array, "_committed", True) if committed is None else committed)


def label_carrier(array: Any) -> Any:
    """Return the base array of a PRNG key array, which ``jax.live_arrays`` lists; any other array itself."""
    return getattr(array, "_base_array", array)


def shard_views(arrays: Sequence[jax.Array]) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield each single-device array that ``array.addressable_shards`` created, with its ``array``.

    They share the buffers of ``array``. Reading the attribute would create them, so its cache is read.
    """
    # One call for all arrays is far faster than one per array, and most programs have no views.
    if not any("addressable_shards" in part for part in attribute_dicts(*arrays)):
        return
    for array in arrays:
        for part in attribute_dicts(array):
            for shard in part.get("addressable_shards", ()):
                view = getattr(shard, "_data", None)
                if view is not None and view is not array:
                    yield view, array


def shard_place(shard: Any) -> tuple[Any, tuple[tuple[int, int], ...] | None, int | None]:
    """Return the device of a ``jax.Shard``, its start and stop along each axis, and its replica id.

    The index and the replica id are None if the sharding does not define them. The data are not read.
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
    """Return the traceback of an array's allocation, which is hashable; None where JAX recorded none."""
    try:
        return array.traceback
    except (AttributeError, RuntimeError):
        # The attribute is undocumented, and a deleted array may refuse access.
        return None


def has_tracebacks() -> bool:
    """Return whether this version of JAX records the traceback of each allocation."""
    return hasattr(private("array").ArrayImpl, "traceback")


def traceback_lines(traceback: Any) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of such a traceback, innermost first."""
    return [(frame.file_name, frame.line_num, frame.function_name) for frame in traceback.frames]


def array_like(value: Any) -> ArrayFacts | None:
    """Return the facts of an array-like object; None unless its ``shape`` is a tuple and it has a dtype."""
    shape, dtype = attribute(value, "shape"), attribute(value, "dtype")
    if dtype is None or not issubclass(type(shape), tuple):
        return None
    shape = plain_shape(tuple.__iter__(shape))
    if any(isinstance(length, int) and length < 0 for length in shape):
        return None
    name, bits = _plain_dtype(dtype)
    return ArrayFacts(
        kind="array-like",
        type_name=type_name(value),
        shape=shape,
        dtype=name,
        bits=bits,
        weak_type=attribute(value, "weak_type") is True,
        known=_carried(attribute(value, "sharding"), shape),
    )


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of any object; None if it is missing or reading it raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        # A user's property or ``__getattr__`` may raise anything.
        return None


def _plain_dtype(dtype: Any) -> tuple[str, int | None]:
    """Return the name and the bits of a numpy dtype, a class such as ``np.float32``, or a foreign dtype."""
    if not issubclass(type(dtype), np.dtype) and issubclass(type(dtype), type):
        try:
            found = np.dtype(dtype)
        except Exception:
            # The class may define its own ``dtype``, a descriptor that may raise anything.
            found = np.dtype(object)
        dtype = dtype if found.hasobject else found
    if issubclass(type(dtype), np.dtype):
        return str(dtype), bits_per_element(dtype)
    itemsize = attribute(dtype, "itemsize")
    return plain_text(dtype), 8 * itemsize if type(itemsize) is int else None
