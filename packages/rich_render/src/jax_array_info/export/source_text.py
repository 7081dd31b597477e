"""The user's source with notes on bytes, specs and origins: a part of a document, and as Rich text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.syntax import Syntax
from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.base.grouping import by_key
from jax_array_info_core.base.quantities import counted
from jax_array_info_core.base.text import that_apply
from jax_array_info_core.facts.pages.blocks import AT_MOST, Source, counted_path, some
from jax_array_info_core.facts.pages.folds import folded, split_rows
from jax_array_info_core.facts.pages.program_words import (
    Link,
    collective_axes_words,
    kept_words,
    line_target,
    phase_words,
    scope_words,
    sharding_words,
    total_words,
)
from jax_array_info_core.facts.pages.programs import folded_collectives
from jax_array_info_core.facts.pages.propagations import (
    finding_entries,
    leaf_spec_words,
    origin_target,
    size_words,
    value_rows,
    value_spec_words,
)
from jax_array_info_core.facts.reports.collectives import (
    SLOW_LINKS,
    link_words,
    most_nbytes,
    sent_by,
    sent_words,
)
from jax_array_info_core.geometry.layouts.dtypes import type_text
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.reports import (
    AxisOrigin,
    Collective,
    Origin,
    ProgramReport,
    PropagationReport,
    Report,
    Temporary,
)

from .. import style
from ..engine.lines import Writing
from ..style import wrapped
from .source_lines import LeafLine, Margin, Note, SourceFile, caller_notes, source_files

_MOST_TEMPORARIES = 4
"""Maximum number of temporaries in the notes of a line."""
_LEAST_SHARE = 1000
"""Part of the largest temporary that one with a note has at least."""
_SENT = style.WARNING
_KEPT = "cyan"
"""Styles of the bytes that a line sends and keeps."""


def program_margin(report: ProgramReport) -> Margin:
    """Return the lines of the user's code that move or keep bytes."""
    title = Text("lines that ", "bold").append("move", _SENT).append(" or ").append("keep", _KEPT)
    margin = Margin(title.append(" bytes, per device and call"), ("sent", "live"))
    _mark_collectives(margin, report)
    for reshard in report.rematerializations or ():
        if reshard.origin is not None:
            change = f"resharded by full replication {reshard.change(report.mesh)}".rstrip()
            suffix = "" if reshard.count == 1 else " each"
            size = "" if reshard.nbytes is None else f"{format_bytes(reshard.nbytes)}{suffix}"
            margin.line(reshard.origin).notes.append(Note(counted_path(change, reshard.count), size, _SENT))
    for constraint in report.constraints or ():
        if constraint.origin is not None and (constraint.is_padded or constraint.is_unknown):
            state = "padded inside the program" if constraint.is_padded else "not found in the program"
            words = counted_path(f"{sharding_words(constraint.asked)}, {state}", constraint.count)
            margin.line(constraint.origin).notes.append(Note(words))
    _mark_kept(margin, report)
    for line in margin.lines:
        line.weight = line.weight or 0
        line.cells["live"] = format_bytes(line.other_nbytes) if line.other_nbytes else ""
    return margin


def _mark_collectives(margin: Margin, report: ProgramReport) -> None:
    """Add the collectives to their lines; those with the same words have one note with their sum."""
    for line, ones in margin.by_line(report.collectives or (), lambda collective: collective.origin):
        bounded = [collective for collective in ones if collective.bound_nbytes is not None]
        line.is_uncertain = len(bounded) < len(ones)
        line.weight = most_nbytes(bounded) or 0
        bound = f"{AT_MOST} " if any(collective.times is None for collective in bounded) else ""
        sent = f"{bound}{format_bytes(line.weight)}" if line.weight else ""
        line.cells["sent"] = " + ".join(filter(None, (sent, "?" if line.is_uncertain else "")))
        folds = folded_collectives(ones)
        for words, alike in by_key(
            (", ".join(_collective_words(collective, because, report.mesh)), collective)
            for collective, because in folds
        ).items():
            several = len(alike) > 1
            size = sent_words(sent_by(alike), has_loops=False) if several else total_words(alike[0])
            line.notes.append(Note(words, size, _SENT))


def _mark_kept(margin: Margin, report: ProgramReport) -> None:
    """Add the largest temporaries to their lines, the sum of the others of each line, and buffers.

    Scalars such as the counters of loops have no notes where other temporaries are far larger.
    """
    temporaries = (report.memory.temporaries if report.memory is not None else ()) or ()
    least = max((temporary.nbytes * temporary.count for temporary in temporaries), default=0) / _LEAST_SHARE
    large = [temporary for temporary in temporaries if temporary.nbytes * temporary.count >= least]
    for line, ones in margin.by_line(large, lambda temporary: temporary.origin):
        line.other_nbytes += sum(temporary.nbytes * temporary.count for temporary in ones)
        shown, others = split_rows(ones, _MOST_TEMPORARIES)
        for temporary in shown:
            line.notes.append(
                Note(_temporary_words(temporary), format_bytes(temporary.nbytes * temporary.count), _KEPT)
            )
        if others:
            size = format_bytes(sum(temporary.nbytes * temporary.count for temporary in others))
            line.notes.append(
                Note(f"{sum(temporary.count for temporary in others)} more, live at once", size, _KEPT)
            )
    for buffer in report.out_of_memory.buffers if report.out_of_memory is not None else ():
        if buffer.origin is not None:
            line = margin.line(buffer.origin)
            line.other_nbytes += buffer.nbytes
            words = f"buffer {type_text(buffer.dtype, buffer.shape)}"
            line.notes.append(Note(words, format_bytes(buffer.nbytes), _KEPT))


def _collective_words(collective: Collective, because: str, mesh: MeshAxes | None) -> list[str]:
    """Return the kind, the axes, the argument, the pass and the reason of a collective."""
    phase = phase_words(collective)
    facts = that_apply(
        (True, f"{collective.kind} over {collective_axes_words(collective, mesh)}"),
        (collective.link in SLOW_LINKS, f"by {link_words(collective.link)}"),
        (collective.path, collective.path or ""),
        (phase, phase),
        (collective.origin is not None and collective.origin.is_near, "near this line"),
        (because, f"because {because}"),
    )
    return [*facts, *_place_words(collective)]


def _temporary_words(temporary: Temporary) -> str:
    array = counted_path(type_text(temporary.dtype, temporary.shape), temporary.count)
    kept = kept_words(temporary) or "live at once"
    return ", ".join([f"{kept}: {array}", *_place_words(temporary)])


def _place_words(row: Collective | Temporary) -> Iterator[str]:
    """Yield the named scopes of a row, and the lines of its chain but for the one that has the note."""
    if row.scopes:
        yield f"in {scope_words(row.scopes)}"
    if row.origin is not None:
        yield from caller_notes(row.origin)


_MOST_ENTRIES = 3
"""Maximum number of findings of a kind in the notes of a line."""
_MOST_VALUES = 3
"""Maximum number of values in the notes of a line."""
_MOST_USERS = 6
"""Maximum number of lines in the note of an origin."""
_LOOKS = {
    "conflict": style.WARNING,
    "lost mesh axis": "magenta",
    "replicated value": "cyan",
    "lost batch": "magenta",
}
"""Style of the bytes of each kind of finding."""
_HEADS = {
    "conflict": "conflict",
    "lost mesh axis": "lost",
    "replicated value": "replicated",
    "lost batch": "batch",
}
"""Heads of the bytes of each kind of finding."""
_BEFORE = {"conflict": "conflict over ", "replicated value": "replicated: "}
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
        shown, others = split_rows(entries, _MOST_ENTRIES)
        for entry in shown:
            head = counted_path(f"{_BEFORE.get(kind, '')}{entry.head}", entry.times)
            facts = filter(None, (head, entry.fact.phase, *caller_notes(line.origin)))
            line.notes.append(Note(", ".join(facts), entry.size, _LOOKS[kind]))
            line.notes += [Note(("  ", *pieces)) for pieces in entry.details]
        if others:
            size = format_bytes(sum(entry.total_nbytes for entry in others))
            count = sum(entry.times for entry in others)
            line.notes.append(Note(f"{count} more: {_HEADS[kind]}", size, _LOOKS[kind]))


def _mark_values(margin: Margin, report: PropagationReport) -> None:
    """Add the largest values to their lines, each with its spec and its origins."""
    for line, rows in margin.by_line(value_rows(report.values), lambda row: row.value.origin):
        line.other_nbytes = max(row.value.nbytes or 0 for row in rows)
        shown, others = split_rows(rows, _MOST_VALUES)
        for row in shown:
            origins = (piece for pieces in row.origins for piece in (", ", *pieces))
            words = f"{value_spec_words(row.value)}  {row.type_words} {some(row.ops, 2)}"
            line.notes.append(Note((words, *origins), size_words(row.value.nbytes, row.times)))
        if others:
            line.notes.append(Note(f"{sum(row.times for row in others)} more values"))


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
    leaves = [leaf for leaf in (*report.arguments, *report.outputs) if leaf.path in users]
    for path, alike in folded(leaves, lambda leaf: (leaf.type, leaf.spec)):
        first, paths = alike[0], [leaf.path for leaf in alike]
        words = f"{path}  {type_text(first.dtype, first.shape)} {leaf_spec_words(first)}".rstrip()
        notes = _user_notes(user for name in paths for user in users[name])
        margin.leaves.append(LeafLine(words, paths, [*notes]))


def _uses(report: PropagationReport) -> Iterator[tuple[Origin, AxisOrigin]]:
    """Yield the lines of conflicts and values, conflicts first, each with the origin of a mesh axis."""
    for conflict in report.conflicts:
        if conflict.origin is not None:
            yield from ((conflict.origin, operand.axis_origin) for operand in conflict.operands)
    for value in report.values:
        if value.origin is not None:
            yield from ((value.origin, axis) for axis in value.axes)


def _user_notes(users: Iterable[tuple[str, Link]]) -> Iterator[Note]:
    """Yield a note for each mesh axis with the lines that have it from here."""
    for mesh_axis, links in by_key(dict.fromkeys(users)).items():
        shown, others = split_rows(links, _MOST_USERS)
        joined = [piece for link in shown for piece in (", ", link)]
        more = (f" and {len(others)} more",) if others else ()
        yield Note((f"origin of {mesh_axis} in ", *joined[1:], *more))


_GAP = "  "
_safe = Writing("utf-8").safe


@dataclass(frozen=True, slots=True)
class SourcePart:
    """The source around the lines that a report is about, with notes: as text, unless it becomes HTML."""

    report: Report
    margin: Margin
    max_rows: int | None
    """Maximum number of lines with notes in text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield source_text(self.margin, max_rows=self.max_rows)


def source_part(block: Source, max_rows: int | None) -> SourcePart:
    """Return the source of a page.

    Args:
        block: The block of the page.
        max_rows: Maximum number of lines with notes in text.

    Raises:
        TypeError: If the report has no lines to mark.
    """
    match block.of:
        case ProgramReport():
            margin = program_margin(block.of)
        case PropagationReport():
            margin = propagation_margin(block.of)
        case _:
            raise TypeError(f"a {type(block.of).__name__} marks no lines of source")
    return SourcePart(block.of, margin, max_rows)


def source_text(margin: Margin, *, max_rows: int | None = 20) -> RenderableType:
    """Return the source around some lines, with their notes; empty if there are none.

    Only the Python files that are here are read, as ``source_lines`` does.

    Args:
        margin: The lines.
        max_rows: Maximum number of lines with notes. None shows all.
    """
    shown, hidden = split_rows(margin.lines, max_rows)

    def make(console: Console, options: ConsoleOptions) -> RenderableType:
        width = options.max_width
        lines = [line for file in source_files(shown) for line in _file_lines(console, file, width)]
        if lines:
            lines[:0] = [Text(), margin.title]
        if hidden:
            lines.append(Text(f"and {counted(len(hidden), 'more line', 'more lines')}", style.ASIDE))
        if lines and margin.leaves:
            lines += [*_leaf_lines(margin.leaves, max_rows, width), Text()]
        return Group(*lines)

    return style.ForConsole(make)


def _leaf_lines(leaves: Sequence[LeafLine], max_rows: int | None, width: int) -> Iterator[Text]:
    """Yield arguments and outputs with their notes."""
    shown, hidden = split_rows(leaves, max_rows)
    yield from (Text(), Text("arguments and outputs", "bold"))
    for leaf in shown:
        yield from (Text(line) for line in wrapped(_safe(leaf.words), width))
        yield from (Text(_GAP).append_text(note) for note in _notes(leaf.notes, max(1, width - len(_GAP))))
    if hidden:
        yield Text(f"and {len(hidden)} more", style.ASIDE)


def _file_lines(console: Console, file: SourceFile, width: int) -> Iterator[Text]:
    """Yield the name of a file, then its source with the notes of each line below it."""
    yield Text()
    yield Text.assemble((_safe(file.name), "bold"), (f"{_GAP}{file.note}" if file.note else "", style.ASIDE))
    margin = file.digits + len(_GAP)
    for row, code in zip(file.rows, _codes(file), strict=True):
        label = _safe(row.left_out) or str(row.number).rjust(file.digits)
        is_costly = row.line is not None and row.line.weight is not None
        looks = (f"bold {style.WARNING}", "bold") if is_costly else (style.ASIDE, "")
        code.stylize_before(looks[1])
        if _safe(row.code) == row.code:
            for place in row.underlined:
                code.stylize("underline", place, place + 1)
        for part in code.wrap(console, max(1, width - margin)):
            yield Text.assemble((label.ljust(margin), looks[0]), part)
            label = ""
        if row.line is not None:
            indent = margin + min(len(row.code) - len(row.code.lstrip()), width // 3)
            for note in _notes(row.line.notes, max(1, width - indent)):
                yield Text(" " * indent).append_text(note)


def _codes(file: SourceFile) -> list[Text]:
    """Return the code of each row, in the colors of its tokens."""
    text = "\n".join(_safe(row.code) for row in file.rows)
    highlighted = Syntax("", "python", theme="ansi_light").highlight(text)
    return list(highlighted.split("\n", allow_blank=True))[: len(file.rows)]


def _notes(notes: Sequence[Note], width: int) -> Iterator[Text]:
    """Yield the notes of a line, with aligned bytes and a rule at the left."""
    rule = f"{style.marks('utf-8').vertical} "
    widest = max(len(note.size) for note in notes)
    gap = _GAP if widest else ""
    room = max(1, width - len(rule) - widest - len(gap))
    for note in notes:
        size, text = _safe(note.size), _safe(note.text)
        indent = " " * min(len(text) - len(text.lstrip()), room // 2)
        for line in wrapped(text.lstrip(), room - len(indent)):
            yield Text.assemble(rule, (size.rjust(widest), f"bold {note.look}"), gap, indent + line)
            size = ""
