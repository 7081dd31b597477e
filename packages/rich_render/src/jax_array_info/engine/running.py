"""The page of a running job, on a screen or in a file."""

from __future__ import annotations

from jax_array_info_core.facts.pages.blocks import cut
from jax_array_info_core.facts.pages.running import SORTS as SORTS
from jax_array_info_core.facts.pages.running import Sort as Sort
from jax_array_info_core.facts.pages.running import running_page
from jax_array_info_core.reports import TimelineReport

from ..style import ForConsole
from .render import on_console, on_screen

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
    return on_screen(blocks, keys, width=width, height=height, use_color=use_color)
