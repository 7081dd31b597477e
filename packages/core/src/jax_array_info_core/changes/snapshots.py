"""Files with the shardings of a tree, the same on each machine, for ``sharding_snapshot``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckError, NotationError
from ..layouts.notation import parse_spec
from ..layouts.spec import Spec
from ..reports.files import write_whole
from ..reports.tree import TreeMesh, TreeReport, TreeRow
from ..text import printable
from ..trees.leaves import require_tree
from ..trees.report import tree_report
from .diff import same_spec, special_memory

_VERSION = 1
_VERSION_KEY = "sharding_snapshot"

Leaf = dict[str, Any]
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
        write_whole(path, _text(report).encode("utf-8", "backslashreplace"))


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
    report = tree_report(tree)
    if not report.rows:
        require_tree(tree)
    return report


def _text(report: TreeReport) -> str:
    """Return the text of a file: one line per leaf, sorted by path."""
    lines = [
        f"{json.dumps(row.path, ensure_ascii=False)}: {json.dumps(_leaf(row, report), ensure_ascii=False)}"
        for row in sorted(report.rows, key=lambda row: row.path)
    ]
    body = ",\n".join(lines)
    return f'{{"{_VERSION_KEY}": {_VERSION}, "leaves": {{\n{body}\n}}}}\n'


def _read(path: Path) -> dict[str, Leaf]:
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


def _leaf(row: TreeRow, report: TreeReport) -> Leaf:
    """Return what a file stores about a leaf: no device ids, sizes of meshes or names of default memory."""
    mesh = None if row.mesh is None else report.meshes[row.mesh]
    leaf: Leaf = {"shape": list(row.shape), "dtype": row.dtype, "sharding": _sharding(row, mesh)}
    memory = special_memory(row)
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


def _differences(stored: Mapping[str, Leaf], report: TreeReport) -> Iterator[str]:
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
    return same_spec(spec, sizes, row.spec, sizes)


def _words(leaf: Leaf) -> str:
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
