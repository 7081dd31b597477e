"""Blocks of a page: what a report says, without a console, a width, an encoding or a color.

They are named tuples: each call that prints imports them all, and a dataclass takes four times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ...base.quantities import counted
from .folds import check_max_rows, split_rows

if TYPE_CHECKING:
    from ..reports import Report

TIMES, AT_MOST, CHECK, SKIPPED_ROWS, SKIPPED_COLUMNS, USED, REACHED, FREE, BECOMES = map(
    chr, range(0xFDD0, 0xFDD9)
)
"""Marks: ``×``, ``≤``, ``✔``, ``⋮``, ``⋯``, the parts of a bar, and ``→``. No printable text has these
characters; each renderer writes its own."""

Look = Literal["", "answer", "aside", "warning", "alarm", "length", "sharded", "varying", "punctuation"]
"""What a text is, for its style. An alarm is an answer that warns; the last four are parts of a shape."""

Kind = Literal["words", "number", "path", "text", "names", "centered"]
"""What the cells of a column are. Numbers are aligned right. Paths are broken between keys, texts between
words, names between keys, attributes and words; others only where there is no other way."""


class Note(NamedTuple):
    """A text with a look."""

    text: str
    look: Look = ""
    stacked: str | None = None
    """Text where its cell is stacked below another one, if it differs."""
    shorter: Sequence[str] = ()
    """Texts in its place where there is less room, from long to short."""
    kind: Kind | None = None
    """What it is, if it is not what its column is, such as the words of a sum below paths."""


Cell: TypeAlias = "str | Note | Sequence[str | Note]"
"""The lines of a cell."""
Row: TypeAlias = "Mapping[str, Cell]"
"""Cells by the names of their columns; a column may have none."""
Grouping: TypeAlias = "Sequence[Sequence[str]]"
"""The columns of a table: names of those that are stacked in each. Names without content are left out."""


class Sentence(NamedTuple):
    """A text that is wrapped to the width."""

    text: str
    look: Look = ""
    indent: int = 0
    """Spaces before each line."""
    hang: int = 2
    """Further spaces before the lines after the first."""
    end: str = ""
    """Its end, which stands on a line of its own if the whole is longer than a line."""
    is_searched: bool = False
    """Whether it stays one line in a file or a pipe, where programs look for its words."""


class Verbatim(NamedTuple):
    """Lines of code or of output, with their indentation and their blank lines."""

    text: str
    is_whole: bool = False
    """Whether lines that are longer than the width stay whole, to be copied."""


class Rule(NamedTuple):
    """A horizontal line with a title."""

    title: str
    end: str = ""
    """Text at its right end, where there is room."""


class Entries(NamedTuple):
    """A list: the bytes, the path and any number of facts of each entry; each may be empty.

    An entry is one line if it fits; else its facts are below its path.
    """

    rows: Sequence[Sequence[str]]
    in_columns: bool = False
    """Whether the facts are aligned, where the widest entry fits."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: Kind = "words"
    before: str = ""
    """Text before a cell that is stacked below another one; its further lines are indented instead."""
    after: str = ""
    """Text after such a cell."""
    head: str = ""
    """Head of the column, if it differs from its name."""
    look: Look = ""
    is_kept: bool = False
    """Whether it is shown without content."""
    is_optional: bool = False
    """Whether it is shown only where no cell of another column is broken for it."""
    replaces: Sequence[str] = ()
    """Names of the columns of a wider table that say the same."""
    meaning: str = ""
    """What its cells are, for tooltips and the reference; empty if its head says it."""

    @property
    def title(self) -> str:
        """Head of the column."""
        return self.head or self.name


class Branch(NamedTuple):
    """A row of a table that a page can fold: a leaf, or a prefix of paths with the sums of its leaves."""

    row: Row
    below: Sequence[Branch] = ()
    """Everything below a prefix, whose names in the first column are relative to it."""


_T = TypeVar("_T")
_S = TypeVar("_S")


class Limited(NamedTuple, Generic[_T, _S]):
    """Rows or blocks of things; a page may show the first ones only."""

    things: Sequence[_T]
    show: Callable[[Sequence[_T]], Iterable[_S]]
    """Function that returns the rows of the first things."""
    rest: Callable[[Sequence[_T]], Iterable[_S]]
    """Function that returns the rows for the others."""
    most: int | None = None
    """Maximum number that is shown, where a table has all."""
    is_apart: bool = False
    """Whether the row for the others is a section of its own."""
    largest: Callable[[], Sequence[_T]] | None = None
    """Function that returns the largest things first, for where not all are shown."""
    is_whole: bool = False
    """Whether nothing stands for the others, either, if none is shown: the line above has their sum."""
    first_count: int = 2
    """Number of things that a page shows before the first row of a table, and more of other lists."""

    def split(self, most: int | None) -> tuple[Sequence[_T], Sequence[_T]]:
        """Return the first things, and the others."""
        limit = min((limit for limit in (most, self.most) if limit is not None), default=None)
        are_all_shown = limit is None or limit >= len(self.things)
        return split_rows(self.things if are_all_shown or self.largest is None else self.largest(), limit)

    def first(self, most: int | None) -> tuple[list[_S], list[_S]]:
        """Return the rows of the first things, and those for the others."""
        shown, others = self.split(most)
        is_told = others and (shown or not self.is_whole)
        return [*self.show(shown)], [*self.rest(others)] if is_told else []


Section: TypeAlias = "Sequence[Row] | Limited[Any, Row]"


class Table(NamedTuple):
    """Rows of cells. Columns without content are left out."""

    title: str
    columns: Sequence[Column]
    sections: Sequence[Section]
    """Rows, in parts with a line between them; empty parts are left out."""
    groupings: Sequence[Grouping] = ()
    """Which columns share a cell, from the widest table to the narrowest; by default, none do."""
    caption: str = ""
    subtitle: str = ""
    """Second line of the title."""
    breaks: Literal["paths", "words", "first"] = "paths"
    """What is broken before the next grouping is tried: paths; also words, if paths are not enough; only the
    paths of the first column."""
    least_width: int = 0
    """Width of a page below which the first grouping is left out."""
    joins_heads: bool = False
    """Whether the head of a column names all that are stacked in it."""
    is_compact: bool = False
    """Whether cells that are stacked are not indented; those below a path share a line."""
    tree: Callable[[], Sequence[Branch]] | None = None
    """Function that returns all rows as a tree, for pages that fold; None if the rows are no tree."""

    @property
    def parts(self) -> list[Sequence[Row]]:
        """Rows of each section, all of them."""
        return [
            [*section.first(None)[0]] if isinstance(section, Limited) else section
            for section in self.sections
        ]


class Panel(NamedTuple):
    """Lines in a box, with a title."""

    title: str
    lines: Sequence[str | Note | Sequence[Note]]
    """Lines; one in several looks is a sequence."""


class Picture(NamedTuple):
    """The drawing of a report, or of its layout."""

    of: Report
    in_text: bool = True
    """Whether a console shows it, too."""


class Source(NamedTuple):
    """The user's source with notes of a report in its margin, which pages with links show."""

    of: Report


class Further(NamedTuple):
    """Blocks that a page has only where it is asked for a number of rows, or for all: not by default."""

    blocks: Sequence[Listing]
    is_if_room: bool = False
    """Whether a page has them by default, too, if its lists begin all the same."""


Block: TypeAlias = Sentence | Verbatim | Rule | Entries | Table | Panel | Picture | Source
Listing: TypeAlias = "Block | Limited[Any, Block] | Further"
"""A block, a list whose first things a page may show alone, or further blocks."""


def said(lines: Iterable[str], look: Look = "", **form: Any) -> Iterator[Sentence]:
    """Yield lines as sentences of one form."""
    return (Sentence(line, look, **form) for line in lines)


def limited(
    rows: Sequence[_T],
    row: Callable[[_T], _S],
    remainder: Callable[[Sequence[_T]], _S],
    *,
    is_apart: bool = False,
    size: Callable[[_T], int] | None = None,
) -> Limited[_T, _S]:
    """Return rows, or blocks, of one thing each.

    Args:
        rows: What the rows are about.
        row: Function that returns a row.
        remainder: Function that returns the row for others.
        is_apart: Whether that row is a section of its own.
        size: Function by which the largest come first, where not all are shown.
    """
    largest = None if size is None else cache(lambda: sorted(rows, key=size, reverse=True))
    return Limited(
        rows,
        lambda shown: map(row, shown),
        lambda others: [remainder(others)],
        is_apart=is_apart,
        largest=largest,
    )


def listed(
    things: Sequence[_T],
    entry: Callable[[_T], Sequence[str]],
    remainder: Callable[[Sequence[_T]], str],
    *,
    first: int = 2,
) -> Limited[_T, Block]:
    """Return a list of things, and a line for others: ``and 3 more, 1.0 MiB``.

    Args:
        things: What the entries are about.
        entry: Function that returns an entry.
        remainder: Function that returns the words on the others.
        first: Number of entries that a page shows before the first row of a table.
    """
    return Limited(
        things,
        lambda shown: [Entries([*map(entry, shown)])] if shown else [],
        lambda hidden: [Sentence(f"and {remainder(hidden)}", indent=2)],
        is_whole=True,
        first_count=first,
    )


def cut(blocks: Iterable[Listing], most: int | None) -> Iterator[Block]:
    """Yield blocks with at most a number of things in each list. Tables without any are left out.

    Args:
        blocks: The blocks.
        most: Maximum number of things; None for all.

    Raises:
        TypeError: If ``most`` is neither an integer nor None.
        ValueError: If ``most`` is negative.
    """
    check_max_rows(most)
    for block in blocks:
        if isinstance(block, Limited):
            yield from chain(*block.first(most))
        elif isinstance(block, Further):
            yield from cut(block.blocks, most)
        elif isinstance(block, Table):
            sections = [_parts(section, most) for section in block.sections]
            if any(shown for shown, *_ in sections):
                yield block._replace(sections=[*chain(*sections)])
        else:
            yield block


def _parts(section: Section, most: int | None) -> Sequence[Sequence[Row]]:
    """Return the rows of a section, in parts with a line between them."""
    if not isinstance(section, Limited):
        return [section]
    shown, others = section.first(most)
    return [shown, others] if section.is_apart or not shown else [[*shown, *others]]


def left_out(blocks: Iterable[Listing], most: int | None) -> int:
    """Return the number of things that are not shown, as far as no table has them."""
    lists = (part for block in blocks for part in _lists(block) if part.most is None)
    return sum(len(part.things) - len(part.things[:most]) for part in lists)


def longest_list(block: Listing) -> int:
    """Return the largest number of things that a list of a block may show."""
    return max((len(part.things[: part.most]) for part in _lists(block)), default=0)


def _lists(block: Listing) -> Iterator[Limited[Any, Any]]:
    if isinstance(block, Further):
        return chain(*map(_lists, block.blocks))
    parts = block.sections if isinstance(block, Table) else [block]
    return (part for part in parts if isinstance(part, Limited))


def counted_path(path: str, count: int) -> str:
    """Return a path with the number of things that it stands for: ``layers/0-3/w ×4``."""
    return (path or "(root)") + ("" if count == 1 else f" {TIMES}{count}")


def more(count: int, noun: str = "", nouns: str = "") -> str:
    """Return the number of things that are left out: ``3 more``, ``1 more leaf``."""
    return counted(count, f"more {noun}".rstrip(), f"more {nouns}".rstrip())


def some(texts: Sequence[str], most: int) -> str:
    """Return the first of some texts, and the number of the others: ``a, b and 3 more``."""
    tail = f" and {more(len(texts) - most)}" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{tail}"


def number(count: int, noun: str) -> Note:
    """Return a number, with its noun where its cell is stacked: ``3``, and ``3 arrays``."""
    return Note(str(count), stacked=counted(count, noun, f"{noun}s"))
