"""Blocks on a console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel as RichPanel
from rich.text import Text

from jax_array_info_core.pages.blocks import (
    Block,
    Entries,
    Note,
    Panel,
    Picture,
    Rule,
    Sentence,
    Table,
    Verbatim,
)

from ..pictures.of_reports import picture
from ..style import ForConsole
from .lines import LOOKS, Lines, Writing
from .tables import drawn_table


def on_console(blocks: Iterable[Block], *, width: int = 80, use_color: bool = False) -> ForConsole:
    """Return blocks as a renderable, for a console of any encoding.

    Args:
        blocks: The blocks.
        width: Maximum line length in characters.
        use_color: Whether to fill the cells of pictures.
    """
    known = list(blocks)

    def make(console: Console, options: ConsoleOptions) -> RenderableType:
        return Group(*_drawn(known, console, options, min(width, options.max_width), use_color))

    return ForConsole(make)


def titled_code(title: str, code: str, *, width: int) -> ForConsole:
    """Return code below its title."""
    return on_console([Sentence(""), Rule(title), Verbatim(code)], width=width)


def _drawn(
    blocks: Iterable[Block], console: Console, options: ConsoleOptions, width: int, use_color: bool
) -> Iterator[RenderableType]:
    writing = Writing(options.encoding)
    lines = Lines(width, writing)
    for block in blocks:
        if isinstance(block, (Table, Panel, Picture)) and not lines.is_empty:
            yield lines.text()
            lines = Lines(width, writing)
        match block:
            case Sentence():
                lines.write(block)
            case Verbatim():
                lines.write_verbatim(block.text)
            case Rule():
                lines.write_rule(block)
            case Entries():
                lines.write_entries(block)
            case Table():
                yield drawn_table(block, width, writing)
            case Panel():
                yield _panel(block, options.max_width, writing)
            case Picture(of, in_text=True):
                yield picture(of, console, width=width, encoding=options.encoding, use_color=use_color)
    if not lines.is_empty:
        yield lines.text()


def _panel(block: Panel, width: int, writing: Writing) -> RichPanel:
    """Return a box as wide as its text. A title that is too long becomes its first line."""

    def text(note: str | Note) -> Text:
        one = Note(note) if isinstance(note, str) else note
        return Text(writing.safe(one.text), LOOKS[one.look])

    lines = [
        text(line) if isinstance(line, (str, Note)) else Text.assemble(*map(text, line))
        for line in block.lines
    ]
    title = text(Note(block.title, "answer")) if block.title else None
    if title is not None and title.cell_len > width - 6:
        lines.insert(0, title)
        title = None
    return RichPanel(Text("\n").join(lines), title=title, expand=False)
