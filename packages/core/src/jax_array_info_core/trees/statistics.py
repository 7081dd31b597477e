"""Statistics of the elements of leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..compat import values
from ..compat.running import call_apart
from ..reports.tree import LeafStatistics, TreeReport
from .leaves import tree_leaves
from .reductions import Reduction, has_numbers, reduce_on_devices, reduce_on_host


def with_statistics(report: TreeReport, tree: Any) -> TreeReport:
    """Return the report of a tree with the statistics of its leaves; of a TreeReport, with those it has."""
    if isinstance(tree, TreeReport):
        return report
    found = leaf_statistics([leaf.value for leaf in tree_leaves(tree).leaves])
    rows = zip(report.rows, found, strict=True)
    return replace(report, rows=tuple(replace(row, statistics=statistics) for row, statistics in rows))


def leaf_statistics(leaves: Sequence[Any]) -> list[LeafStatistics | None]:
    """Return the statistics of each leaf, or None.

    JAX arrays are reduced where their shards are, and only the results are transferred. All reductions start
    before the call waits for the first one, except that arrays in host memory are copied to the devices one
    after the other. Sums are in float64, counts in int64. Each distinct shape, dtype and sharding is compiled
    once. Temporary memory is a few tens of MiB per device.

    The reduction of an array that spans processes is a collective: every process must make the same call.

    The result is None for abstract and traced values, PRNG keys, Refs, deleted arrays, and NumPy arrays of
    objects, times or text. It is also None if JAX cannot reduce the array, for example because the
    computation of the array failed.
    """
    distinct = list({id(leaf): leaf for leaf in leaves}.values())
    found = dict(zip(map(id, distinct), call_apart(lambda: _reductions(distinct)), strict=True))
    return [_statistics(found[id(leaf)]) for leaf in leaves]


def _reductions(leaves: Sequence[Any]) -> list[Reduction | None]:
    """Return the reductions of leaves, computed."""
    return _fetched([_start(leaf) for leaf in leaves])


def _start(leaf: Any) -> Reduction | None:
    """Start the reduction of a leaf; None if it has no numbers."""
    if issubclass(type(leaf), (np.ndarray, np.generic)):
        array = np.asarray(leaf).view(np.ndarray)
        return reduce_on_host(array) if has_numbers(array.dtype) else None
    if not values.is_array(leaf) or not has_numbers(leaf.dtype):
        return None
    try:
        return reduce_on_devices(leaf)
    except Exception:
        # The array may be deleted, or the devices may have no memory left or lack 64-bit numbers.
        return None


def _fetched(reductions: list[Reduction | None]) -> list[Reduction | None]:
    """Return the reductions as NumPy arrays, once they are computed; None where the computation failed."""
    import jax

    try:
        found: list[Reduction | None] = jax.device_get(reductions)
    except Exception:
        # The computation of an array failed, now or before.
        return [None] if len(reductions) == 1 else [_fetched([one])[0] for one in reductions]
    return found


def _statistics(reduction: Reduction | None) -> LeafStatistics | None:
    """Return the statistics of a leaf as plain numbers."""
    if reduction is None:
        return None
    finite, zeros, nans, infinities = map(int, reduction.counts)
    mean, std, least, greatest = (_number(number) if finite else None for number in reduction.numbers)
    return LeafStatistics(
        mean=mean,
        std=std,
        least=least,
        greatest=greatest,
        zeros=zeros,
        nans=nans,
        infinities=infinities,
    )


def _number(value: Any) -> float | None:
    """Return a number; None if float64 cannot represent it, as with absolute values of complex128."""
    return float(value) if math.isfinite(value) else None
