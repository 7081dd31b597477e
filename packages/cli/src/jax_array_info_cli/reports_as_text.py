"""Text output of reports: stacked, side by side, or as several tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table

from jax_array_info.console import shows_colors
from jax_array_info.pictures.text import LEAST_WIDTH as LEAST_PICTURE
from jax_array_info.pictures.text import array_picture
from jax_array_info.render import render
from jax_array_info.tables.devices import devices_table, memory_stats_table
from jax_array_info_core import ArrayReport, DevicesReport, Report, ShardReport

Column = tuple[ArrayReport, *tuple[ShardReport, ...]]
"""An array and the shards of some devices."""

GAP = 2
LEAST_WIDTH = 36


def print_reports(console: Console, reports: Sequence[Report]) -> None:
    """Print reports, each with its own renderer."""
    colors = shows_colors(console)
    for report in reports:
        console.print(render(report, width=console.width, use_color=colors), highlight=False)


def device_tables(report: DevicesReport, *, width: int = 80) -> list[RenderableType]:
    """Return the table of devices, and a table of device memory if any device reports it."""
    memory = [memory_stats_table(report, width=width)] if report.has_statistics else []
    return [devices_table(report), *memory]


def print_side_by_side(console: Console, columns: Sequence[Column]) -> None:
    """Print a column per array: its panel, its picture and the shards of some devices.

    If the terminal is too narrow, the columns are stacked.
    """
    width = (console.width - GAP * (len(columns) - 1)) // len(columns)
    side_by_side = len(columns) > 1 and width >= LEAST_WIDTH
    if not side_by_side:
        width = console.width
    colors = shows_colors(console)
    groups = [
        Group(
            render(report, width=width),
            array_picture(
                report,
                max_width=max(width, LEAST_PICTURE),
                encoding=console.encoding,
                use_color=colors,
            ),
            *(render(part, width=width) for part in parts),
        )
        for report, *parts in columns
    ]
    if side_by_side:
        grid = Table.grid(padding=(0, GAP), pad_edge=False)
        for _ in groups:
            grid.add_column(max_width=width)
        grid.add_row(*groups)
        console.print(grid, highlight=False)
    else:
        for group in groups:
            console.print(group, highlight=False)
