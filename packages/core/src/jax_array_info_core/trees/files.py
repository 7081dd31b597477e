"""Trees in files: reports, sharding dumps, files of arrays and checkpoints."""

from __future__ import annotations

import errno
import math
import os
import re
import stat
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.plans import dtype_bits, spec_problems
from ..base.errors import FileFormatError, LayoutError, ReportFormatError, require
from ..base.files import Progress, open_regular, size_of
from ..base.quantities import format_number
from ..base.text import printable
from ..facts.reports import Report
from ..facts.reports.array import ArrayReport, ShardingDescription
from ..facts.reports.tree import TreeReport, TreeRow
from ..geometry.layouts.dtypes import name_of
from ..geometry.layouts.layout import ShardingLayout, mesh_layout
from ..geometry.layouts.spec import MeshAxes, Spec
from .rows import DeviceSets, row_of_report
from .specs import without_box_keys
from .stored.array_files import (
    NPY_MAGIC,
    indexed_tree,
    is_maxtext,
    is_safetensors,
    maxtext_tree,
    npy_tree,
    npz_tree,
    safetensors_tree,
)
from .stored.reading import (
    Budget,
    StoredLeaf,
    StoredSharding,
    StoredTree,
    json_text,
    parse_json,
    read_whole,
)
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
        key = (leaf.shape, leaf.dtype, leaf.bits, leaf.sharding, leaf.device_ids)
        row = known.get(key)
        if row is None:
            mesh = leaf.sharding and leaf.sharding.mesh
            budget.spend("axes", len(leaf.shape) + len(mesh or ()))
            count = len(devices.sets)
            row = known[key] = row_of_report("", _tree_of_stored(leaf), devices)
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


def _tree_of_stored(leaf: StoredLeaf) -> ArrayReport:
    """Return the report of a leaf."""
    sharding = leaf.sharding
    mesh = dict(sharding.mesh or ()) if sharding else {}
    spec = sharding.spec if sharding else None
    for problem in spec_problems(leaf.shape, mesh, spec or Spec(())):
        raise FileFormatError(f"{_shown(leaf)}: {problem}")
    try:
        layout = _layout(leaf)
    except (LayoutError, OverflowError, ValueError) as error:
        raise FileFormatError(f"{_shown(leaf)}: {printable(str(error))}") from error
    nbytes = leaf.nbytes_of(leaf.shape)
    if leaf.bits is not None and nbytes is None:
        raise FileFormatError(f"{_shown(leaf)}: {format_number(math.prod(leaf.shape))} elements are too many")
    return ArrayReport(
        name=None,
        kind="abstract",
        type_name=leaf.dtype,
        shape=leaf.shape,
        dtype=leaf.dtype,
        bits=leaf.bits,
        nbytes=nbytes,
        shard_nbytes=nbytes if layout is None else leaf.nbytes_of(layout.shard_shape),
        source="array" if sharding else "unknown",
        sharding=sharding and _described(sharding),
        layout=layout,
        devices=tuple(sorted(leaf.device_ids or ())),
    )


def _described(sharding: StoredSharding) -> ShardingDescription:
    if sharding.mesh is None:
        return ShardingDescription(type="SingleDeviceSharding")
    sizes = dict(sharding.mesh)
    mesh = MeshAxes(tuple(sizes), tuple(sizes.values()))
    return ShardingDescription(type="NamedSharding", spec=sharding.spec, mesh=mesh)


def _layout(leaf: StoredLeaf) -> ShardingLayout | None:
    """Return the layout of a leaf; None without a sharding."""
    shape, sharding = leaf.shape, leaf.sharding
    if sharding is None:
        return None
    ids = None if leaf.device_ids is None else np.array(leaf.device_ids, np.int64)
    if sharding.mesh is None or sharding.spec is None:
        return (
            None
            if ids is None
            else ShardingLayout(shape=shape, device_ids=ids.reshape((1,) * len(shape) + (-1,)))
        )
    mesh = dict(sharding.mesh)
    sizes = tuple(mesh.values())
    if ids is not None:
        if len(np.unique(ids)) != math.prod(sizes):
            raise ValueError(f"a mesh of sizes {sizes} with {len(np.unique(ids))} devices")
        ids = ids.reshape(sizes)
    else:  # only the shape of the layout matters: without memory for each device
        ids = np.broadcast_to(np.int64(0), sizes)
    return mesh_layout(shape, mesh, sharding.spec.axes, ids, unreduced=sharding.spec.unreduced)


def _shown(leaf: StoredLeaf) -> str:
    return printable(leaf.path) or "the array"


_HEAD = 64
_BOM = b"\xef\xbb\xbf"
_REPORT = re.compile(r'\s*\{\s*"report"\s*:')
"""Start of the JSON of a report, which then needs to be parsed only once."""
_READ = "a report of save_tree, a sharding dump of MaxText, safetensors, .npz, .npy, or an Orbax checkpoint"


def load_tree(path: str | os.PathLike[str], *, dtype: Any = "float32", item: str | None = None) -> TreeReport:
    """Return the report on a tree that is stored in a file or a directory. Its elements are not read.

    The format is recognized by the content:

    - the JSON of a TreeReport, as ``save_tree``, ``save_report`` and ``to_json`` write it;
    - ``named_shardings.json`` and ``logical_shardings.json`` of MaxText. They have no dtypes: see ``dtype``;
    - safetensors, and the ``.safetensors.index.json`` of several files;
    - ``.npz``, and ``.npy``, whose one leaf has an empty path;
    - an Orbax checkpoint with its shardings: the directory of an item, of a step, or of a manager. Of a
      manager, the newest complete step is read, which is named in ``TreeReport.name``.

    Orbax needs ``pip install 'jax-array-info[checkpoint]'``. An array ``a.b`` of safetensors or ``.npz`` has
    the path ``a/b``, unless the names in the file contain ``/``.
    The key of a box, such as ``value`` of Flax, is left out of the paths if every leaf has it.

    JAX is not imported, so a checkpoint can be read while another process uses the accelerator.

    Args:
        path: Path of the file or the directory.
        dtype: Dtype of all arrays in a sharding dump of MaxText, such as ``jnp.bfloat16``, or its name.
        item: Name of the item of an Orbax checkpoint, if a step has several with arrays.

    Raises:
        FileFormatError: (a ValueError) If the file cannot be read, its format is not known, or a library for
            it is not installed.
        FileNotFoundError: (an OSError) If the file does not exist.
        SpecError: (a ValueError) If there is no such dtype.
        UnsupportedValueError: (a ValueError) If ``path`` is neither a str nor a path.
    """
    report = read_report(path, dtype=dtype, item=item)
    if not isinstance(report, TreeReport):
        kind = type(report).__name__
        raise FileFormatError(
            f"{printable(os.fspath(path))}: the report is a {kind}, not a TreeReport of save_tree"
        )
    return report


def read_report(
    path: str | os.PathLike[str],
    *,
    dtype: Any = "float32",
    item: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Return any report in JSON, or the report on a stored tree, and show the progress.

    Args:
        path: Path of the file or the directory.
        dtype: Name of the dtype of arrays without one.
        item: Name of the item of an Orbax checkpoint.
        progress: Function that is called while the file is read.
    """
    require(path, (str, os.PathLike), "the path of a file or a directory")
    dtype_bits(dtype)
    dtype = name_of(dtype)
    if not os.fspath(path):  # which Path takes for the current directory
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "")
    place = Path(path)
    shown = printable(os.fspath(place))
    try:
        budget = Budget()
        content = _read(place, dtype, item, budget, progress)
        return report_of_stored(content, shown, budget) if isinstance(content, StoredTree) else content
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place)) from error
    except FileFormatError as error:
        raise FileFormatError(f"{shown}: {error}") from error.__cause__
    except (OSError, ValueError) as error:  # a path with a null character raises ValueError
        raise FileFormatError(f"{shown}: {printable(_reason(error, place))}") from error


def _reason(error: Exception, path: Path) -> str:
    """Return why the system cannot read a file, with the file's path unless it is the given one."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    is_within = error.filename is not None and os.fspath(error.filename) != os.fspath(path)
    return f"{error.strerror}: {os.fsdecode(error.filename)}" if is_within else error.strerror


def _read(
    path: Path, dtype: str, item: str | None, budget: Budget, progress: Progress | None
) -> StoredTree | Report:
    if stat.S_ISDIR(path.stat().st_mode):
        from .stored.orbax import orbax_tree

        return orbax_tree(path, budget, item)
    if item is not None:
        raise FileFormatError("not the directory of an Orbax checkpoint: only these have items")
    with open_regular(path) as file:
        head, size = file.read(_HEAD), size_of(file)
    suffix = path.suffix.lower()
    if head.startswith(b"PK\x03\x04") or suffix == ".npz":
        return npz_tree(path, budget, progress)
    if suffix == ".npy" or head.startswith(NPY_MAGIC):
        return npy_tree(path)
    if suffix == ".safetensors" or is_safetensors(head, size):
        return safetensors_tree(path, budget)
    if suffix == ".json" or head.removeprefix(_BOM).lstrip()[:1] in (b"{", b"["):
        return _read_json(path, dtype, budget, progress)
    raise FileFormatError(f"the format is not known: expected {_READ}")


def _read_json(path: Path, dtype: str, budget: Budget, progress: Progress | None) -> StoredTree | Report:
    text = json_text(read_whole(path, budget), budget)
    if not text or text.isspace():
        raise FileFormatError("an empty file")
    if _REPORT.match(text):
        return _report(text, budget)
    value = parse_json(text)
    if isinstance(value, dict) and "report" in value:
        value = None
        return _report(text, budget)
    if is_maxtext(value):
        return maxtext_tree(value, dtype, budget)
    if isinstance(value, dict) and "weight_map" in value:
        return indexed_tree(path, value["weight_map"], budget, progress)
    raise FileFormatError(f"JSON of an unknown format: expected {_READ}")


def _report(text: str, budget: Budget) -> Report:
    """Return the report in JSON."""
    from ..facts.reports.json import from_json

    try:
        report = from_json(text)
    except ReportFormatError as error:
        raise FileFormatError(str(error)) from error
    if isinstance(report, TreeReport):
        budget.spend("arrays", len(report.rows))
        budget.spend("devices", sum(mesh.device_count for mesh in report.meshes))
    return report
