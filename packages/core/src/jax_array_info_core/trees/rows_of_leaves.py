"""Rows of the leaves of a tree that exists in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..arrays.report import report_of_facts
from ..compat import values
from ..compat.arrays import array_facts, array_like
from ..compat.values import ArrayFacts
from ..layouts.dtypes import dtype_name
from ..reports.array import ArrayReport
from ..reports.tree import TreeReport, TreeRow
from .leaves import Structure, TreeLeaf, TreeLeaves
from .rows import DeviceSet, DeviceSets, row_of_report

_FIELDS = tuple(field.name for field in dataclasses.fields(TreeRow))
_MAX_KINDS = 4096
_MAX_TREES = 16


class _Kind:
    """The fields of a row and the devices that leaves of equal type, shape, dtype and sharding share."""

    __slots__ = ("devices", "fields")

    def __init__(self, value: Any) -> None:
        found = DeviceSets()
        row = row_of_report("", leaf_report(value), found)
        self.fields = {name: getattr(row, name) for name in _FIELDS}
        self.devices: tuple[Hashable, DeviceSet] | None = found.first()


class LeafRows:
    """The rows of a tree's leaves, one object for as long as the leaves stay alike."""

    def __init__(self, found: TreeLeaves, kinds: Sequence[_Kind], same_as: dict[int, str]) -> None:
        self.other_paths = found.other_paths
        self.kinds = kinds
        self.same_as = same_as
        self.devices = DeviceSets()
        self.rows = tuple(
            self._row(leaf, kind, same_as.get(number))
            for number, (leaf, kind) in enumerate(zip(found.leaves, kinds, strict=True))
        )
        self.report: TreeReport | None = None
        """Report of the tree as it is, once it was made."""

    def _row(self, leaf: TreeLeaf, kind: _Kind, same_as: str | None) -> TreeRow:
        own: dict[str, Any] = {"path": leaf.path, "full_path": leaf.full_path, "logical": leaf.logical}
        own |= {"variable": leaf.variable, "same_as": same_as}
        if kind.devices is not None:
            own["mesh"] = self.devices.add(*kind.devices)
        return TreeRow(**{**kind.fields, **own})


_KINDS: dict[Hashable, _Kind] = {}
_TREES: dict[int, tuple[Structure, LeafRows]] = {}
"""The last rows of each structure, by its ``id``."""


def rows_of_leaves(found: TreeLeaves) -> LeafRows:
    """Return the rows of the leaves. No leaf is read, kept alive or waited for.

    If leaves of the same structure were alike in the previous call, it returns the rows of that call.
    """
    kinds: list[_Kind] = []
    same_as: dict[int, str] = {}
    first_paths: dict[int, str] = {}
    for number, (path, value, *_) in enumerate(found.leaves):
        kinds.append(_kind_of(value))
        if kinds[-1].fields["kind"] in ("array", "numpy", "array-like"):
            first = first_paths.setdefault(id(value), path)
            if first is not path:
                same_as[number] = first
    structure = found.structure
    known = None if structure is None else _TREES.get(id(structure))
    if known is not None:
        # With other paths of numbers, the arrays are at other paths, too.
        last = known[1].kinds, known[1].same_as, known[1].other_paths
        if last == (kinds, same_as, found.other_paths):
            return known[1]
    rows = LeafRows(found, kinds, same_as)
    if structure is not None:
        if len(_TREES) >= _MAX_TREES:
            _TREES.clear()
        _TREES[id(structure)] = structure, rows
    return rows


def _kind_of(value: Any) -> _Kind:
    """Return what a leaf has in common with leaves that are alike."""
    cls: Any = type(value)
    if not values.is_plain_array_type(cls):
        return _Kind(value)
    try:
        if cls is np.ndarray:
            key: Hashable = (cls, value.shape, value.dtype)
        elif hasattr(cls, "is_deleted"):
            key = (cls, value.shape, value.dtype, value.sharding, value.weak_type, value.is_deleted())
        else:
            key = (cls, value.shape, value.dtype, value.sharding, getattr(value, "weak_type", False))
        kind = _KINDS.get(key)
    except Exception:
        # An attribute of an unusual array may be missing, unhashable or raise anything.
        return _Kind(value)
    if kind is None:
        kind = _Kind(value)
        if len(_KINDS) >= _MAX_KINDS:
            _KINDS.clear()
        _KINDS[key] = kind
    return kind


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
            dtype=dtype_name(value.dtype),
            nbytes=value.nbytes,
            shard_nbytes=value.nbytes,
        )
    facts = array_like(value)
    assert facts is not None
    return report_of_facts(facts)
