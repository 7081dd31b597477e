"""Rows of the leaves of a tree that exists in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np

from ..arrays.report import report_of_facts
from ..compat import values
from ..compat.array_facts import ArrayFacts
from ..compat.arrays import array_facts, array_like
from ..reports.array import ArrayReport
from ..reports.tree import TreeRow
from .leaves import TreeLeaf, TreeLeaves
from .rows import DeviceSets, row_of_report

_FIELDS = tuple(field.name for field in dataclasses.fields(TreeRow))


def rows_of_leaves(found: TreeLeaves) -> tuple[list[TreeRow], DeviceSets]:
    """Return the rows of the leaves, and their device sets. No leaf is read or waited for."""
    maker = _RowMaker()
    return [maker.row(leaf) for leaf in found.leaves], maker.devices


class _RowMaker:
    """Makes the rows of a tree. Leaves of equal type, shape, dtype and sharding share their facts."""

    def __init__(self) -> None:
        self.devices = DeviceSets()
        self._known: dict[Hashable, dict[str, Any]] = {}
        self._first_paths: dict[int, str] = {}

    def row(self, leaf: TreeLeaf) -> TreeRow:
        path, value, logical = leaf
        same_as = None
        if values.is_array(value) or type(value) is np.ndarray:
            first = self._first_paths.setdefault(id(value), path)
            same_as = None if first is path else first
        key = _facts_key(value)
        fields = None if key is None else self._known.get(key)
        if fields is None:
            row = row_of_report("", leaf_report(value), self.devices)
            fields = {name: getattr(row, name) for name in _FIELDS}
            if key is not None:
                self._known[key] = fields
        return TreeRow(**{**fields, "path": path, "logical": logical, "same_as": same_as})


def _facts_key(value: Any) -> Hashable | None:
    """Return what determines the row of a leaf, but for its path; None if it has to be read."""
    cls = type(value)
    if cls is ArrayFacts:
        return None
    try:
        if values.is_concrete_or_shape(value):
            is_deleted = value.is_deleted() if hasattr(cls, "is_deleted") else False
            key = (cls, value.shape, value.dtype, value.sharding, value.weak_type, is_deleted)
            hash(key)
            return key
    except Exception:
        # An attribute of an unusual array may be missing or raise anything.
        return None
    return None


def leaf_report(value: Any) -> ArrayReport:
    """Return the report of a leaf, without the value of a 0-d array: reading that would wait for it."""
    if type(value) is ArrayFacts:
        return report_of_facts(value)
    facts = array_facts(value, reads_value=False)
    if facts is not None:
        return report_of_facts(facts)
    if issubclass(type(value), (np.ndarray, np.generic)):
        return ArrayReport(
            name=None,
            kind="numpy",
            type_name=values.type_name(value),
            shape=value.shape,
            dtype=str(value.dtype),
            nbytes=value.nbytes,
            shard_nbytes=value.nbytes,
        )
    facts = array_like(value)
    assert facts is not None
    return report_of_facts(facts)
