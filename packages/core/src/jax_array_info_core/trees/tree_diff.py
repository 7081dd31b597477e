"""Differences between two trees, and snapshots of the shardings of a tree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import CheckError, NotationError, UnsupportedValueError
from ..base.files import write_whole
from ..base.text import printable
from ..facts.reports.changes import ChangedField, LeafChange, TreeDiff
from ..facts.reports.tree import TreeMesh, TreeReport, TreeRow, axes_of
from ..geometry.layouts.notation import parse_spec
from ..geometry.layouts.spec import Spec, same_spec
from .leaves import require_tree
from .plan import opened
from .same_sharding import differing_fields
from .specs import matched_paths
from .tree_report import tree_report

VALUES_REFUSED = "values of files are not compared: load them, then numpy.testing"
"""What ``values=True`` and ``--values`` answer."""


def tree_diff_report(before: Any, after: Any, *, values: bool = False) -> TreeDiff:
    """Return the leaves that were added, removed or changed between two trees, and the bytes per device.

    Leaves are matched by path, with or without the keys of boxes. A leaf is changed if its shape, dtype,
    partition spec or memory kind differs, or the types of its mesh axes, such as Auto and Explicit, where
    both sides have them: plans and files have none. Values are not compared: trees of zeros and of ones are
    equal.
    Equivalent specs are equal: trailing None, tuples of one name and mesh axes of size 1 make no difference,
    and neither does the size of the mesh. A sharding without a spec equals ``P()`` if it replicates the
    leaf, and an array on a single device equals ``P()`` on a mesh of one device. A leaf without a sharding,
    such as a NumPy array, differs from any sharded leaf; the unknown sharding of a traced value does not.
    All default memory kinds are equal. Nothing is allocated, and no devices are needed.

    Args:
        before: A tree of arrays, a TreeReport, or the path of a file or a directory, as for ``load_tree``.
        after: The tree to compare it with.
        values: Is refused if it is true: compare the values of loaded arrays with ``numpy.testing``.

    Raises:
        FileFormatError: (a ValueError) If a file cannot be read.
        FileNotFoundError: (an OSError) If a file does not exist.
        UnsupportedValueError: (a ValueError) If ``values=True``.

    >>> import jax.numpy as jnp
    >>> before = {"w": jnp.zeros((8, 4)), "b": jnp.zeros(4)}
    >>> diff = tree_diff_report(before, {"w": jnp.zeros((8, 4), jnp.bfloat16)})
    >>> [row.path for row in diff.removed], [(change.after.path, change.fields) for change in diff.changed]
    (['b'], [('w', ('dtype',))])
    """
    if values:
        raise UnsupportedValueError(VALUES_REFUSED)
    first, second = tree_report(before), tree_report(after)
    other_paths = matched_paths(second.rows, first.rows)
    rows = {path: replace(row, path=path) for path, row in zip(other_paths, second.rows, strict=True)}
    paths = {row.path for row in first.rows}
    shared = [(row, rows[row.path]) for row in first.rows if row.path in rows]
    compared = [(old, new, tuple(_changed_fields(old, first, new, second))) for old, new in shared]
    changed = tuple(_change(old, first, new, second, fields) for old, new, fields in compared if fields)
    return TreeDiff(
        before_name=first.name,
        after_name=second.name,
        added=tuple(row for row in rows.values() if row.path not in paths),
        removed=tuple(row for row in first.rows if row.path not in rows),
        changed=changed,
        unchanged_count=len(compared) - len(changed),
        meshes_before=first.meshes,
        meshes_after=second.meshes,
        nbytes_before=first.nbytes,
        nbytes_after=second.nbytes,
        device_nbytes_before=first.fullest_device_nbytes,
        device_nbytes_after=second.fullest_device_nbytes,
    )


def _change(
    old: TreeRow, first: TreeReport, new: TreeRow, second: TreeReport, fields: tuple[ChangedField, ...]
) -> LeafChange:
    change = LeafChange(before=old, after=new, fields=fields)
    before, after = axes_of(old, first.meshes), axes_of(new, second.meshes)
    if "axis_types" not in fields or before is None or after is None:
        return change
    return replace(change, before_types=before.types_text, after_types=after.types_text)


def _changed_fields(
    old: TreeRow, first: TreeReport, new: TreeRow, second: TreeReport
) -> Iterator[ChangedField]:
    if old.shape != new.shape:
        yield "shape"
    if old.dtype != new.dtype:
        yield "dtype"
    yield from differing_fields(old, first.meshes, new, second.meshes, on_any_mesh=True)


_VERSION = 1
_VERSION_KEY = "sharding_snapshot"

DumpedLeaf = dict[str, Any]
"""A leaf in a file: ``shape``, ``dtype``, ``sharding``, and ``memory_kind`` unless it is the default."""


def update(path: Path, tree: Any) -> None:
    """Write the file of a tree, unless it has the same shardings already."""
    report = _report(tree)
    try:
        is_equal = not list(_differences(_read(path), report))
    except (OSError, ValueError):
        is_equal = False
    if not is_equal:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _file_text(report).encode("utf-8", "backslashreplace"))


def compare(path: Path, tree: Any, *, shown: str, command: str) -> None:
    """Compare a tree with a file.

    Args:
        path: The file.
        tree: The tree.
        shown: Path of the file in messages.
        command: Command that writes the file.

    Raises:
        CheckError: (an AssertionError) If they differ, or the file is missing or cannot be read.
    """
    __tracebackhide__ = True
    report = _report(tree)
    shown = printable(shown)
    try:
        differences = list(_differences(_read(path), report))
    except FileNotFoundError:
        raise CheckError(
            f"there are no stored shardings: {shown} does not exist. Write it and check its content:\n"
            f"  {command}",
            report,
        ) from None
    except (OSError, ValueError) as error:
        problem = printable(str(error))
        raise CheckError(
            f"{shown} cannot be read as stored shardings: {problem}. Write it again:\n  {command}", report
        ) from None
    if differences:
        lines = "\n".join(f"  {printable(line)}" for line in differences)
        remedy = f"If this is intended, update the file:\n  {command}"
        raise CheckError(f"the shardings differ from {shown}:\n{lines}\n{remedy}", report)


def _report(tree: Any) -> TreeReport:
    """Return the report of a tree. A value like None, which would always be equal, is refused."""
    tree = opened(tree)
    report = tree_report(tree)
    if not report.rows:
        require_tree(tree)
    return report


def _file_text(report: TreeReport) -> str:
    """Return the text of a file: one line per leaf, sorted by path."""
    lines = [
        f"{json.dumps(row.path, ensure_ascii=False)}: {json.dumps(_leaf(row, report), ensure_ascii=False)}"
        for row in sorted(report.rows, key=lambda row: row.path)
    ]
    body = ",\n".join(lines)
    return f'{{"{_VERSION_KEY}": {_VERSION}, "leaves": {{\n{body}\n}}}}\n'


def _read(path: Path) -> dict[str, DumpedLeaf]:
    """Return the leaves of a file by path.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a file of stored shardings.
    """
    try:
        content = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(content, dict) or content.get(_VERSION_KEY) != _VERSION:
        raise ValueError(f'it has no field "{_VERSION_KEY}": {_VERSION}')
    leaves = content.get("leaves")
    if not isinstance(leaves, dict) or not all(isinstance(leaf, dict) for leaf in leaves.values()):
        raise ValueError('its field "leaves" does not map paths to leaves')
    return leaves


def _leaf(row: TreeRow, report: TreeReport) -> DumpedLeaf:
    """Return what a file stores about a leaf: no device ids, sizes of meshes or names of default memory."""
    mesh = None if row.mesh is None else report.meshes[row.mesh]
    leaf: DumpedLeaf = {"shape": list(row.shape), "dtype": row.dtype, "sharding": _sharding(row, mesh)}
    memory = row.host_memory_kind
    return leaf if memory is None else {**leaf, "memory_kind": memory}


def _sharding(row: TreeRow, mesh: TreeMesh | None) -> str | None:
    """Return the sharding of a leaf as text; None without one."""
    if row.spec is not None:
        axes = row.spec.axes
        while axes and not axes[-1] and len(axes) - 1 not in row.spec.unconstrained:
            axes = axes[:-1]
        return str(Spec(axes, row.spec.unconstrained, row.spec.unreduced))
    if row.unknown_because is not None:
        return "unknown"
    if mesh is None:
        return None
    if mesh.device_count == 1:
        return "single device"
    return "replicated" if row.shard_shape == row.shape else f"shards {row.shard_shape}"


def _differences(stored: Mapping[str, DumpedLeaf], report: TreeReport) -> Iterator[str]:
    """Yield a line for each leaf that was added, removed or changed, in the order of the paths."""
    rows = {next((path for path in row.paths if path in stored), row.path): row for row in report.rows}
    for path in sorted({*stored, *rows}):
        name = path or "the leaf"
        row = rows.get(path)
        if row is None:
            yield f"{name}: removed, was {_words(stored[path])}"
            continue
        leaf = _leaf(row, report)
        if path not in stored:
            yield f"{name}: added, {_words(leaf)}"
            continue
        changes = [
            f"{field.replace('_', ' ')} {_value(stored[path].get(field))} is now {_value(leaf.get(field))}"
            for field in ("shape", "dtype", "sharding", "memory_kind")
            if stored[path].get(field) != leaf.get(field)
            and not (field == "sharding" and _is_equivalent(stored[path].get(field), row, report))
        ]
        if changes:
            yield f"{name}: {', '.join(changes)}"


def _is_equivalent(stored: Any, row: TreeRow, report: TreeReport) -> bool:
    """Return whether a stored spec, on the mesh that the leaf has now, is equivalent to its spec."""
    mesh = None if row.mesh is None else report.meshes[row.mesh].axes
    if row.spec is None or mesh is None or not isinstance(stored, str):
        return False
    try:
        spec = parse_spec(stored)
    except NotationError:
        return False
    # On one device, all specs are equivalent, but a run there has to find changes too.
    sizes = mesh.shape if math.prod(mesh.sizes) > 1 else {}
    return same_spec(spec, sizes, row.spec, sizes, on_any_mesh=True)


def _words(leaf: DumpedLeaf) -> str:
    """Return the facts about a leaf, such as ``float32[8,4] P('x',)``."""
    shape = leaf.get("shape")
    lengths = ",".join(map(str, shape)) if isinstance(shape, list) else "?"
    words = [f"{leaf.get('dtype')}[{lengths}]", leaf.get("sharding"), leaf.get("memory_kind")]
    return " ".join(str(word) for word in words if word is not None)


def _value(value: Any) -> str:
    """Return the value of a field as text."""
    if value is None:
        return "none"
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
