"""Rows of a tree's report, from the reports on its leaves."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.spec import MeshAxes, Spec, UnevenAxis
from ..plans.spec_checks import uneven_axes, uneven_counts
from ..reports.array import ArrayReport, Dim
from ..reports.tree import TreeMesh, TreeRow
from .avoidable import avoidable


class DeviceSet(NamedTuple):
    """A mesh or a set of devices, with the ids of its devices."""

    mesh: TreeMesh
    ids: np.ndarray[Any, Any] | None
    """Device ids, ascending; None for the positions 0…n−1 of a mesh without devices."""


class DeviceSets:
    """The meshes and device sets of a tree, each listed once."""

    def __init__(self) -> None:
        self.sets: list[DeviceSet] = []
        self._index: dict[Hashable, int] = {}

    def add(self, key: Hashable, found: DeviceSet) -> int:
        """Return the index of a device set. It is added unless its key is known."""
        if key not in self._index:
            self._index[key] = len(self.sets)
            self.sets.append(found)
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
        mesh = TreeMesh(axes=axes, device_count=math.prod(axes.sizes))
        return self.add((axes, ()), DeviceSet(mesh, None))

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
        )
        return self.add((axes, report.devices), DeviceSet(mesh, np.array(report.devices, np.int64)))


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
    is_local = report.kind == "numpy" or index is None
    shard_nbytes = report.shard_nbytes
    shard_shape: tuple[Dim, ...] | None = layout.shard_shape if layout else None
    if report.source == "manual":
        shard_shape = _shard_of_manual(report)
        shard_nbytes = packed_nbytes(shard_shape, _bits(report))
    elif shard_shape is None and is_local and report.unknown_because is None:
        shard_shape, shard_nbytes = shape, report.nbytes
    kind = report.memory_kind
    row = TreeRow(
        path=path,
        kind=report.kind,
        shape=shape,
        dtype=report.dtype or "?",
        spec=sharding.spec if sharding else None,
        mesh=index,
        sharding=sharding.type if sharding else None,
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
    nbytes = packed_nbytes(report.batch.shape, _bits(report))
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


def _bits(report: ArrayReport) -> int | None:
    """Return the bits per element; None if they are not known."""
    bits = bits_of_name(report.dtype)
    lengths = [dim for dim in report.shape or () if isinstance(dim, int)]
    if bits is None and report.nbytes and lengths == list(report.shape or ()):
        bits = report.nbytes * 8 // math.prod(lengths)  # PRNG keys
    return bits


def _uneven(report: ArrayReport) -> tuple[UnevenAxis, ...]:
    """Return the axes that are not divisible by their number of shards."""
    layout, sharding = report.layout, report.sharding
    if layout is None or not layout.sharded_axes:
        return ()
    if sharding and sharding.spec and sharding.mesh:
        return uneven_axes(layout.shape, sharding.mesh.shape, sharding.spec)
    return uneven_counts(layout.shape, layout.shard_counts)
