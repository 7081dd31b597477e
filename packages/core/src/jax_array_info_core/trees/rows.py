"""Rows of a tree: its leaves with their shardings and bytes."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..arrays.array_report import report_of_facts
from ..arrays.plans import uneven_axes, uneven_counts
from ..compat import arrays, values
from ..compat.arrays import array_facts, array_like
from ..compat.values import ArrayFacts
from ..facts.reports.array import ArrayReport, Dim
from ..facts.reports.tree import TreeMesh, TreeReport, TreeRow
from ..geometry.layouts.dtypes import dtype_name, packed_nbytes
from ..geometry.layouts.layout import Processes
from ..geometry.layouts.spec import MeshAxes, Spec, UnevenAxis
from .further import avoidable
from .leaves import Structure, TreeLeaf, TreeLeaves

_T = TypeVar("_T")


def kept_for_last_rows(find: Callable[..., _T]) -> Callable[..., _T]:
    """Make a function of the rows and the meshes of a tree keep its last answer.

    A tree that is checked at every step has the same rows.
    """
    last: list[Any] = [(None,), None]

    @functools.wraps(find)
    def kept(*parts: object) -> _T:
        if any(map(operator.is_not, last[0], parts)):
            last[:] = parts, find(*parts)
        answer: _T = last[1]
        return answer

    return kept


class DeviceSet(NamedTuple):
    """A mesh or a set of devices, with the ids of its devices."""

    mesh: TreeMesh
    ids: np.ndarray[Any, Any] | None
    """Device ids, ascending; None for the positions 0…n−1 of a mesh without devices."""
    processes: Processes = ()
    """The device ids of each process; empty if all belong to one process, and without ids."""


class DeviceSets:
    """The meshes and device sets of a tree, each listed once."""

    def __init__(self) -> None:
        self.sets: list[DeviceSet] = []
        self._index: dict[Hashable, int] = {}

    def add(self, key: Hashable, devices: DeviceSet) -> int:
        """Return the index of a device set. It is added unless its key is known."""
        if key not in self._index:
            self._index[key] = len(self.sets)
            self.sets.append(devices)
        return self._index[key]

    def copy(self) -> DeviceSets:
        """Return a copy, to which more device sets can be added."""
        other = DeviceSets()
        other.sets, other._index = self.sets.copy(), self._index.copy()
        return other

    def first(self) -> tuple[Hashable, DeviceSet] | None:
        """Return the first device set with its key; None if there is none."""
        return (next(iter(self._index)), self.sets[0]) if self.sets else None

    def add_mesh(self, axes: MeshAxes) -> int:
        """Return the index of a mesh without devices."""
        return self.add((axes, ()), DeviceSet(TreeMesh(axes=axes, device_count=math.prod(axes.sizes)), None))

    def add_report(self, report: ArrayReport) -> int | None:
        """Return the index of the devices of a value; None if its sharding is not known."""
        sharding, layout = report.sharding, report.layout
        axes = sharding.mesh if sharding else None
        if not report.devices:
            return None if axes is None else self.add_mesh(axes)
        mesh = TreeMesh(
            axes=axes,
            device_count=len(report.devices),
            platform=layout.platform if layout else None,
            devices=report.devices if axes is None else None,
            process_count=max(1, len(layout.processes) if layout else 1),
            visible_devices=report.visible_devices,
        )
        processes = layout.processes if layout else ()
        return self.add(
            (axes, report.devices), DeviceSet(mesh, np.array(report.devices, np.int64), processes)
        )


def row_of_report(
    path: str,
    report: ArrayReport,
    devices: DeviceSets,
    *,
    index: int | None = None,
    logical: Spec | None = None,
) -> TreeRow:
    """Return the row of a leaf. Under vmap, it describes the full array, including the batched axes.

    Args:
        path: Path of the leaf.
        report: Report of the leaf.
        devices: Device sets of the tree. Those of the leaf are added.
        index: Index of the leaf's devices, for a report without device ids.
        logical: Logical axis names of the leaf.
    """
    batched_axes = report.batch.axes if report.batch else ()
    report = _with_batched_axes(report)
    shape = report.shape or ()
    index = devices.add_report(report) if index is None else index
    sharding, layout = report.sharding, report.layout
    # A spec over a mesh that is not known, as one without devices, leaves the shards unknown.
    is_local = report.kind == "numpy" or (index is None and not (sharding and sharding.spec))
    shard_nbytes = report.shard_nbytes
    shard_shape: tuple[Dim, ...] | None = layout.shard_shape if layout else None
    if report.source == "manual":
        shard_shape = _shard_of_manual(report)
        shard_nbytes = packed_nbytes(shard_shape, report.bits)
    elif shard_shape is None and is_local and report.unknown_because is None:
        shard_shape, shard_nbytes = shape, report.nbytes
    kind = report.memory_kind
    spec = sharding.spec if sharding else None
    if spec is not None and len(spec.axes) > len(shape):
        spec = None  # JAX 0.4.38 lets a ShapeDtypeStruct have a spec that is too long; its shards are unknown
    row = TreeRow(
        path=path,
        kind=report.kind,
        shape=shape,
        dtype=report.dtype or "?",
        bits=report.bits,
        spec=spec,
        mesh=index,
        sharding=sharding.type if sharding else None,
        xla=sharding.text if sharding and sharding.spec is None else None,
        shard_shape=shard_shape,
        nbytes=report.nbytes,
        shard_nbytes=shard_nbytes,
        replicas=report.replicas,
        partial_sums=report.partial_sums,
        unreduced=report.unreduced,
        memory_kind=kind,
        is_in_host_memory=bool(kind and "host" in kind and kind != report.default_memory_kind),
        source=report.source,
        unknown_because=report.unknown_because,
        uneven=_uneven(report),
        logical=logical,
        weak_type=report.weak_type,
        batched_axes=batched_axes,
        is_deleted=report.is_deleted,
    )
    mesh = None if index is None else devices.sets[index].mesh
    saved = avoidable(row, mesh).nbytes
    return replace(row, avoidable_nbytes=saved) if saved else row


def _with_batched_axes(report: ArrayReport) -> ArrayReport:
    """Return a report with the shape and the bytes of the full array under vmap."""
    if report.batch is None:
        return report
    nbytes = packed_nbytes(report.batch.shape, report.bits)
    return replace(report, shape=report.batch.shape, nbytes=nbytes, batch=None)


def _shard_of_manual(report: ArrayReport) -> tuple[Dim, ...]:
    """Return the shape on one device of a value inside shard_map, which XLA may shard over Auto mesh axes."""
    sharding, shape = report.sharding, report.shape or ()
    if sharding is None or sharding.spec is None or sharding.mesh is None:
        return shape
    sizes = sharding.mesh.shape
    counts = [math.prod(sizes[name] for name in names) for names in sharding.spec.axes]
    pairs = zip_longest(shape, counts[: len(shape)], fillvalue=1)
    return tuple(-(-dim // count) if isinstance(dim, int) else dim for dim, count in pairs)


def _uneven(report: ArrayReport) -> tuple[UnevenAxis, ...]:
    """Return the axes that are not divisible by their number of shards."""
    layout, sharding = report.layout, report.sharding
    if layout is None or not layout.sharded_axes:
        return ()
    if sharding and sharding.spec and sharding.mesh:
        return uneven_axes(layout.shape, sharding.mesh.shape, sharding.spec)
    return uneven_counts(layout.shape, layout.shard_counts)


_SETTERS = {field.name: getattr(TreeRow, field.name).__set__ for field in dataclasses.fields(TreeRow)}
_facts_of = operator.attrgetter(*_SETTERS)


def row_like(row: TreeRow, **changes: Any) -> TreeRow:
    """Return a row with other facts, as ``replace`` does, but several times faster since nothing is checked.

    Args:
        row: A row, which was checked when it was made.
        **changes: Facts that no check compares with others, such as its path.
    """
    copied = object.__new__(TreeRow)
    for put, fact in zip(_SETTERS.values(), _facts_of(row), strict=True):
        put(copied, fact)
    for name, fact in changes.items():
        _SETTERS[name](copied, fact)
    return copied


_MAX_KINDS = 4096
_MAX_TREES = 16


class _Kind:
    """A row and the devices that leaves of equal type, shape, dtype and sharding share."""

    __slots__ = ("devices", "row")

    def __init__(self, value: Any) -> None:
        devices = DeviceSets()
        row = row_of_report("", leaf_report(value), devices)
        self.row = replace(row, is_committed=row.kind == "array" and arrays.is_committed(value))
        self.devices: tuple[Hashable, DeviceSet] | None = devices.first()


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedTree:
    """A planned tree, with the problems of its specs."""

    report: TreeReport
    """The report. Where a spec is invalid, the names that cause the problem are left out."""

    problems: tuple[tuple[str, str], ...]
    """Path and problem of each invalid spec."""

    devices: tuple[DeviceSet, ...]
    """The device sets to which ``TreeRow.mesh`` refers."""

    side_paths: tuple[str, ...] = ()
    """Paths at which the tree has no array."""

    objects: Sequence[tuple[str, Any]] = ()
    """Path and value of each leaf that is neither an array nor a number, a string or None."""

    mesh: TreeMesh | None = None
    """The mesh to plan for, if one was passed."""

    unspecified: Mapping[str, tuple[TreeRow, TreeMesh]] = dataclasses.field(default_factory=dict)
    """Leaves that have a sharding without a spec, and that are planned as replicated only because a mesh was
    passed: each as it is, with its devices, by path."""

    as_is: tuple[Sequence[TreeRow], Sequence[DeviceSet]] | None = None
    """The leaves as they are, with the device sets to which these refer; None without a plan."""


class LeafRows:
    """The rows of a tree's leaves, one object for as long as the leaves stay alike."""

    def __init__(self, leaves: TreeLeaves, kinds: Sequence[_Kind], same_as: dict[int, str]) -> None:
        self.other_paths = leaves.other_paths
        self.kinds = kinds
        self.same_as = same_as
        self.devices = DeviceSets()
        self.rows = tuple(
            self._row(leaf, kind, same_as.get(number))
            for number, (leaf, kind) in enumerate(zip(leaves.leaves, kinds, strict=True))
        )
        self.report: TreeReport | None = None
        """Report of the tree as it is, once it was made."""
        self.planned: tuple[Any, PlannedTree] | None = None
        """The last plan of the tree, with the planned tree."""

    def _row(self, leaf: TreeLeaf, kind: _Kind, same_as: str | None) -> TreeRow:
        return row_like(
            kind.row,
            path=leaf.path,
            full_path=leaf.full_path,
            logical=leaf.logical,
            variable=leaf.variable,
            same_as=same_as,
            mesh=None if kind.devices is None else self.devices.add(*kind.devices),
        )


_KINDS: dict[Hashable, _Kind] = {}
_TREES: dict[int, tuple[Structure, LeafRows]] = {}
"""The last rows of each structure, by its ``id``."""


def rows_of_leaves(leaves: TreeLeaves) -> LeafRows:
    """Return the rows of the leaves. No leaf is read, kept alive or waited for.

    If leaves of the same structure were alike in the previous call, it returns the rows of that call.
    """
    kinds: list[_Kind] = []
    same_as: dict[int, str] = {}
    first_paths: dict[int, str] = {}
    for number, (path, value, *_) in enumerate(leaves.leaves):
        kinds.append(_kind_of(value))
        if kinds[-1].row.kind in ("array", "numpy", "array-like"):
            first = first_paths.setdefault(id(value), path)
            if first is not path:
                same_as[number] = first
    structure = leaves.structure
    known = None if structure is None else _TREES.get(id(structure))
    if known is not None:
        # With other paths of numbers, the arrays are at other paths, too.
        last = known[1].kinds, known[1].same_as, known[1].other_paths
        if last == (kinds, same_as, leaves.other_paths):
            return known[1]
    rows = LeafRows(leaves, kinds, same_as)
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
            state = arrays.is_committed(value), value.is_deleted()
            key = (cls, value.shape, value.dtype, value.sharding, value.weak_type, state)
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
