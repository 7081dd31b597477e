"""Statistics of the elements of leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..compat import values
from ..compat.arrays import call_apart, per_shard
from ..compat.shardings import default_memory_kind, is_named, local_first
from ..facts.reports.tree import LeafStatistics, TreeReport
from ..geometry.layouts.spec import as_spec, spec_entries
from .leaves import tree_leaves

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
        return _merged_moments(jnp, result, reduce_block(block, positions >= number * width - start))

    result: _Partial = jax.lax.fori_loop(0, -(-length // width), add_slice, initial)
    return result


def reduce_on_host(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Reduce a NumPy array, without a copy. Returns one row of numbers, as for a single shard."""

    def fold(reduce_block: _ReduceBlock, result: _Partial) -> _Partial:
        for block in np.nditer(array, ("external_loop", "buffered", "zerosize_ok"), buffersize=BLOCK):
            result = _merged_moments(np, result, reduce_block(block, np.True_))
        return result

    with np.errstate(all="ignore"):
        row: np.ndarray[Any, Any] = _reduce(np, array.dtype, fold)[None]
    return row


def _merged_moments(xp: Any, partial: _Partial, other: _Partial) -> _Partial:
    """Merge the results of two blocks."""
    merges = zip(_MERGES, partial, other, strict=False)
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


def with_statistics(report: TreeReport, tree: Any) -> TreeReport:
    """Return the report of a tree with the statistics of its leaves; of a TreeReport, with those it has."""
    if type(tree) is TreeReport:
        return report
    rows = zip(report.rows, leaf_statistics([leaf.value for leaf in tree_leaves(tree).leaves]), strict=True)
    return replace(report, rows=tuple(replace(row, statistics=statistics) for row, statistics in rows))


def leaf_statistics(leaves: Sequence[Any]) -> list[LeafStatistics | None]:
    """Return the statistics of each leaf, or None.

    JAX arrays are reduced where their shards are, and only the results are transferred. All reductions start
    before the call waits for the first one, except for arrays in host memory and arrays that span processes:
    these are reduced one after the other. Sums are in float64, counts in int64. Each distinct shape, dtype
    and sharding is compiled once. Temporary memory is a few tens of MiB per device.

    For an array that spans processes, the results are exchanged by a collective: every process must make the
    same call. With any other array, no collective runs.

    The result is None for abstract and traced values, PRNG keys, Refs, deleted and unreduced arrays, and
    NumPy arrays of objects, times or text. It is also None if JAX cannot reduce the array, for example
    because the computation of the array failed.
    """
    distinct = list({id(leaf): leaf for leaf in leaves}.values())
    rows = call_apart(lambda: _fetched([_start(leaf) for leaf in distinct]))
    by_id = {
        id(leaf): None if row is None else _merged(row) for leaf, row in zip(distinct, rows, strict=True)
    }
    return [by_id[id(leaf)] for leaf in leaves]


def _start(leaf: Any) -> Any:
    """Start the reduction of a leaf; None if it has no numbers."""
    if issubclass(type(leaf), (np.ndarray, np.generic)):
        array = np.asarray(leaf).view(np.ndarray)
        return reduce_on_host(array) if has_numbers(array.dtype) else None
    if not values.is_array(leaf) or not has_numbers(leaf.dtype):
        return None
    try:
        if is_named(leaf.sharding) and as_spec(leaf.sharding.spec).unreduced:
            return None  # its devices hold partial sums, not elements
        return reduce_on_devices(leaf)
    except Exception:
        # The array may be deleted, or the devices may have no memory left or lack 64-bit numbers.
        return None


def _fetched(results: list[Any]) -> list[np.ndarray[Any, Any] | None]:
    """Return results as NumPy arrays, once they are computed; None for each whose computation failed."""
    import jax

    try:
        return list(jax.device_get(results))
    except Exception:
        # Which computation failed is known only from the results one by one.
        return [None] if len(results) == 1 else [_fetched([result])[0] for result in results]


def _merged(rows: np.ndarray[Any, Any]) -> LeafStatistics:
    """Return the statistics of a leaf from those of its shards."""
    counts = [sum(map(int, column)) for column in rows[:, :4].T]
    mean = std = least = greatest = None
    shards = [row for row in rows.tolist() if row[0]]
    if shards:
        finite, _, _, _, means, deviations, minima, maxima = zip(*shards, strict=True)
        shares = [count / counts[0] for count in finite]
        mean = math.fsum(share * value for share, value in zip(shares, means, strict=True))
        spread = zip(shares * 2, (*deviations, *(value - mean for value in means)), strict=True)
        std = math.hypot(*(math.sqrt(share) * value for share, value in spread))
        least, greatest = min(minima), max(maxima)
    return LeafStatistics(
        mean=_finite(mean),
        std=_finite(std),
        least=_finite(least),
        greatest=_finite(greatest),
        zeros=counts[1],
        nans=counts[2],
        infinities=counts[3],
    )


def _finite(number: float | None) -> float | None:
    """Return a number; None if float64 cannot represent it, as some absolute values of complex128."""
    return number if number is not None and math.isfinite(number) else None
