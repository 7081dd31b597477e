"""The page of a running job, on a screen or in a file."""

from __future__ import annotations

from itertools import chain

from rich.console import Console, ConsoleOptions
from rich.segment import Segment, SegmentLines

from jax_array_info_core.facts.pages.blocks import cut
from jax_array_info_core.facts.pages.running import SORTS as SORTS
from jax_array_info_core.facts.pages.running import Sort as Sort
from jax_array_info_core.facts.pages.running import running_page
from jax_array_info_core.reports import TimelineReport

from ..style import ASIDE, LEAST_WIDTH, ForConsole, written
from .render import on_console, planned_rows

_MOST_ROWS = 32
"""Number of devices, and of allocation sites, of a page without a height."""


def running_job(
    report: TimelineReport,
    *,
    width: int,
    height: int | None,
    use_color: bool = False,
    sort: Sort = "bytes",
    keys: str = "",
) -> ForConsole:
    """Return the page of a running job, for a screen of a size.

    Args:
        report: The last minute of a record.
        width: Maximum line length in characters.
        height: Height of the screen in lines. None for a page with at most 32 rows in each list.
        use_color: Whether the console shows colors.
        sort: Order of the allocation sites: the most bytes, the largest change per minute, or the name.
        keys: Last line of a screen.
    """
    blocks = [*running_page(report, sort=sort)]
    if height is None:
        return on_console(cut(blocks, _MOST_ROWS), width=width, use_color=use_color)
    room = max(width, LEAST_WIDTH)
    limits = planned_rows(blocks, height - 1, room)
    shown = [*chain(*(cut([block], most) for block, most in zip(blocks, limits, strict=True)))]

    def make(console: Console, options: ConsoleOptions) -> SegmentLines:
        wide = options.update(width=room)
        above = console.render_lines(on_console(shown, width=room, use_color=use_color), wide, pad=False)
        above = [*above, *[[Segment("")]] * height][: height - 1]
        lines = [*above, *console.render_lines(written(keys, look=ASIDE), wide, pad=False)[:1]]
        return SegmentLines([Segment.adjust_line_length(line, width, pad=False) for line in lines], True)

    return ForConsole(make)
