"""Reports on trees with traced leaves, delivered as soon as every leaf is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ..compat import values
from ..delivery import deliver
from ..layouts.spec import Spec
from ..reports.array import ArrayReport
from ..reports.tree import TreeReport, VariableKind
from ..text import plain_text
from ..traced.report import TracedValue, report_together
from .leaves import tree_leaves
from .replaced import flat_leaves, with_leaves
from .report import tree_report
from .rows import DeviceSets, row_of_report
from .rows_of_leaves import leaf_report
from .totals import tree_of_rows

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


class _Leaf(NamedTuple):
    """A leaf of a tree, without its value."""

    path: str
    full_path: str | None
    logical: Spec | None
    variable: VariableKind | None
    number: int
    """Index of the value among the different values of the tree."""


def _report(tree: Any, name: str | None, show: Show, *, taps: bool) -> dict[int, Any]:
    """Deliver the report of a tree, and return the tapped leaves by the ``id`` of the leaf."""
    found = tree_leaves(tree)
    if not any(values.is_tracer(leaf.value) for leaf in found.leaves):
        deliver(tree_report(tree, name), show)
        return {}
    tapped = set(map(id, flat_leaves(tree))) if taps else ()
    leaves: list[_Leaf] = []
    indices: dict[int, int] = {}
    parts: list[TracedValue | ArrayReport] = []
    for path, value, logical, full_path, variable in found.leaves:
        index = indices.setdefault(id(value), len(parts))
        leaves.append(_Leaf(path, full_path, logical, variable, index))
        if index == len(parts):
            is_traced = values.is_tracer(value)
            parts.append(TracedValue(value, path, id(value) in tapped) if is_traced else leaf_report(value))
    title = None if name is None else plain_text(name)
    type_name, others = found.type_name, len(found.other_paths)

    def build(reports: list[ArrayReport]) -> TreeReport:
        devices = DeviceSets()
        first_paths: dict[int, str] = {}
        rows = []
        for path, full_path, logical, variable, index in leaves:
            row = row_of_report(path, reports[index], devices, logical=logical)
            row = replace(row, full_path=full_path, variable=variable)
            first = first_paths.setdefault(index, path)
            rows.append(row if first == path or row.kind == "abstract" else replace(row, same_as=first))
        return tree_of_rows(rows, devices.sets, name=title, type_name=type_name, others=others)

    inspected = report_together(parts, build, show)
    traced = [part for part in parts if isinstance(part, TracedValue)]
    return {id(part.value): result for part, result in zip(traced, inspected, strict=True) if part.taps}
