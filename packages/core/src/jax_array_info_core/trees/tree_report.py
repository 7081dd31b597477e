"""The report on a tree, the file of it, and a tree as ShapeDtypeStructs with shardings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..arrays.delivery import deliver
from ..arrays.paths import key_path_keys, path_text
from ..arrays.traced.traced_report import TracedValue, report_together
from ..arrays.walk import MAX_DEPTH, PLAIN
from ..base.errors import SpecError, UnsupportedValueError, require
from ..base.grouping import by_key
from ..base.quantities import counted
from ..base.text import plain_text
from ..compat import values
from ..compat.values import is_array_type
from ..facts.reports.array import ArrayReport
from ..facts.reports.tree import TreeReport
from .leaves import TreeLeaf, tree_leaves
from .plan import opened, plan_tree
from .rows import DeviceSets, leaf_report, row_of_report
from .specs import LogicalAxes
from .statistics import with_statistics
from .totals import tree_of_rows

_SHOWN = 3
"""Number of paths in a line of the message."""


def spec_error(problems: Iterable[tuple[str, str]]) -> SpecError:
    """Return the error with the problems of all leaves.

    Args:
        problems: Path and problem of each invalid spec.

    >>> error = spec_error([(path, "'x' is not a mesh axis") for path in ("a", "b", "c", "d")])
    >>> print(error)
    'x' is not a mesh axis (4 leaves: a, b, c, …)
    >>> error.problems[3]
    "d: 'x' is not a mesh axis"
    """
    problems = list(problems)
    paths = by_key((problem, path) for path, problem in problems)
    return SpecError([_line(path, problem) for path, problem in problems], list(_groups(paths)))


def _groups(paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each problem, given the paths of its leaves."""
    for problem, names in paths.items():
        if len(names) == 1:
            yield _line(names[0], problem)
            continue
        more = ", …" if len(names) > _SHOWN else ""
        leaves = counted(len(names), "leaf", "leaves")
        yield f"{problem} ({leaves}: {', '.join(names[:_SHOWN])}{more})"


def _line(path: str, problem: str) -> str:
    return f"{path or 'the leaf'}: {problem}"


def tree_report(
    tree: Any,
    name: str | None = None,
    *,
    mesh: Any = None,
    specs: Any = None,
    logical_axes: LogicalAxes | None = None,
    statistics: bool = False,
) -> TreeReport:
    """Return the report of a tree: shape, sharding and bytes per device of each leaf, and totals.

    A tree is any container that ``jax.tree_util`` flattens (a dict, a list, a dataclass, the state of Flax,
    Equinox or Optax) of JAX arrays, NumPy arrays and ShapeDtypeStructs. Any other object with a shape and a
    dtype, such as a dataset in a file, is one leaf, which is not in device memory. Other leaves are counted
    in ``others``. No array is created, read or waited for, unless you ask for ``statistics``.

    With ``mesh``, ``specs`` or ``logical_axes``, the report describes the tree as it would be sharded. No
    devices are needed. An array axis that is not divisible by its number of shards is padded, as XLA does,
    and listed in ``uneven``.

    Args:
        tree: The tree, a TreeReport, or the path of a file or a directory, as for ``load_tree``.
        name: Name of the tree in the report.
        mesh: Mesh to plan for: a Mesh, an AbstractMesh, or the size of each mesh axis by name. Without
            ``specs`` and ``logical_axes``, each leaf keeps its spec; a leaf without one is replicated. None
            is the mesh of each leaf.
        specs: A tree or prefix of PartitionSpecs and Shardings, as ``in_shardings`` of ``jax.jit`` takes, or
            ``PathRules``. None in it leaves a leaf as it is. A PartitionSpec for a whole tree or subtree, or
            for a pattern such as ``*`` or ``params/*``, is for the leaves with enough axes: the others are
            replicated, and ``TreeReport.shorter_count`` counts them. It is an error if none has enough.
        logical_axes: Rules for logical axis names, as Flax has them: pairs of a name and its mesh axis, mesh
            axes or None, in order of precedence. A mapping is the list of its items. The names are those in
            ``specs``, or those that the leaves have: boxes of Flax, variables of nnx, NamedArrays of haliax
            and penzai. A name takes the mesh axes of its first rule whose axes are all free in that leaf; a
            later rule for the same name is a fallback. Mesh axes that the mesh lacks are left out of a
            rule. A name without a rule is replicated. ``TreeReport.unmatched_axes`` lists the rules
            without a leaf, and the names without a rule.
        statistics: Whether to compute the mean, the standard deviation, the extremes and the numbers of
            zeros, NaN and infinities of each leaf. This runs a computation on the devices of the leaves and
            waits for it; if arrays span processes, every process must make the call.

    Raises:
        SpecError: (a ValueError) If a spec does not fit its leaf or the mesh, ``specs`` does not fit the
            tree, or a pattern or all rules of ``logical_axes`` match no leaf. The message lists every
            problem, with the paths of some of its leaves, and the ``problems`` of the error list every leaf.
        FileFormatError: (a ValueError) If ``tree`` is a path, and the file cannot be read.
        FileNotFoundError: (an OSError) If ``tree`` is a path, and there is no such file.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.float32)}
    >>> report = tree_report(params, mesh={"fsdp": 8}, specs={"w": P("fsdp")})
    >>> report.nbytes, report.fullest_device_nbytes, report.rows[0].shard_shape
    (33554432, 4194304, (1024, 1024))
    """
    tree = opened(tree)
    planned = plan_tree(tree, name, mesh=mesh, specs=specs, logical_axes=logical_axes)
    if planned.problems:
        raise spec_error(planned.problems)
    return with_statistics(planned.report, tree) if statistics else planned.report


def save_tree(
    tree: Any,
    path: str | os.PathLike[str],
    *,
    mesh: Any = None,
    specs: Any = None,
    logical_axes: LogicalAxes | None = None,
) -> None:
    """Write the report on a tree to a file, as JSON. ``load_tree`` reads it.

    The file is replaced completely or not at all. It contains shapes, dtypes, shardings and bytes, but no
    elements.

    Args:
        tree: A tree of arrays, a TreeReport or a path, as for ``tree_report``.
        path: Path of the file.
        mesh: Mesh to plan for, as for ``tree_report``.
        specs: Specs to plan for, as for ``tree_report``.
        logical_axes: Rules for logical axis names, as for ``tree_report``.

    Raises:
        OSError: If the file cannot be written.
        SpecError: (a ValueError) If a spec does not fit its leaf or the mesh. No file is written.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh, or ``path`` not a path.

    >>> import os, tempfile, numpy
    >>> from jax_array_info_core import load_tree, save_tree
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tree({"w": numpy.zeros((8, 4), "float32")}, os.path.join(folder, "tree.json"))
    ...     [row] = load_tree(os.path.join(folder, "tree.json")).rows
    >>> row.path, row.shape, row.nbytes
    ('w', (8, 4), 128)
    """
    from ..base.files import write_whole
    from ..facts.reports.json import to_json

    require(path, (str, os.PathLike), "the path of the file after the tree: save_tree(tree, 'tree.json')")
    plan = {"mesh": mesh, "specs": specs, "logical_axes": logical_axes}
    is_whole = type(tree) is TreeReport and all(part is None for part in plan.values())
    report = tree if is_whole else tree_report(tree, **plan)
    write_whole(Path(path), f"{to_json(report)}\n".encode())


_NNX_OBJECTS = ("Object", "Pytree", "Variable")
"""Base classes in Flax NNX. Pytree was Object before flax 0.12."""


def flat_leaves(tree: Any, ancestors: tuple[int, ...] = ()) -> Iterator[Any]:
    """Yield the leaves to which JAX flattens a tree.

    A container inside itself, which crashes JAX, is a leaf. So are a container that JAX cannot flatten, and
    the objects and variables of Flax NNX.
    """
    children, _ = _flattened_once(tree, ancestors)
    if children is None:
        yield tree
        return
    for child in children:
        yield from flat_leaves(child, (*ancestors, id(tree)))


def with_leaves(tree: Any, leaves: Mapping[int, Any], ancestors: tuple[int, ...] = ()) -> Any:
    """Return a tree with other leaves. Containers without one of them stay the same objects.

    Args:
        tree: The tree.
        leaves: The new leaves by the ``id`` of the old ones.
        ancestors: The ``id`` of each container around the tree.
    """
    if not leaves or id(tree) in leaves:
        return leaves.get(id(tree), tree)
    children, treedef = _flattened_once(tree, ancestors)
    if children is None:
        return tree
    replaced = [with_leaves(child, leaves, (*ancestors, id(tree))) for child in children]
    if all(new is old for new, old in zip(replaced, children, strict=True)):
        return tree
    return treedef.unflatten(replaced)


def _has_identity(cls: type) -> bool:
    """Return whether the identity of the objects of a class matters, as for the modules of Flax NNX.

    NNX transformations return the updates of the objects that they passed to a function. A copy would lose
    them, and the same submodule in two places would become two.
    """
    bases = [base for base in cls.__mro__ if str(base.__module__).startswith("flax.nnx.")]
    return any(base.__name__ in _NNX_OBJECTS for base in bases)


def _flattened_once(container: Any, ancestors: tuple[int, ...]) -> tuple[list[Any] | None, Any]:
    """Return the children of a container and its treedef; None for a leaf."""
    import jax

    is_leaf = type(container) in PLAIN or values.is_array_type(container) or id(container) in ancestors
    if is_leaf or len(ancestors) == MAX_DEPTH or _has_identity(type(container)):
        return None, None
    # False for the container itself, True for each of its children.
    stops = iter([False])
    try:
        children, treedef = jax.tree_util.tree_flatten(container, is_leaf=lambda _: next(stops, True))
    except Exception:
        # Keys may not be sortable, and the flatten function of a registered class may raise anything.
        return None, None
    return (None, None) if jax.tree_util.treedef_is_leaf(treedef) else (children, treedef)


Show = Callable[[TreeReport], None]


def report_tree_when_known(tree: Any, name: str | None, show: Show) -> None:
    """Deliver the report of a tree as soon as the shardings of all leaves are known.

    For a tree with traced leaves whose shardings XLA chooses, this is at compile time, otherwise immediately.
    """
    _report(tree, name, show, taps=False)


def tap_tree_when_known(tree: Any, name: str | None, show: Show) -> Any:
    """Do as ``report_tree_when_known``, and return the tree with the inspections in its computation.

    Containers without traced leaves stay the same objects. Objects that JAX does not flatten do too; the
    leaves in them are inspected as by ``report_tree_when_known``.
    """
    return with_leaves(tree, _report(tree, name, show, taps=True))


def _report(tree: Any, name: str | None, show: Show, *, taps: bool) -> dict[int, Any]:
    """Deliver the report of a tree, and return the tapped leaves by the ``id`` of the leaf."""
    contents = tree_leaves(tree)
    if not any(values.is_tracer(leaf.value) for leaf in contents.leaves):
        deliver(tree_report(tree, name), show)
        return {}
    tapped = set(map(id, flat_leaves(tree))) if taps else ()
    # In place of its value, a leaf has the index of the value among the different ones of the tree.
    leaves: list[TreeLeaf] = []
    indices: dict[int, int] = {}
    parts: list[TracedValue | ArrayReport] = []
    for leaf in contents.leaves:
        value = leaf.value
        index = indices.setdefault(id(value), len(parts))
        leaves.append(leaf._replace(value=index))
        if index == len(parts):
            is_traced = values.is_tracer(value)
            is_tapped = id(value) in tapped
            parts.append(TracedValue(value, leaf.path, is_tapped) if is_traced else leaf_report(value))
    title = None if name is None else plain_text(name)
    type_name, others = contents.type_name, contents.other_paths

    def build(reports: list[ArrayReport]) -> TreeReport:
        devices = DeviceSets()
        first_paths: dict[int, str] = {}
        rows = []
        for path, index, logical, full_path, variable in leaves:
            row = row_of_report(path, reports[index], devices, logical=logical)
            row = replace(row, full_path=full_path, variable=variable)
            first = first_paths.setdefault(index, path)
            rows.append(row if first == path or row.kind == "abstract" else replace(row, same_as=first))
        return tree_of_rows(
            rows, devices.sets, name=title, type_name=type_name, others=len(others), other_paths=others
        )

    inspected = report_together(parts, build, show)
    traced = [part for part in parts if isinstance(part, TracedValue)]
    return {id(part.value): result for part, result in zip(traced, inspected, strict=True) if part.taps}


def sharded_structs(tree: Any, *, mesh: Any, specs: Any) -> Any:
    """Return a tree of ShapeDtypeStructs, each with its sharding, to plan a function without devices.

    Args:
        tree: A tree of arrays or ShapeDtypeStructs, such as the result of ``jax.eval_shape``. Leaves that are
            not arrays stay as they are. What is in host memory stays there.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name, such as ``{"data": 256}``. Of a
            mapping, XLA chooses the shardings that are not requested (axes of type Auto).
        specs: A tree or prefix of PartitionSpecs, one spec for all leaves, or ``PathRules``. Leaves with
            fewer axes than a spec for all of them are replicated, as in ``tree_report``.

    Raises:
        SpecError: (a ValueError) If a spec does not fit its leaf or the mesh, or ``specs`` does not fit the
            tree.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh, or ``tree`` a path or a report.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.float32)}
    >>> sharded_structs(params, mesh={"fsdp": 8}, specs=P("fsdp"))["w"].sharding.spec
    P('fsdp',)
    """
    import jax

    from ..compat.lowering import mesh_of_jax, sharded_struct

    if isinstance(tree, str | os.PathLike | TreeReport):
        raise UnsupportedValueError(
            f"expected a tree of arrays or ShapeDtypeStructs, got {type(tree)}: a file or a report has rows, "
            "and not the tree that a function takes"
        )
    planned = plan_tree(tree, mesh=mesh, specs=specs)
    if planned.problems:
        raise spec_error(planned.problems)
    on = mesh_of_jax(mesh)
    rows = {row.full_path or row.path: row for row in planned.report.rows}

    def struct(keys: Any, leaf: Any) -> Any:
        path = path_text(key_path_keys(keys))
        row = rows.get(path)
        spec = None if row is None else row.spec
        if spec is None and is_array_type(leaf):
            raise UnsupportedValueError(
                f"the leaf {path or '(root)'} has no spec: pass a tree of plain arrays"
            )
        if row is None or spec is None:
            return leaf
        return sharded_struct(leaf, on, spec, row.memory_kind if row.is_in_host_memory else None)

    return jax.tree_util.tree_map_with_path(struct, tree)
