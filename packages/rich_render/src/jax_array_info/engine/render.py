"""Rendering of any report, as a Rich renderable, as text, or on a console."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from io import BytesIO, TextIOWrapper
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel as RichPanel
from rich.text import Text

from jax_array_info_core.base.quantities import counted
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import (
    Block,
    Entries,
    Further,
    Limited,
    Listing,
    Note,
    Panel,
    Picture,
    Rule,
    Sentence,
    Table,
    Verbatim,
    cut,
    left_out,
    longest_list,
)
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.facts.reports.array import ArrayReport

from ..style import LEAST_WIDTH, ForConsole, shows_colors
from .lines import LOOKS, Lines, Writing

if TYPE_CHECKING:
    from jax_array_info_core.facts.reports.findings import Syntax
    from jax_array_info_core.reports import Report

_GAP = 2
_LEAST_COLUMN = 36
"""Least width of a column next to others."""
_MOST_LINES, _WIDTH = 40, 80


def render(
    report: Report,
    *,
    width: int = 80,
    use_color: bool = False,
    max_rows: MaxRows = "fit",
    syntax: Syntax = "python",
    **options: Any,
) -> RenderableType:
    """Return a report as a Rich renderable, for a console of this width and any encoding.

    Args:
        report: Any report. A layout is drawn.
        width: Maximum line length in characters. Pictures are at least 20 characters wide.
        use_color: Whether to fill the cells of pictures.
        max_rows: Maximum number of rows of each list; None for all. ``"fit"`` for as many as 40 lines of 80
            characters hold, without pictures.
        syntax: Language of the line that names the option for more rows.
        **options: Further options of the page.

    Raises:
        TypeError: If ``report`` is not a report, or ``max_rows`` not a number, None or ``"fit"``.
        ValueError: If ``max_rows`` is negative.
    """
    blocks = shown_blocks([*page(report, **options)], max_rows, syntax)
    return on_console(blocks, width=max(width, LEAST_WIDTH), use_color=use_color)


def shown_blocks(blocks: Sequence[Listing], max_rows: MaxRows, syntax: Syntax = "python") -> list[Block]:
    """Return the blocks of a page with some rows of each list, and a line about those that are left out."""
    kept = _fitting(blocks) if max_rows == "fit" else blocks
    limits = planned_rows(kept) if max_rows == "fit" else [max_rows] * len(kept)
    shown = [*chain(*(cut([block], most) for block, most in zip(kept, limits, strict=True)))]
    count = sum(left_out([block], most) for block, most in zip(kept, limits, strict=True))
    count += left_out((block for block in blocks if block not in kept), 0)
    return [*shown, *left_out_lines(count, syntax)]


def _fitting(blocks: Sequence[Listing]) -> Sequence[Listing]:
    """Return the blocks of a page by default: some only if all of it fits, and each list begins."""
    always = [block for block in blocks if not isinstance(block, Further)]
    kept = [block for block in blocks if not isinstance(block, Further) or block.is_if_room]
    if len(kept) == len(always):
        return always
    planned = [*zip(kept, planned_rows(kept), strict=True)]
    is_begun = all(
        count >= min(len(block.things), block.first_count)
        for block, count in planned
        if isinstance(block, Limited)
    )
    drawn = chain(*(cut([block], count) for block, count in planned))
    return kept if is_begun and _height(drawn, _WIDTH) < _MOST_LINES else always


def left_out_lines(count: int, syntax: Syntax = "python") -> Iterator[Sentence]:
    """Yield the line about a number of rows that are left out, if there are any."""
    if count:
        option = "--max-rows all" if syntax == "shell" else "max_rows=None"
        rows = counted(count, "row is left out", "rows are left out")
        yield Sentence(f"{rows}: {option} shows all", "aside", hang=0)


def planned_rows(
    blocks: Sequence[Listing], most_lines: int = _MOST_LINES - 1, width: int = _WIDTH
) -> list[int]:
    """Return the numbers of rows of each block with which a page has at most some lines.

    Each block gets a row in turn, findings first, as long as its next one fits. Lists have their
    ``first_count`` rows before tables have any. If the page is longer without any rows, only lists to the end
    of the last finding have one.

    Args:
        blocks: The blocks.
        most_lines: Maximum number of lines. By default, 40 with the line on the rows that are left out.
        width: Maximum line length in characters.
    """
    most = [*map(longest_list, blocks)]
    if not left_out(blocks, 0):
        return most
    last = max((place for place, block in enumerate(blocks) if isinstance(block, Rule)), default=-1)
    lists = [place for place, block in enumerate(blocks) if isinstance(block, Limited)]
    first = {place for place in lists if place < last}
    first.update([place for place in lists if place > last][: last >= 0])

    def turn(step: tuple[int, int]) -> tuple[bool, int, bool, bool]:
        place, count = step
        block = blocks[place]
        is_later = not isinstance(block, Limited) or count > block.first_count
        return is_later, count, place not in first, isinstance(block, Table)

    @cache
    def height(place: int, count: int) -> int:
        return _height(cut([blocks[place]], count), width)

    def height_with(number: int) -> int:
        """Return the lines of the page with the next of the turns."""
        limits = dict.fromkeys(places, 0) | dict(taken + turns[:number])
        return sum(height(*limit) for limit in limits.items())

    places, taken = range(len(blocks)), list[tuple[int, int]]()
    steps = ((place, count) for place in places for count in range(1, min(most[place], most_lines) + 1))
    turns = sorted(steps, key=turn)
    if height_with(0) > most_lines:
        return [int(place in first) for place in places]
    while turns:
        near = turns[:most_lines]  # most of them add a line
        number = bisect_right(range(1, len(near) + 1), most_lines, key=height_with)
        taken += near[:number]
        full = {place for place, _ in near[number : number + 1]}  # only all its rows may still fit
        later = turns[number + len(full) :]
        turns = [(place, count) for place, count in later if place not in full or count == most[place]]
    limits = dict(taken)
    return [limits.get(place, 0) for place in places]


def _height(blocks: Iterable[Block], width: int) -> int:
    """Return the number of lines of blocks, without pictures."""
    drawn = [block for block in blocks if not isinstance(block, Picture)]
    return text_of(on_console(drawn, width=width), width=width).count("\n") + 1 if drawn else 0


def to_text(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return a report as printed text, without a final line break.

    >>> from jax_array_info import planned_report, to_text
    >>> print(to_text(planned_report((16, 16), {"data": 4, "model": 2}, ("data", None))))
    ╭────────────────────────────────────────────────╮
    │ shape: (16, 16)                                │
    │ dtype: float32                                 │
    │ size: 1.0 KiB                                  │
    │ per device: 256.0 B (1/4, 2 replicas)          │
    │ NamedSharding: P('data', None)                 │
    │ axis 0 is sharded: device 0 contains 0:4 (1/4) │
    │                    Total size: 16              │
    │ mesh: data=4, model=2                          │
    │ replicated over: model (2 replicas)            │
    ╰────────────────────────────────────────────────╯

    Args:
        report: Any report. A layout is drawn.
        width: Maximum line length in characters. Pictures are at least 20 characters wide.
        color: Whether to use colors, written as terminal escapes. The cells of pictures are then filled.

    Raises:
        TypeError: If ``report`` is not a report.
    """
    return text_of(render(report, width=width, use_color=color), width=width, color=color)


def text_of(
    renderable: RenderableType, *, width: int = 80, color: bool = False, encoding: str = "utf-8"
) -> str:
    """Return a Rich renderable as text, without a line break at its end."""
    console = Console(
        file=TextIOWrapper(BytesIO(), encoding),
        width=width,
        height=100,  # without a height, Rich assumes 80 columns if TERM=dumb
        force_terminal=color,
        color_system="truecolor" if color else None,
        no_color=not color,
        force_jupyter=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(renderable, highlight=False, crop=False)
    return capture.get().removesuffix("\n")


def print_page(console: Console, renderable: RenderableType) -> None:
    """Print a page. On a terminal that it does not fit with a prompt, its first line follows again."""
    console.print(renderable, crop=False, highlight=False)
    if console.file.isatty() and not console.is_jupyter:  # a console of FORCE_COLOR may write to a pipe
        import shutil  # only terminals need it

        lines = console.render_lines(renderable, pad=False)
        if len(lines) >= shutil.get_terminal_size().lines:
            console.print(
                Text.assemble(*((part.text, part.style or "") for part in lines[0])), highlight=False
            )


def print_columns(
    console: Console, columns: Sequence[Sequence[Report]], max_rows: MaxRows = "fit", **options: Any
) -> None:
    """Print columns of reports side by side, or below each other where the console is too narrow for that.

    Args:
        console: The console.
        columns: The reports. Arrays are drawn.
        max_rows: Maximum number of rows of each list, as for ``render``.
        **options: Further options of the other pages.
    """
    width = (console.width - _GAP * (len(columns) - 1)) // len(columns)
    is_narrow = len(columns) == 1 or width < _LEAST_COLUMN

    def drawn(reports: Sequence[Report]) -> RenderableType:
        pages = (
            page(report, **({"is_drawn": True} if isinstance(report, ArrayReport) else options))
            for report in reports
        )
        blocks = shown_blocks([*chain(*pages)], max_rows, "shell")
        if not console.file.isatty():
            blocks = [
                Verbatim(block.text, is_whole=True)
                if isinstance(block, Sentence) and block.is_searched
                else block
                for block in blocks
            ]
        room = max(console.width if is_narrow else width, LEAST_WIDTH)
        return on_console(blocks, width=room, use_color=shows_colors(console))

    if is_narrow:
        for reports in columns:
            print_page(console, drawn(reports))
        return
    from rich.table import Table as Grid  # only several columns need it

    grid = Grid.grid(padding=(0, _GAP), pad_edge=False)
    for _ in columns:
        grid.add_column(max_width=width)
    grid.add_row(*map(drawn, columns))
    console.print(grid, highlight=False)


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
        is_apart = isinstance(block, (Table, Panel, Picture)) or (
            isinstance(block, Verbatim) and block.is_whole
        )
        if is_apart and not lines.is_empty:
            yield lines.text()
            lines = Lines(width, writing)
        match block:
            case Sentence():
                lines.write(block)
            case Verbatim(text, is_whole=True):
                yield Text("\n".join(map(writing.safe, text.split("\n"))), overflow="ignore")
            case Verbatim():
                lines.write_verbatim(block.text)
            case Rule():
                lines.write_rule(block)
            case Entries():
                lines.write_entries(block)
            case Table():
                from .tables import laid_out  # panels do not need it

                yield laid_out(block, width, writing)
            case Panel():
                yield _panel(block, options.max_width, writing)
            case Picture(report, in_text=True):
                from ..pictures import picture

                yield picture(report, console, width=width, encoding=options.encoding, use_color=use_color)
    if not lines.is_empty:
        yield lines.text()


def _panel(block: Panel, width: int, writing: Writing) -> RichPanel:
    """Return a box as wide as its text. A title that is too long becomes its first line."""

    def text(note: str | Note) -> Text:
        words = Note(note) if isinstance(note, str) else note
        return Text(writing.safe(words.text), LOOKS[words.look])

    lines = [
        text(line) if isinstance(line, (str, Note)) else Text.assemble(*map(text, line))
        for line in block.lines
    ]
    title = text(Note(block.title, "answer")) if block.title else None
    if title is not None and title.cell_len > width - 6:
        lines.insert(0, title)
        title = None
    return RichPanel(Text("\n").join(lines), title=title, expand=False)
