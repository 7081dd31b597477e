"""The user's source as a part of a document, and as Rich text with notes below its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.syntax import Syntax
from rich.text import Text

from jax_array_info_core.base.quantities import counted
from jax_array_info_core.facts.pages.blocks import Source
from jax_array_info_core.facts.pages.folds import split_rows
from jax_array_info_core.reports import ProgramReport, PropagationReport, Report

from .. import style
from ..engine.lines import Writing
from ..style import wrapped
from .margins import program_margin, propagation_margin
from .source_lines import LeafLine, Margin, Note, SourceFile, source_files

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
