"""Statistics of the elements of leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..compat import values
from ..compat.partition_specs import as_spec
from ..compat.running import call_apart
from ..compat.shardings import is_named
from ..reports.tree import LeafStatistics, TreeReport
from .leaves import tree_leaves
from .reductions import has_numbers, reduce_on_devices, reduce_on_host


def with_statistics(report: TreeReport, tree: Any) -> TreeReport:
    """Return the report of a tree with the statistics of its leaves; of a TreeReport, with those it has."""
    if type(tree) is TreeReport:
        return report
    found = leaf_statistics([leaf.value for leaf in tree_leaves(tree).leaves])
    rows = zip(report.rows, found, strict=True)
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
    found = {
        id(leaf): None if one is None else _merged(one) for leaf, one in zip(distinct, rows, strict=True)
    }
    return [found[id(leaf)] for leaf in leaves]


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
        return [None] if len(results) == 1 else [_fetched([one])[0] for one in results]


def _merged(rows: np.ndarray[Any, Any]) -> LeafStatistics:
    """Return the statistics of a leaf from those of its shards."""
    counts = [sum(map(int, column)) for column in rows[:, :4].T]
    mean = std = least = greatest = None
    shards = [row for row in rows.tolist() if row[0]]
    if shards:
        finite, _, _, _, means, deviations, minima, maxima = zip(*shards, strict=True)
        shares = [count / counts[0] for count in finite]
        mean = math.fsum(share * one for share, one in zip(shares, means, strict=True))
        spread = zip(shares * 2, (*deviations, *(one - mean for one in means)), strict=True)
        std = math.hypot(*(math.sqrt(share) * one for share, one in spread))
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
