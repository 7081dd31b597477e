"""Counts, extremes and moments of the elements of an array, reduced block by block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..compat.devices import default_memory_kind, local_first
from ..compat.partition_specs import spec_entries
from ..compat.running import per_shard
from ..compat.shardings import is_named

BLOCK = 2**20
"""Number of elements that are reduced at a time, which bounds the temporary memory."""

_Partial = tuple[Any, ...]
"""Sums, minima and maxima of some elements, or only sums."""

_MERGES = ("add", "minimum", "maximum")

_ReduceBlock = Callable[[Any, Any], _Partial]
"""Reduces the elements of a block where a mask is true."""


def has_numbers(dtype: Any) -> bool:
    """Return whether the elements of a dtype are numbers or truth values."""
    import jax.numpy as jnp

    is_numpy = issubclass(type(dtype), np.dtype) and dtype.kind not in "mM"  # times, in NumPy integers
    return is_numpy and any(jnp.issubdtype(dtype, kind) for kind in (jnp.number, jnp.bool_))


def reduce_on_devices(array: Any) -> Any:
    """Start the reduction of a JAX array where its shards are. Call it inside ``call_apart``.

    The call does not wait for the result, apart from two cases. Of arrays in host memory, only one at a time
    has a copy on the devices. For an array that spans processes, the program contains a collective.

    Returns:
        An array with one row of numbers for each shard, as ``_reduce`` returns them.
    """
    import jax

    sharding = array.sharding
    kind = default_memory_kind(local_first(sharding.device_set))
    if sharding.memory_kind not in (None, kind):
        rows = reduce_on_devices(jax.device_put(array, sharding.with_memory_kind(kind)))
        return jax.block_until_ready(rows)
    # A new jitted function, which no list of live functions will contain. JAX caches programs by _program.
    program = jax.jit(_program, static_argnums=(1, 2))
    if len(sharding.device_set) == 1:
        return program(array, None, None)
    rows = (
        program(array, sharding.mesh, sharding.spec) if is_named(sharding) else jax.jit(_reduce_whole)(array)
    )
    # On CPUs of several processes, JAX 0.4.38 gave wrong results with several such programs in flight.
    return rows if array.is_fully_addressable else jax.block_until_ready(rows)


def _program(array: Any, mesh: Any, spec: Any) -> Any:
    """Reduce an array inside jit: each shard on a mesh, or a single shard."""
    import jax

    if mesh is None:
        return _reduce_shard(array)
    entries = [entry for entry in spec_entries(spec) if entry is not None]
    names = tuple(name for entry in entries for name in (entry if isinstance(entry, tuple) else (entry,)))
    if not (names and mesh.is_multi_process):
        return per_shard(_reduce_shard, mesh, spec, jax.sharding.PartitionSpec(names))(array)

    def reduce_and_gather(shard: Any) -> Any:
        return jax.lax.all_gather(_reduce_shard(shard), names, tiled=True)

    return per_shard(reduce_and_gather, mesh, spec, jax.sharding.PartitionSpec())(array)


def _reduce_shard(shard: Any) -> Any:
    """Reduce a shard in slices."""
    import jax.numpy as jnp

    return _reduce(jnp, shard.dtype, partial(_fold_slices, shard))[None]


def _reduce_whole(array: Any) -> Any:
    """Reduce an array with a sharding that has no mesh. XLA would gather the shards to slice them."""
    import jax.numpy as jnp

    return _reduce(jnp, array.dtype, lambda reduce_block, _: reduce_block(array, True))[None]


def _fold_slices(array: Any, reduce_block: _ReduceBlock, initial: _Partial) -> _Partial:
    """Reduce slices along the longest axis, one after the other."""
    import jax
    import jax.numpy as jnp

    if array.size <= BLOCK:
        return reduce_block(array, True)
    axis = int(np.argmax(array.shape))
    length = array.shape[axis]
    width = max(1, BLOCK * length // array.size)
    # The last slice overlaps the one before, so that all have the same shape.
    positions = jnp.expand_dims(jnp.arange(width), [other for other in range(array.ndim) if other != axis])

    def add_slice(number: Any, result: _Partial) -> _Partial:
        start = jnp.minimum(number * width, length - width)
        block = jax.lax.dynamic_slice_in_dim(array, start, width, axis)
        return _merged(jnp, result, reduce_block(block, positions >= number * width - start))

    result: _Partial = jax.lax.fori_loop(0, -(-length // width), add_slice, initial)
    return result


def reduce_on_host(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Reduce a NumPy array, without a copy. Returns one row of numbers, as for a single shard."""

    def fold(reduce_block: _ReduceBlock, result: _Partial) -> _Partial:
        blocks = np.nditer(array, ("external_loop", "buffered", "zerosize_ok"), buffersize=BLOCK)
        for block in blocks:
            result = _merged(np, result, reduce_block(block, np.True_))
        return result

    with np.errstate(all="ignore"):
        row: np.ndarray[Any, Any] = _reduce(np, array.dtype, fold)[None]
    return row


def _merged(xp: Any, one: _Partial, other: _Partial) -> _Partial:
    """Merge the results of two blocks."""
    merges = zip(_MERGES, one, other, strict=False)
    return tuple(getattr(xp, merge)(part, more) for merge, part, more in merges)


def _reduce(xp: Any, dtype: Any, fold: Callable[[_ReduceBlock, _Partial], _Partial]) -> Any:
    """Reduce an array in two passes: counts and extremes, then the moments about the center of the extremes.

    In the second pass, each element is in [-1, 1], so no sum overflows. Since both extremes are elements, the
    variance is at least ``2 / count``, far above the rounding errors.

    Args:
        xp: The namespace, ``jax.numpy`` or ``numpy``.
        dtype: Dtype of the array.
        fold: Applies a function to each block and merges the results, beginning with an initial one.

    Returns:
        float64[8]: the numbers of finite, zero, NaN and infinite elements; mean, standard deviation, minimum
        and maximum of the finite ones, 0 without any.
    """
    counts, least, greatest = fold(partial(_tally, xp), _tally(xp, xp.zeros((), dtype), False))
    has_any = counts[0] > 0
    least, greatest = (xp.where(has_any, value.astype(np.float64), 0.0) for value in (least, greatest))
    center, radius = least / 2 + greatest / 2, greatest / 2 - least / 2
    is_moderate = (radius == 0) | (radius > 1e-12) & (radius < 1e12)
    scale = xp.where(is_moderate, 1.0, radius)
    (sums,) = fold(partial(_moments, xp, center, scale), (xp.zeros(2, np.float64),))
    first, second = sums / xp.maximum(counts[0], 1).astype(np.float64)
    mean = xp.clip(center + scale * first, least, greatest)
    deviation = scale * xp.sqrt(xp.maximum(second - first * first, 0.0))
    return xp.concatenate([counts.astype(np.float64), xp.stack([mean, deviation, least, greatest])])


def _tally(xp: Any, block: Any, mask: Any) -> _Partial:
    """Return the counts of finite, zero, NaN and infinite elements, and the extremes of the finite ones."""
    wide = _widened(xp, block)
    is_nan, is_finite = xp.isnan(wide), xp.isfinite(wide)
    kinds = (is_finite, wide == xp.zeros((), wide.dtype), is_nan, ~is_nan & ~is_finite)
    counts = xp.stack([xp.sum(kind & mask, dtype=np.int64) for kind in kinds])
    magnitude, chosen = _magnitude(xp, wide), is_finite & mask
    dtype = magnitude.dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    least = xp.min(magnitude, where=chosen, initial=xp.asarray(limits.max, dtype))
    greatest = xp.max(magnitude, where=chosen, initial=xp.asarray(limits.min, dtype))
    return counts, least, greatest


def _moments(xp: Any, center: Any, scale: Any, block: Any, mask: Any) -> _Partial:
    """Return the sums of the finite elements and of their squares, after centering and scaling."""
    wide = _widened(xp, block)
    scaled = (_magnitude(xp, wide).astype(np.float64) - center) / scale
    chosen = xp.where(xp.isfinite(wide) & mask, scaled, 0.0)
    return (xp.stack([xp.sum(chosen), xp.sum(chosen * chosen)]),)


def _widened(xp: Any, block: Any) -> Any:
    """Return a block in a dtype of at least 32 bits; complex numbers in complex128."""
    import jax.numpy as jnp

    dtype = block.dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return block.astype(np.complex128)
    if dtype.itemsize >= 4:
        return block
    return block.astype(np.float32 if jnp.issubdtype(dtype, jnp.floating) else np.int32)


def _magnitude(xp: Any, wide: Any) -> Any:
    """Return the absolute values of complex numbers, and other numbers as they are."""
    return xp.abs(wide) if wide.dtype.kind == "c" else wide
