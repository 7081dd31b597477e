"""Layout of tables with paths: full width, stacked rows or pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rich.cells import cell_len
from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from jax_array_info_core.text import clipped, printable

from .. import style
from ..pictures.fitting import fit, path_lines, path_pieces
from ..style import wrapped
from .tree_words import Line

_GAP = "  "


class Page:
    """Lines of untrusted text, wrapped to a width.

    Args:
        width: Maximum line length in characters.
        encoding: Encoding of the console. Characters that it lacks are escaped.
    """

    def __init__(self, width: int, encoding: str) -> None:
        self.width = width
        self.encoding = encoding
        self.marks = style.marks(encoding)
        self._lines: list[Text] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self._lines

    def write(self, words: str, *, indent: int = 0, look: str = "", hang: int = 2) -> None:
        """Add a text. Its lines after the first are indented by ``hang`` more characters."""
        words = self.safe(words)
        first = min(indent, self.width // 2)
        start, *more = wrapped(words, max(1, self.width - first))
        self._lines.append(Text(" " * first + start, look))
        if more:
            hang = hang if self.width - first > 4 * hang else 0
            self._write_below([words[len(start) :].strip()], first + hang, look)

    def write_rule(self, title: str) -> None:
        """Add a horizontal line with a title."""
        line, room = self.marks.horizontal, self.width - len(title) - 4
        if room < 0:
            self.write(title, look=f"bold {style.WARNING}")
        else:
            self._lines.append(Text(f"{line * 2} {title} {line * room}", f"bold {style.WARNING}"))

    def write_entry(self, before: str, path: str, *facts: str, note: str = "", indent: int = 2) -> None:
        """Add an entry of a list: in one line if it fits, else with the facts below the path.

        Args:
            before: Text before the path, such as its aligned bytes; may be empty.
            path: Path that is wrapped only after ``/`` and inside long keys; may be empty.
            facts: Texts after the path, broken only where they do not fit; empty ones are left out.
            note: Text in a line below, in the style of warnings.
            indent: Number of spaces before the first line.
        """
        margin = " " * min(indent, self.width // 2)
        first = margin + (self.safe(before) + _GAP if before else "")
        path, *words = [self.safe(fact) for fact in (path, *facts)]
        words = list(filter(None, words))
        whole = _GAP.join(filter(None, (path, *words)))
        below = min(len(first) + len(_GAP), self.width // 3)
        room = max(1, self.width - len(first))
        if cell_len(whole) <= room:
            self._lines.append(Text(first + whole))
        elif path:
            start, *rest = path_lines(path, room)
            self._lines.append(Text(first + start))
            self._lines += [Text(" " * len(first) + piece) for piece in rest]
            self._write_below(words, below)
        else:
            start = wrapped(whole, room)[0]
            self._lines.append(Text(first + start))
            self._write_below([whole[len(start) :].strip()], below)
        self._write_below([self.safe(note)], below, style.WARNING)

    def _write_below(self, facts: Sequence[str], indent: int, look: str = "") -> None:
        """Add facts, as many in a line as fit."""
        room = max(1, self.width - indent)
        lines: list[str] = []
        for fact in filter(None, facts):
            if lines and cell_len(lines[-1] + _GAP + fact) <= room:
                lines[-1] += _GAP + fact
            else:
                lines += wrapped(fact, room)
        self._lines += [Text(" " * indent + line, look) for line in lines]

    def safe(self, text: str) -> str:
        """Return untrusted text for this console, without its middle if it is very long."""
        return printable(clipped(text), self.encoding)

    def text(self) -> Text:
        """Return the page."""
        return Text("\n", overflow="fold").join(self._lines)


INDENT = "  "
"""Spaces before the lines of a cell below its first one."""
_LEAST_PATH = 22
"""Width to which paths shrink before columns are stacked."""
_LEAST_COLUMN = 10
"""Width to which columns shrink before words are broken."""

Cell = Sequence[Line]
"""The lines of a cell of a table."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a table may show: the columns that it then has, and their cells."""

    heads: Sequence[str]
    """Head of each column."""

    alignments: Sequence[JustifyMethod]
    """Alignment of each column."""

    sections: Sequence[Sequence[Sequence[Cell]]]
    """Rows of cells, in parts of the table with a line between them."""

    left_out: Sequence[str] = ()
    """Heads of the columns that a wider table has, and that no cell of this one contains."""

    @classmethod
    def of(
        cls,
        heads: Sequence[str],
        alignments: Sequence[JustifyMethod],
        sections: Iterable[Sequence[Sequence[Cell]]],
        encoding: str,
        left_out: Sequence[str] = (),
    ) -> Content:
        """Return a content whose lines are printable in an encoding."""

        def safe(lines: Cell) -> Cell:
            return [replace(line, text=printable(clipped(line.text), encoding)) for line in lines]

        cells = [[[safe(cell) for cell in row] for row in section] for section in sections if section]
        return cls(heads, alignments, cells, left_out)

    def paths(self) -> Iterator[str]:
        """Yield the paths in the first column."""
        for section in self.sections:
            for row in section:
                yield from (line.text for line in row[0] if line.keys)

    def widths(self, measure: Callable[[Line], int]) -> list[int]:
        """Return the widths of the columns that hold every line, by a measure of lines."""
        widths = [measure(Line(head)) for head in self.heads]
        for section in self.sections:
            for row in section:
                for number, cell in enumerate(row):
                    widths[number] = max(widths[number], *map(measure, cell), 0)
        return widths


def alignment(is_number: bool) -> JustifyMethod:
    """Return the alignment of a column of numbers or of words."""
    return "right" if is_number else "left"


def unbroken(content: Content, wanted: Sequence[int], width: int) -> list[int]:
    """Return the widths that the columns need if only paths are broken."""
    return content.widths(_unbroken_width)


def _unbroken_width(line: Line) -> int:
    """Return the width that a line needs: a path that is broken after ``/``, any other line as a whole."""
    if line.keys is None:
        return cell_len(line.text)
    longest = max(map(cell_len, line.keys(line.text)), default=0)
    return min(cell_len(line.text), max(longest + len(INDENT), _LEAST_PATH))


def _wrapped_width(line: Line) -> int:
    """Return the width that a line needs if it is wrapped, but neither keys of paths nor words are broken."""
    if line.keys:
        return _unbroken_width(line)
    longest = max(map(cell_len, line.text.split()), default=0)
    return min(cell_len(line.text), max(_LEAST_COLUMN, min(longest + len(INDENT), _LEAST_PATH)))


def wrapped_widths(content: Content, wanted: Sequence[int], width: int) -> list[int]:
    """Return the widths that the columns need if only paths are broken; where that is too much, also texts.

    Neither keys nor words are broken.
    """
    least = unbroken(content, wanted, width)
    return least if sum(least) + 3 * len(least) < width else content.widths(_wrapped_width)


def fitted_table(
    title: RenderableType,
    contents: Iterable[Content],
    width: int,
    *,
    needed: Callable[[Content, Sequence[int], int], Sequence[int]] = unbroken,
    caption: str | None = None,
) -> Table:
    """Return the table with the first content that fits; with the last one, broken up, if none fits.

    A line below the table names the columns that its content leaves out.

    Args:
        title: Title above the table.
        contents: What the table may show, from the widest to the narrowest.
        width: Maximum line length in characters.
        needed: Function from a content, the widths that it wants and that of the table, to the least widths.
        caption: Text below the table.
    """
    for content in contents:
        wanted = content.widths(_line_width)
        least = needed(content, wanted, width)
        room = max(width - 3 * len(wanted) - 1, len(wanted))
        widths = fit(wanted, least, room)
        if widths is not None:
            break
    else:
        narrow = [min(size, _LEAST_COLUMN) for size in least]
        for least in (content.widths(_wrapped_width), narrow, [1] * len(wanted)):
            widths = widths or fit(wanted, least, room)
        widths = widths or [1] * len(wanted)
    for place, size in enumerate(wanted):  # the rest of the room, a character each
        widths[place] += widths[place] < size and sum(widths) < room
    missing = f"not shown at this width: {', '.join(content.left_out)}" if content.left_out else None
    notes = "\n".join(filter(None, (missing, caption))) or None
    table = Table(title=cast(str, title), caption=notes)  # Rich accepts any renderable as a title
    for head, alignment, size in zip(content.heads, content.alignments, widths, strict=True):
        table.add_column(head, justify=alignment, width=size, overflow="fold")
    for section in content.sections:
        table.add_row(*map(_joined_text, _joined(section, widths)))
        table.add_section()
    return table


def _line_width(line: Line) -> int:
    return cell_len(line.text)


def _joined(rows: Sequence[Sequence[Cell]], widths: Sequence[int]) -> list[list[Line]]:
    """Return several rows as one, with their lines wrapped and below each other: Rich takes far less time."""
    joined: list[list[Line]] = [[] for _ in widths]
    for row in rows:
        cells = [
            [piece for line in cell for piece in _wrapped(line, width)]
            for cell, width in zip(row, widths, strict=True)
        ]
        height = max(map(len, cells))
        for lines, cell in zip(joined, cells, strict=True):
            lines += [*cell, *[Line("")] * (height - len(cell))]
    return joined


def _joined_text(lines: Sequence[Line]) -> Text:
    return Text("\n", overflow="fold").join([Text(line.text, line.look) for line in lines])


def _wrapped(line: Line, width: int) -> list[Line]:
    """Return a line in pieces with the same indent."""
    if cell_len(line.text) <= width:
        return [line]
    words = line.text.strip()
    indent = " " * min(len(line.text) - len(line.text.lstrip()), width // 2)
    room = width - len(indent)
    pieces = path_lines(words, room, line.keys) if line.keys else wrapped(words, room)
    return [replace(line, text=indent + piece) for piece in pieces]


def _word_pieces(text: str) -> Sequence[str]:
    """Return the words of a text, each with the space after it."""
    return _WORD.findall(text)


_WORD = re.compile(r"\s*\S+\s?")

Grouping = Sequence[Sequence[str]]
"""The columns of a table: names of those that are stacked in each, the first of them its head."""


@dataclass(frozen=True, slots=True)
class StackedColumn:
    """A column of a table, or a line in the cells of another column."""

    name: str
    """Head of the column."""

    cells: Sequence[str]
    """Text for each row; may be empty."""

    before: str = ""
    """Text before a cell that is stacked below another one."""

    is_number: bool = False
    """Whether to align the column right."""

    is_path: bool = False
    """Whether the cells are paths, which break only after ``/`` and inside long keys."""

    is_text: bool = False
    """Whether the cells are texts, which break between words."""

    look: str = ""
    """Style of the cells."""

    short_for: Sequence[str] = ()
    """Names of the columns of a wider table that it replaces."""


def stacked_table(
    title: RenderableType,
    columns: Sequence[StackedColumn],
    groupings: Sequence[Grouping],
    *,
    width: int,
    encoding: str,
    rest: Mapping[str, str] | None = None,
    heads: Mapping[str, str] | None = None,
) -> Table:
    """Return the table with the first grouping of its columns that fits; with the last one if none fits.

    Columns without content are left out. A line below the table names those that only the first grouping has.

    Args:
        title: Title above the table.
        columns: The columns, with as many cells each.
        groupings: Which columns are stacked, from the widest table to the narrowest.
        width: Maximum line length in characters.
        encoding: Encoding of the console.
        rest: Cells of a last row by the names of their columns; None for no such row.
        heads: Heads of columns that differ from their names.
    """
    by_name = {column.name: column for column in columns if any(column.cells)}
    widest = {name for names in groupings[0] for name in names}

    def contents() -> Iterator[Content]:
        for grouping in groupings:
            groups = [[by_name[name] for name in names if name in by_name] for names in grouping]
            groups = [group for group in groups if group]
            sections = [_rows(groups)]
            if rest is not None:
                sections.append([[[Line(rest.get(group[0].name, ""))] for group in groups]])
            names = [group[0].name for group in groups]
            titles = [(heads or {}).get(name, name) for name in names]
            alignments = [alignment(group[0].is_number) for group in groups]
            shown = {name for group in groups for one in group for name in (one.name, *one.short_for)}
            left_out = [name for name in by_name if name in widest and name not in shown]
            yield Content.of(titles, alignments, sections, encoding, left_out)

    return fitted_table(title, contents(), width)


def _rows(groups: Sequence[Sequence[StackedColumn]]) -> list[list[Cell]]:
    """Return the lines of each cell of each row."""
    count = len(groups[0][0].cells)
    return [[list(_cell(group, number)) for group in groups] for number in range(count)]


def _cell(group: Sequence[StackedColumn], number: int) -> Iterator[Line]:
    """Yield the lines of a cell: those below the first are indented, unless the column is of numbers."""
    indent = "" if group[0].is_number else INDENT
    for place, column in enumerate(group):
        words = column.cells[number]
        keys = path_pieces if column.is_path else _word_pieces if column.is_text else None
        if place == 0:
            yield Line(words, column.look, keys)
        elif words:
            yield Line(indent + clipped(column.before + words), column.look, keys)
