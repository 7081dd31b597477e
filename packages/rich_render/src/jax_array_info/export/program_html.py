"""Programs as HTML: the tables, and the user's source with the bytes that each line moves or keeps."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult

from jax_array_info_core import format_bytes, to_json
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import ProgramReport
from jax_array_info_core.text import clipped, printable

from ..svg import COLORS, FONT, GREY, lines_html
from ..tables.program import program_details, program_summary
from .program_lines import MarkedLine, Note, SourceFile, SourceRow, marked_lines, source_files
from .program_source import program_source

_MOST_LINKS = 20
"""Maximum number of lines in the list of the costliest lines."""
_MOST_LINES = 300
"""Maximum number of marked lines in the source."""
_ROW = "display:flex;flex-wrap:wrap;align-items:baseline;border-left:3px solid"
"""Inline style of a line of source: its notes are to its right, or below it on a narrow page."""
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere"
_CELLS = (
    *("text-align:right;white-space:pre",) * 2,
    "white-space:nowrap;overflow:hidden;text-overflow:ellipsis",
)
"""Inline styles of the columns of the list of links."""


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """A program as a part of a document: its summary, its source with marked lines, then its tables."""

    report: ProgramReport
    max_rows: int | None = 20
    """Maximum number of rows of each table."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield program_summary(self.report, width=width)
        yield program_source(self.report, max_rows=self.max_rows)
        yield program_details(self.report, max_rows=self.max_rows, width=width)


def program_html(part: ProgramPart, width: int = 80) -> str:
    """Return a program as an HTML fragment: its summary, its source with marked lines, then its tables.

    Links lead from the costliest lines to their source. Their ids begin with a hash of the report, so
    fragments of different reports can be in one page. The fragment has no scripts and no style sheets, and
    the colors of the page around it.

    Args:
        part: The program.
        width: Characters per line of the tables.
    """
    report = part.report
    pieces = [lines_html(program_summary(report, width=width), width)]
    lines = marked_lines(report)
    if lines:
        prefix = f"jai-{hashlib.sha256(to_json(report).encode()).hexdigest()[:12]}"
        ids = {id(line): f"{prefix}-{number}" for number, line in enumerate(lines[:_MOST_LINES])}
        page = _Page(lines[:_MOST_LINES], ids)
        looks = f"font-family:{FONT};font-size:13px;line-height:1.4;color:inherit;margin:1em 0"
        pieces.append(f'<div style="{html.escape(looks)}">{page.links(len(lines))}{page.files()}</div>')
    pieces.append(lines_html(program_details(report, max_rows=part.max_rows, width=width), width))
    return "".join(pieces)


class _Page:
    """The marked lines of a program, and the source around them."""

    def __init__(self, lines: Sequence[MarkedLine], ids: dict[int, str]) -> None:
        self._lines = lines
        self._ids = ids
        self._files = source_files(lines)
        self._largest = max((line.sent_nbytes for line in lines), default=0)

    def links(self, count: int) -> str:
        """Return the list of the costliest lines.

        Args:
            count: Number of all marked lines.
        """
        codes = {id(row.line): row.code.strip() for file in self._files for row in file.rows}
        cells = [f"<b>{head}</b>" for head in ("sent", "live", "line")]
        for line in self._lines[:_MOST_LINKS]:
            words = codes[id(line)] or "".join(note.words for note in line.notes[:1])
            look = f"color:{COLORS['blue']}"
            link = f'<a href="#{self._ids[id(line)]}" style="{look}">{_escaped(line.origin.place)}</a>'
            cells += [
                _sent(line),
                _live(line),
                f'{link}<span style="margin-left:2ch">{_escaped(words)}</span>',
            ]
        looks = "display:grid;grid-template-columns:auto auto minmax(0,1fr);gap:0 2ch"
        grid = "".join(f'<div style="{_CELLS[number % 3]}">{cell}</div>' for number, cell in enumerate(cells))
        left = count - min(len(self._lines), _MOST_LINKS)
        rest = f'<div style="color:{GREY}">and {counted(left, "more line", "more lines")}</div>'
        return (
            "<div><b>lines that move or keep bytes, per device and call</b></div>"
            f'<div style="{looks}">{grid}</div>{rest if left else ""}'
        )

    def files(self) -> str:
        """Return the source of each file, the one with the costliest line first."""
        return "".join(piece for file in self._files for piece in self._file(file))

    def _file(self, file: SourceFile) -> Iterator[str]:
        """Yield the elements of a file."""
        note = f'<span style="margin-left:2ch;color:{GREY}">{file.note}</span>' if file.note else ""
        yield f'<div style="margin-top:1em;overflow-wrap:anywhere"><b>{_escaped(file.path)}</b>{note}</div>'
        yield from (self._row(row, file.digits) for row in file.rows)

    def _row(self, row: SourceRow, widest: int) -> str:
        """Return a line of source with its notes in the margin, or the number of lines that are left out."""
        indent, line = widest + 2, row.line
        if row.left_out:
            return f'<div style="color:{GREY};padding-left:{indent}ch">{row.left_out}</div>'
        color, looks, anchor, notes, quiet = "transparent", "", "", "", GREY
        if line is not None:
            quiet = "inherit"  # grey is not legible on the color of the line
            color, anchor = COLORS["red"], f' id="{self._ids[id(line)]}"'
            share = line.sent_nbytes / self._largest if self._largest else 0
            looks = f";background:rgba(225,45,45,{0.06 + 0.12 * share:.2f})"
            margin = f"flex:0 1 44ch;{_WRAPPED};padding-left:{indent + 6}ch;text-indent:-2ch"
            notes = f'<div style="{margin}">{"".join(map(_note, line.notes))}</div>'
        code_looks = f"flex:1 1 56ch;min-width:0;{_WRAPPED};padding-left:{indent}ch;text-indent:-{indent}ch"
        label = f'<span style="color:{quiet}">{str(row.number).rjust(widest)}</span>'
        return (
            f'<div{anchor} style="{_ROW} {color}{looks}">'
            f'<div style="{code_looks}">{label}  {_escaped(row.code)}</div>{notes}</div>'
        )


def _note(note: Note) -> str:
    size, words = _escaped(note.size), _escaped(note.words)
    return f"<div><b>{size}</b>  {words}</div>" if size else f"<div>{words}</div>"


def _sent(line: MarkedLine) -> str:
    if not line.sent_nbytes:
        return "?" if line.has_unknown else ""
    bound = "≤ " if line.is_bound else ""
    return f"{bound}{format_bytes(line.sent_nbytes)}{' + ?' if line.has_unknown else ''}"


def _live(line: MarkedLine) -> str:
    return format_bytes(line.live_nbytes) if line.live_nbytes else ""


def _escaped(text: str) -> str:
    return html.escape(printable(clipped(text)))
