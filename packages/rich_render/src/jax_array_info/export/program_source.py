"""Source of a program as Rich text, with the bytes that each line moves or keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from jax_array_info.tables.folds import split_rows
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import ProgramReport
from jax_array_info_core.text import clipped, printable

from .. import style
from ..style import wrapped
from .program_lines import KEPT, SENT, Note, SourceFile, marked_lines, source_files

_GAP = "  "


def program_source(report: ProgramReport, *, max_rows: int | None = 20) -> RenderableType:
    """Return the source around the lines that move or keep bytes, with notes; empty if there are none.

    Only the Python files that are here are read, as ``source_lines`` does.

    Args:
        report: The program.
        max_rows: Maximum number of lines with notes, the costliest ones. None shows all.
    """
    shown, rest = split_rows(marked_lines(report), max_rows)

    def make(console: Console, options: ConsoleOptions) -> RenderableType:
        lines = [
            line for file in source_files(shown) for line in _file_lines(console, file, options.max_width)
        ]
        if lines:
            lines[:0] = [Text(), _title()]
        if rest:
            lines.append(Text(f"and {counted(len(rest), 'more line', 'more lines')}", style.ASIDE))
        return Group(*lines)

    return style.ForConsole(make)


def _title() -> Text:
    """Return the title, whose colors are those of the bytes."""
    return Text.assemble(
        "lines that ", ("move", SENT), " or ", ("keep", KEPT), " bytes, per device and call", style="bold"
    )


def _file_lines(console: Console, file: SourceFile, width: int) -> Iterator[Text]:
    """Yield the name of a file, then its source with the notes of each line below it."""
    yield Text()
    yield Text.assemble((_safe(file.name), "bold"), (f"{_GAP}{file.note}" if file.note else "", style.ASIDE))
    margin = file.digits + len(_GAP)
    for row, code in zip(file.rows, _codes(file), strict=True):
        label = row.left_out or str(row.number).rjust(file.digits)
        looks = (style.ASIDE, "") if row.line is None else (f"bold {SENT}", "bold")
        code.stylize_before(looks[1])
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
    for note in notes:
        size = note.size
        for line in wrapped(_safe(note.words), max(1, width - len(rule) - widest - len(gap))):
            yield Text.assemble(rule, (size.rjust(widest), f"bold {note.look}"), gap, line)
            size = ""


def _safe(text: str) -> str:
    return printable(clipped(text))
