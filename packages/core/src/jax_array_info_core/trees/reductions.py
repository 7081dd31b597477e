"""Counts, extremes and moments of the elements of an array, reduced block by block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..compat.devices import default_memory_kind, local_first
from ..compat.partition_specs import spec_entries
from ..compat.running import per_shard
from ..compat.shardings import is_named

BLOCK = 2**20
"""Number of elements that are reduced at a time, which bounds the temporary memory."""

_MERGES = ("add", "minimum", "maximum")
_COLLECTIVES = ("psum", "pmin", "pmax")

_Partial = tuple[Any, ...]
"""Sums, minima and maxima over some elements, or only sums."""

_Block = Callable[[Any, Any], _Partial]
"""Reduces the elements of a block where a mask is true."""


class Reduction(NamedTuple):
    """The reduction of an array, as JAX or NumPy arrays."""

    counts: Any
    """int64[4]: the numbers of finite, zero, NaN and infinite elements."""

    numbers: Any
    """float64[4]: mean, standard deviation, minimum and maximum of the finite elements; 0 without any."""


def has_numbers(dtype: Any) -> bool:
    """Return whether the elements of a dtype are numbers or truth values."""
    import jax.numpy as jnp

    is_numpy = issubclass(type(dtype), np.dtype) and dtype.kind not in "mM"  # times, in NumPy integers
    return is_numpy and any(jnp.issubdtype(dtype, kind) for kind in (jnp.number, jnp.bool_))


def reduce_on_devices(array: Any) -> Reduction:
    """Start the reduction of a JAX array where its shards are, inside ``call_apart``.

    Each device reduces its shard, and collectives merge the results. The call does not wait for the result,
    unless the array is in host memory: so only one such array at a time has a copy on the devices.
    """
    import jax

    sharding = array.sharding
    kind = default_memory_kind(local_first(sharding.device_set))
    if sharding.memory_kind not in (None, kind):
        reduction: Reduction = reduce_on_devices(jax.device_put(array, sharding.with_memory_kind(kind)))
        jax.block_until_ready(reduction)
        return reduction
    # A new jitted function, which no list of live functions will contain. JAX caches programs by _program.
    program = jax.jit(_program, static_argnums=(1, 2, 3))
    if len(sharding.device_set) > 1 and is_named(sharding):
        return Reduction(*program(array, sharding.mesh, sharding.spec, True))
    return Reduction(*program(array, None, None, len(sharding.device_set) == 1))


def _program(array: Any, mesh: Any, spec: Any, in_blocks: bool) -> Any:
    """Reduce an array inside jit; in parallel on each shard of a mesh."""
    if mesh is None:
        # XLA would gather the shards for slices of a sharded array, so it is reduced as a whole.
        return _reduce_shard(array, (), in_blocks)
    entries = [entry for entry in spec_entries(spec) if entry is not None]
    names = tuple(name for entry in entries for name in (entry if isinstance(entry, tuple) else (entry,)))
    return per_shard(partial(_reduce_shard, names=names, in_blocks=in_blocks), mesh, spec)(array)


def _reduce_shard(array: Any, names: tuple[Any, ...], in_blocks: bool) -> Reduction:
    """Reduce a shard and merge the results over mesh axes."""
    import jax
    import jax.numpy as jnp

    def fold(reduce_block: _Block, initial: _Partial) -> _Partial:
        result = _fold_slices(array, reduce_block, initial) if in_blocks else reduce_block(array, True)
        if not names:
            return result
        merges = zip(_COLLECTIVES, result, strict=False)
        return tuple(getattr(jax.lax, merge)(part, names) for merge, part in merges)

    return _reduce(jnp, array.dtype, fold)


def _fold_slices(array: Any, reduce_block: _Block, initial: _Partial) -> _Partial:
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


def reduce_on_host(array: np.ndarray[Any, Any]) -> Reduction:
    """Reduce a NumPy array, without a copy."""

    def fold(reduce_block: _Block, result: _Partial) -> _Partial:
        blocks = np.nditer(array, ("external_loop", "buffered", "zerosize_ok"), buffersize=BLOCK)
        for block in blocks:
            result = _merged(np, result, reduce_block(block, np.True_))
        return result

    with np.errstate(all="ignore"):
        return _reduce(np, array.dtype, fold)


def _merged(xp: Any, one: _Partial, other: _Partial) -> _Partial:
    """Merge the results of two blocks."""
    merges = zip(_MERGES, one, other, strict=False)
    return tuple(getattr(xp, merge)(part, more) for merge, part, more in merges)


def _reduce(xp: Any, dtype: Any, fold: Callable[[_Block, _Partial], _Partial]) -> Reduction:
    """Reduce an array in two passes: counts and extremes, then the moments about the center of the extremes.

    In the second pass, each element is in [-1, 1], so that no sum overflows. The rounding errors of the
    variance stay small, since both extremes are elements.

    Args:
        xp: The namespace, ``jax.numpy`` or ``numpy``.
        dtype: Dtype of the array.
        fold: Applies a function to each block and merges the results, beginning with an initial one.
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
    return Reduction(counts, xp.stack([mean, deviation, least, greatest]))


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
