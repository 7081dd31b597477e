"""Source lines of a propagation: the specs of their values, conflicts, losses and origins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.folds import folded_paths, split_rows
from jax_array_info_core.reports import AxisOrigin, Origin, PropagatedLeaf, PropagationReport, SourceLine

from .. import style
from ..tables.links import Link, Pieces, Target, line_target
from ..tables.propagation import propagation_details, propagation_summary
from ..tables.propagation_words import (
    ENTRIES,
    Entry,
    ValueRow,
    leaf_spec_words,
    origin_target,
    some_ops,
    value_rows,
    value_size_words,
    value_spec_words,
)
from .annotated import Annotated
from .source_lines import MARKS, LeafLine, MarkedLine, Note, by_line, caller_notes

_MOST_ENTRIES = 3
"""Maximum number of findings of a kind in the notes of a line."""
_MOST_VALUES = 3
"""Maximum number of values in the notes of a line."""
_MOST_USERS = 6
"""Maximum number of lines in the note of an origin."""
_CONFLICT = style.WARNING
_LOST = "magenta"
_LOOKS = {"conflict": _CONFLICT, "lost mesh axis": _LOST, "replicated value": "cyan"}
"""Style of the bytes of each kind of finding."""
_HEADS = {"conflict": "conflict", "lost mesh axis": "lost", "replicated value": "replicated"}
"""Heads of the bytes of each kind of finding."""
_BEFORE = {"conflict": "conflict over ", "lost mesh axis": "", "replicated value": "replicated: "}
"""Words before an entry, which has no heading in the margin."""
_TITLE = Text.assemble(
    "bytes per device of lines where shardings ",
    ("conflict", _CONFLICT),
    " or ",
    ("lose mesh axes", _LOST),
    style="bold",
)


@dataclass(slots=True)
class PropagationLine(MarkedLine):
    """A source line with its findings, its values and what comes from it."""

    nbytes: dict[str, int] = field(default_factory=dict)
    """Bytes of its findings by kind."""
    value_nbytes: int = 0
    """Bytes of its largest value."""

    @property
    def cost(self) -> tuple[bool, int, int]:
        """Sort key: lines with findings first, then the more bytes, the larger."""
        return self.weight is not None, self.weight or 0, self.value_nbytes

    @property
    def weight(self) -> int | None:
        """Bytes of its findings; None without findings."""
        return sum(self.nbytes.values()) if self.nbytes else None

    @property
    def cells(self) -> tuple[str, ...]:
        """Bytes of each kind of finding."""
        return tuple(format_bytes(self.nbytes[kind]) if self.nbytes.get(kind) else "" for kind in _HEADS)


def propagation_part(
    report: PropagationReport, max_rows: int | None = 20, *, with_ways: bool = False
) -> Annotated:
    """Return a propagation as a part of a document: its answer, its source with notes, then its tables.

    Args:
        report: The report.
        max_rows: Maximum number of entries of each kind.
        with_ways: Whether the details have the way of each mesh axis from its origin.
    """
    margin = _Margin(report)
    return Annotated(
        report,
        margin.lines(),
        _TITLE,
        tuple(_HEADS.values()),
        summary=lambda width: propagation_summary(report, width=width),
        details=lambda width: propagation_details(
            report, with_ways=with_ways, max_rows=max_rows, width=width
        ),
        max_rows=max_rows,
        leaves=margin.leaves(),
    )


class _Margin:
    """The notes of a report's lines, arguments and outputs."""

    def __init__(self, report: PropagationReport) -> None:
        self._report = report
        self._lines: dict[Target, PropagationLine] = {}
        self._users: dict[Target, dict[str, dict[Link, None]]] = {}
        """Lines with the mesh axes that come from a target."""
        for finding in report.findings:
            self._add_entries(ENTRIES[finding.kind](report), finding.kind)
        if report.mesh is not None:
            self._add_values(value_rows(report.values))
        self._add_users()

    def lines(self) -> list[PropagationLine]:
        """Return the lines, those with findings first."""
        return sorted(self._lines.values(), key=lambda line: line.cost, reverse=True)

    def leaves(self) -> list[LeafLine]:
        """Return the arguments and outputs that mesh axes come from; those that differ in indices are one."""
        leaves = [one for one in (*self._report.arguments, *self._report.outputs) if one.path in self._users]
        facts = [(one.type, one.spec) for one in leaves]
        return [
            _leaf([leaves[place] for place in places], path, self._users)
            for path, places in folded_paths([one.path for one in leaves], facts)
        ]

    def _line(self, origin: Origin) -> PropagationLine:
        return self._lines.setdefault(line_target(origin), PropagationLine(origin))

    def _add_entries(self, entries: Iterable[Entry], kind: str) -> None:
        """Add the findings of a kind to their lines, and the sum of the smaller ones of each line."""
        for line, found in by_line(entries, lambda entry: entry.origin, self._line):
            line.nbytes[kind] = sum(entry.total_nbytes for entry in found)
            line.columns.update(entry.columns for entry in found if entry.columns is not None)
            shown, rest = split_rows(found, _MOST_ENTRIES)
            for entry in shown:
                times = "" if entry.times == 1 else f" {MARKS.times}{entry.times}"
                facts = [
                    f"{_BEFORE[kind]}{entry.head}{times}",
                    entry.phase or "",
                    *caller_notes(line.origin),
                ]
                line.notes.append(Note(", ".join(filter(None, facts)), entry.size, _LOOKS[kind]))
                line.notes += [Note(("  ", *pieces)) for pieces in entry.details]
            if rest:
                size = format_bytes(sum(entry.total_nbytes for entry in rest))
                count = sum(entry.times for entry in rest)
                line.notes.append(Note(f"{count} more: {_HEADS[kind]}", size, _LOOKS[kind]))

    def _add_values(self, values: Iterable[ValueRow]) -> None:
        """Add the largest values to their lines, each with its spec and its origins."""
        for line, rows in by_line(values, lambda row: row.value.origin, self._line):
            line.value_nbytes = max(row.value.nbytes or 0 for row in rows)
            shown, rest = split_rows(rows, _MOST_VALUES)
            for row in shown:
                origins = (piece for pieces in row.origins for piece in (", ", *pieces))
                words = f"{value_spec_words(row.value)}  {row.type_words(MARKS)} {some_ops(row.ops, 2)}"
                line.notes.append(Note((words, *origins), value_size_words(row.value.nbytes, row.times)))
            if rest:
                line.notes.append(Note(f"{sum(row.times for row in rest)} more values"))

    def _add_users(self) -> None:
        """Add to the lines of constraints the lines that have their mesh axes, conflicts first."""
        places: dict[Target, Origin] = {}
        for line, axis in self._uses():
            target = origin_target(axis)
            if target is not None and target != line_target(line):
                links = self._users.setdefault(target, {}).setdefault(axis.mesh_axis, {})
                links[Link(line.place, line_target(line))] = None
            if axis.origin is not None:
                places[line_target(axis.origin)] = axis.origin
        for target, origin in places.items():
            if target in self._users:
                self._line(origin).notes[:0] = _user_notes(self._users[target])

    def _uses(self) -> Iterator[tuple[SourceLine, AxisOrigin]]:
        """Yield the lines of conflicts and values, each with the origin of a mesh axis."""
        for conflict in self._report.conflicts:
            if conflict.origin is not None:
                yield from ((conflict.origin, each.axis_origin) for each in conflict.operands)
        for value in self._report.values:
            if value.origin is not None:
                yield from ((value.origin, axis) for axis in value.axes)


def _leaf(
    leaves: list[PropagatedLeaf], path: str, users: dict[Target, dict[str, dict[Link, None]]]
) -> LeafLine:
    """Return equal arguments or outputs with the lines that have their mesh axes."""
    merged: dict[str, dict[Link, None]] = {}
    for one in leaves:
        for mesh_axis, links in users[one.path].items():
            merged.setdefault(mesh_axis, {}).update(links)
    first = leaves[0]
    words = f"{path}  {type_text(first.dtype, first.shape)} {leaf_spec_words(first)}".rstrip()
    return LeafLine(words, [one.path for one in leaves], _user_notes(merged))


def _user_notes(users: dict[str, dict[Link, None]]) -> list[Note]:
    """Return a note for each mesh axis with the lines that have it from here."""
    return [Note(_user_words(mesh_axis, [*links])) for mesh_axis, links in users.items()]


def _user_words(mesh_axis: str, links: list[Link]) -> Pieces:
    shown, rest = split_rows(links, _MOST_USERS)
    joined = (piece for link in shown for piece in (", ", link))
    more = (f" and {len(rest)} more",) if rest else ()
    return (f"origin of {mesh_axis} in ", *[*joined][1:], *more)
