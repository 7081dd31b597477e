"""Source lines of a propagation: the specs of their values, conflicts, losses and origins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.grouping import by_key
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.blocks import counted_path, some
from jax_array_info_core.pages.folds import folded, split_rows
from jax_array_info_core.pages.program_words import Link, line_target
from jax_array_info_core.pages.propagations import (
    finding_entries,
    leaf_spec_words,
    origin_target,
    size_words,
    value_rows,
    value_spec_words,
)
from jax_array_info_core.reports import AxisOrigin, Origin, PropagationReport

from .. import style
from .source_lines import LeafLine, Margin, Note, caller_notes

_MOST_ENTRIES = 3
"""Maximum number of findings of a kind in the notes of a line."""
_MOST_VALUES = 3
"""Maximum number of values in the notes of a line."""
_MOST_USERS = 6
"""Maximum number of lines in the note of an origin."""
_LOOKS = {"conflict": style.WARNING, "lost mesh axis": "magenta", "replicated value": "cyan"}
"""Style of the bytes of each kind of finding."""
_HEADS = {"conflict": "conflict", "lost mesh axis": "lost", "replicated value": "replicated"}
"""Heads of the bytes of each kind of finding."""
_BEFORE = {"conflict": "conflict over ", "lost mesh axis": "", "replicated value": "replicated: "}
"""Words before an entry, which has no heading in the margin."""


def propagation_margin(report: PropagationReport) -> Margin:
    """Return the lines with their findings, their values, and the lines that have mesh axes from them."""
    title = Text("bytes per device of lines where shardings ", "bold")
    title.append("conflict", _LOOKS["conflict"]).append(" or ")
    title.append("lose mesh axes", _LOOKS["lost mesh axis"])
    margin = Margin(title, tuple(_HEADS.values()))
    for finding in report.findings:
        _mark_findings(margin, report, finding.kind)
    if report.mesh is not None:
        _mark_values(margin, report)
    _mark_origins(margin, report)
    return margin


def _mark_findings(margin: Margin, report: PropagationReport, kind: str) -> None:
    """Add the findings of a kind to their lines, and the sum of the smaller ones of each line."""
    for line, entries in margin.by_line(finding_entries(report, kind), lambda entry: entry.fact.origin):
        nbytes = sum(entry.total_nbytes for entry in entries)
        line.weight = (line.weight or 0) + nbytes
        line.cells[_HEADS[kind]] = format_bytes(nbytes) if nbytes else ""
        line.columns.update(entry.fact.columns for entry in entries if entry.fact.columns is not None)
        shown, rest = split_rows(entries, _MOST_ENTRIES)
        for entry in shown:
            head = counted_path(f"{_BEFORE[kind]}{entry.head}", entry.times)
            facts = filter(None, (head, entry.fact.phase, *caller_notes(line.origin)))
            line.notes.append(Note(", ".join(facts), entry.size, _LOOKS[kind]))
            line.notes += [Note(("  ", *pieces)) for pieces in entry.details]
        if rest:
            size = format_bytes(sum(entry.total_nbytes for entry in rest))
            count = sum(entry.times for entry in rest)
            line.notes.append(Note(f"{count} more: {_HEADS[kind]}", size, _LOOKS[kind]))


def _mark_values(margin: Margin, report: PropagationReport) -> None:
    """Add the largest values to their lines, each with its spec and its origins."""
    for line, rows in margin.by_line(value_rows(report.values), lambda row: row.value.origin):
        line.other_nbytes = max(row.value.nbytes or 0 for row in rows)
        shown, rest = split_rows(rows, _MOST_VALUES)
        for row in shown:
            origins = (piece for pieces in row.origins for piece in (", ", *pieces))
            words = f"{value_spec_words(row.value)}  {row.type_words} {some(row.ops, 2)}"
            line.notes.append(Note((words, *origins), size_words(row.value.nbytes, row.times)))
        if rest:
            line.notes.append(Note(f"{sum(row.times for row in rest)} more values"))


def _mark_origins(margin: Margin, report: PropagationReport) -> None:
    """Add to the lines of constraints, to arguments and to outputs the lines that have their mesh axes."""
    uses = [*_uses(report)]
    places = {line_target(axis.origin): axis.origin for _, axis in uses if axis.origin is not None}
    users = by_key(
        (target, (axis.mesh_axis, Link(line.place, line_target(line))))
        for line, axis in uses
        if (target := origin_target(axis)) not in (None, line_target(line))
    )
    for target, origin in places.items():
        if target in users:
            margin.line(origin).notes[:0] = _user_notes(users[target])
    leaves = [one for one in (*report.arguments, *report.outputs) if one.path in users]
    for path, found in folded(leaves, lambda one: (one.type, one.spec)):
        first, paths = found[0], [one.path for one in found]
        words = f"{path}  {type_text(first.dtype, first.shape)} {leaf_spec_words(first)}".rstrip()
        notes = _user_notes(user for one in paths for user in users[one])
        margin.leaves.append(LeafLine(words, paths, [*notes]))


def _uses(report: PropagationReport) -> Iterator[tuple[Origin, AxisOrigin]]:
    """Yield the lines of conflicts and values, conflicts first, each with the origin of a mesh axis."""
    for conflict in report.conflicts:
        if conflict.origin is not None:
            yield from ((conflict.origin, each.axis_origin) for each in conflict.operands)
    for value in report.values:
        if value.origin is not None:
            yield from ((value.origin, axis) for axis in value.axes)


def _user_notes(users: Iterable[tuple[str, Link]]) -> Iterator[Note]:
    """Yield a note for each mesh axis with the lines that have it from here."""
    for mesh_axis, links in by_key(dict.fromkeys(users)).items():
        shown, rest = split_rows(links, _MOST_USERS)
        joined = [piece for link in shown for piece in (", ", link)]
        more = (f" and {len(rest)} more",) if rest else ()
        yield Note((f"origin of {mesh_axis} in ", *joined[1:], *more))
