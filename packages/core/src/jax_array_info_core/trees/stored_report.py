"""The report on a tree that a file describes."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from ..errors import FileFormatError, LayoutError
from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.layout import ShardingLayout, mesh_layout
from ..layouts.spec import Spec
from ..plans.spec_checks import spec_problems
from ..quantities import format_number
from ..reports.array import ArrayReport, ShardingDescription
from ..reports.tree import TreeReport, TreeRow
from ..stored.budget import Budget
from ..stored.leaves import StoredLeaf, StoredSharding, StoredTree
from ..text import printable
from .matched_paths import without_box_keys
from .rows import DeviceSets, row_of_report
from .totals import tree_of_rows


def report_of_stored(tree: StoredTree, name: str, budget: Budget) -> TreeReport:
    """Return the report of a stored tree.

    Raises:
        FileFormatError: If a leaf has an invalid shape, mesh or spec, or two leaves have the same path,
            or the meshes exceed the budget.
    """
    devices = DeviceSets()
    known: dict[Hashable, TreeRow] = {}
    rows: dict[str, TreeRow] = {}
    paths = without_box_keys([leaf.path for leaf in tree.leaves])
    for leaf, path in zip(tree.leaves, paths, strict=True):
        if path in rows:
            raise FileFormatError(f"two arrays have the path {_shown(leaf)}")
        key = (leaf.shape, leaf.dtype, leaf.bits, leaf.sharding)
        row = known.get(key)
        if row is None:
            mesh = leaf.sharding and leaf.sharding.mesh
            budget.spend("axes", len(leaf.shape) + (len(mesh.sizes) if mesh else 0))
            count = len(devices.sets)
            row = known[key] = row_of_report("", _report(leaf), devices)
            for added in devices.sets[count:]:
                budget.spend("devices", added.mesh.device_count)
        full_path = None if path == leaf.path else leaf.path
        rows[path] = replace(row, path=path, full_path=full_path, logical=leaf.logical)
    return tree_of_rows(
        list(rows.values()),
        devices.sets,
        name=f"{name}, {tree.part}" if tree.part else name,
        type_name=tree.type_name,
        others=tree.others,
    )


def _report(leaf: StoredLeaf) -> ArrayReport:
    """Return the report of a leaf."""
    sharding = leaf.sharding
    mesh = sharding.mesh.shape if sharding and sharding.mesh else {}
    spec = sharding.spec if sharding else None
    for problem in spec_problems(leaf.shape, mesh, spec or Spec(())):
        raise FileFormatError(f"{_shown(leaf)}: {problem}")
    try:
        layout = _layout(leaf.shape, sharding)
    except (LayoutError, OverflowError, ValueError) as error:
        raise FileFormatError(f"{_shown(leaf)}: {printable(str(error))}") from error
    bits = bits_of_name(leaf.dtype) if leaf.bits is None else leaf.bits
    nbytes = packed_nbytes(leaf.shape, bits)
    if bits is not None and nbytes is None:
        raise FileFormatError(f"{_shown(leaf)}: {format_number(math.prod(leaf.shape))} elements are too many")
    description = None
    if sharding is not None:
        description = ShardingDescription(type=sharding.type, spec=sharding.spec, mesh=sharding.mesh)
    return ArrayReport(
        name=None,
        kind="abstract",
        type_name=leaf.dtype,
        shape=leaf.shape,
        dtype=leaf.dtype,
        nbytes=nbytes,
        shard_nbytes=nbytes if layout is None else packed_nbytes(layout.shard_shape, bits),
        source="array" if sharding else "unknown",
        sharding=description,
        layout=layout,
        devices=() if sharding is None else tuple(sorted(sharding.device_ids or ())),
        memory_kind=sharding.memory_kind if sharding else None,
    )


def _layout(shape: tuple[int, ...], sharding: StoredSharding | None) -> ShardingLayout | None:
    """Return the layout of a leaf; None without a sharding."""
    if sharding is None:
        return None
    ids = None if sharding.device_ids is None else np.array(sharding.device_ids, np.int64)
    if sharding.mesh is None or sharding.spec is None:
        return (
            None
            if ids is None
            else ShardingLayout(shape=shape, device_ids=ids.reshape((1,) * len(shape) + (-1,)))
        )
    if ids is not None:
        if len(np.unique(ids)) != math.prod(sharding.mesh.sizes):
            raise ValueError(f"a mesh of sizes {sharding.mesh.sizes} with {len(np.unique(ids))} devices")
        ids = ids.reshape(sharding.mesh.sizes)
    else:  # only the shape of the layout matters: without memory for each device
        ids = np.broadcast_to(np.int64(0), sharding.mesh.sizes)
    return mesh_layout(shape, sharding.mesh.shape, sharding.spec.axes, ids, unreduced=sharding.spec.unreduced)


def _shown(leaf: StoredLeaf) -> str:
    return printable(leaf.path) or "the array"
