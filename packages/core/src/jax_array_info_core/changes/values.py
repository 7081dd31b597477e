"""Differences between the values of arrays in two files, read piece by piece."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..layouts.dtypes import named_dtype, type_text
from ..reports.changes import LeafValues, ValuesDiff
from ..reports.tree import TreeReport
from ..stored.elements import Box, TooLargeError, lengths_of
from ..stored.leaves import Progress, StoredLeaf, StoredTree
from ..trees.files import errors_of_file
from ..trees.specs import matched_paths

_VOID = {1: "uint8", 2: "bfloat16"}
"""The dtypes as which bytes without a type are read, by their size. NumPy stores bfloat16 in this way."""


class StoredSide(NamedTuple):
    """A stored tree with its report."""

    path: Path
    report: TreeReport
    tree: StoredTree


def values_diff(before: StoredSide, after: StoredSide, progress: Progress | None = None) -> ValuesDiff:
    """Return the differences between the values of the leaves that two files have in common.

    Args:
        before: The first file.
        after: The second file.
        progress: Function that shows how many bytes were compared.

    Raises:
        FileFormatError: If a file cannot be read, or was changed while it was read.
    """
    others = dict(zip(matched_paths(after.report.rows, before.report.rows), after.tree.leaves, strict=True))
    pairs = [
        (row, leaf, others[row.path])
        for row, leaf in zip(before.report.rows, before.tree.leaves, strict=True)
        if row.path in others
    ]
    sizes = [row.nbytes or 0 for row, _, _ in pairs]
    found, done = [], 0
    with contextlib.closing(before.tree), contextlib.closing(after.tree):
        for (row, one, other), size in zip(pairs, sizes, strict=True):
            if progress:
                progress(done, sum(sizes))
            values = _leaf_values(row.path, (before.path, one), (after.path, other))
            done += size
            if not values.is_equal or values.nan_count_before or values.nan_count_after:
                found.append(values)
    return ValuesDiff(
        leaves=tuple(found),
        count=len(pairs),
        nbytes=sum(sizes),
        others_before=before.tree.others,
        others_after=after.tree.others,
    )


_Side = tuple[Path, StoredLeaf]


def _leaf_values(path: str, before: _Side, after: _Side) -> LeafValues:
    types = [type_text(leaf.dtype, leaf.shape) for _, leaf in (before, after)]
    make = functools.partial(LeafValues, path=path, before_type=types[0], after_type=types[1])
    shape = before[1].shape
    dtypes = _readable(before[1].dtype, after[1].dtype)
    exact = dtypes and _exact(*dtypes)
    if shape != after[1].shape or exact is None or dtypes is None:
        return make(differing_count=None)
    tally = _Tally(exact)
    try:
        for box, one, other in _pieces(before, after, dtypes) if math.prod(shape) else ():
            tally.add(box, one, other)
    except TooLargeError as error:
        return make(differing_count=None, problem=str(error))
    return make(
        differing_count=tally.differing,
        largest_difference=tally.largest,
        index=tally.index,
        before_value=None if tally.index is None else tally.values[0],
        after_value=None if tally.index is None else tally.values[1],
        nan_count_before=tally.nans[0],
        nan_count_after=tally.nans[1],
        nan_in_one_count=tally.nan_in_one,
    )


def _pieces(
    before: _Side, after: _Side, dtypes: Sequence[np.dtype[Any]]
) -> Iterator[tuple[Box, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield the pieces of a leaf: the box, and the elements in it of each side as one axis."""
    with contextlib.ExitStack() as files:
        sides = []
        for place, leaf in (before, after):
            with errors_of_file(place):
                assert leaf.open_elements is not None
                elements = files.enter_context(contextlib.closing(leaf.open_elements()))
                sides.append((place, elements, elements.order()))
        _, boxes = max((order for _, _, order in sides), key=lambda order: order[0])
        for box in boxes:
            parts = []
            for (place, elements, _), dtype in zip(sides, dtypes, strict=True):
                with errors_of_file(place):
                    part = np.ascontiguousarray(elements.read(box)).reshape(-1)
                    parts.append(part.view(dtype) if part.dtype.kind == "V" else part)
            yield box, parts[0], parts[1]


def _readable(*names: str | None) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the dtypes of two arrays; None if one has bytes without a type that cannot be guessed.

    Single bytes without a type, as NumPy stores float8, are read as the other array's dtype.
    """
    dtypes = []
    for name, other in zip(names, reversed(names), strict=True):
        if name is None or other is None:
            return None
        if name.startswith("V"):
            size = int(name[1:])
            typed = None if other.startswith("V") else _dtype(other)
            if size not in _VOID:
                return None
            is_byte = size == 1 and typed is not None and typed.itemsize == 1
            name = str(typed) if is_byte else _VOID[size]
        dtypes.append(_dtype(name))
    return dtypes[0], dtypes[1]


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name) if name in ("float128", "complex256") else named_dtype(name)


def _exact(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return a dtype that represents the values of two dtypes exactly; None if there is none."""
    kinds = {_wide(one), _wide(other)}
    if len(kinds) == 1:
        return kinds.pop()
    if any(kind.kind in "iu" for kind in kinds):
        return None
    return np.result_type(*kinds)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "iu" and dtype.itemsize == 8:
        return dtype
    if dtype.kind in "fc":
        return np.result_type(dtype, np.float64)
    return np.dtype(np.float64)  # bool, smaller integers, and the small dtypes of ml_dtypes


@dataclass
class _Tally:
    """Sums over the pieces of a leaf."""

    exact: np.dtype[Any]
    differing: int = 0
    nans: tuple[int, int] = (0, 0)
    nan_in_one: int = 0
    largest: float | None = None
    index: tuple[int, ...] | None = None
    values: tuple[str, str] = ("", "")

    def add(self, box: Box, one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> None:
        """Add a piece.

        Args:
            box: Its place.
            one: Its elements in the first file, as one axis.
            other: Its elements in the second file.
        """
        if one.dtype == other.dtype and np.array_equal(one.view(np.uint8), other.view(np.uint8)):
            count = 0 if one.dtype.kind in "biu" else int(np.count_nonzero(np.isnan(one)))
            self.nans = self.nans[0] + count, self.nans[1] + count
            return
        with np.errstate(all="ignore"):
            first, second = one.astype(self.exact), other.astype(self.exact)
            nan, other_nan = np.isnan(first), np.isnan(second)
            differs = (first != second) & ~(nan & other_nan)
            count = int(np.count_nonzero(differs))
            self.differing += count
            self.nans = self.nans[0] + int(nan.sum()), self.nans[1] + int(other_nan.sum())
            self.nan_in_one += int(np.count_nonzero(nan ^ other_nan))
            if not count:
                return
            # The larger minus the smaller: a difference of integers in 64 bits fits their unsigned dtype.
            if self.exact.kind in "iu":
                greater, smaller = np.maximum(first, second), np.minimum(first, second)
                sizes = greater.view(np.uint64) - smaller.view(np.uint64)
                known = differs
            else:
                sizes = np.abs(first - second)
                known = np.isfinite(sizes)
            sizes = np.where(known & differs, sizes, 0)
        place = int(np.argmax(sizes))
        largest = float(sizes[place])
        if largest and (self.largest is None or largest > self.largest):
            self.largest = largest
        elif self.index is not None or largest:
            return
        else:
            place = int(np.argmax(differs))
        inner = np.unravel_index(place, lengths_of(box))
        self.index = tuple(int(at) + part.start for at, part in zip(inner, box, strict=True))
        self.values = str(one[place]), str(other[place])
