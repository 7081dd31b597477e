"""Reports as commands print them: one below the other, side by side, or as several tables."""

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
"""An array, and what some devices hold of it."""

GAP = 2
LEAST_WIDTH = 36


def print_reports(console: Console, reports: Sequence[Report]) -> None:
    """Print reports, each as its verb does."""
    colors = shows_colors(console)
    for report in reports:
        console.print(render(report, width=console.width, use_color=colors), highlight=False)


def device_tables(report: DevicesReport, *, width: int = 80) -> list[RenderableType]:
    """Return the table of devices, then that of their memory where any reports it."""
    memory = [memory_stats_table(report, width=width)] if report.has_statistics else []
    return [devices_table(report), *memory]


def print_side_by_side(console: Console, columns: Sequence[Column]) -> None:
    """Print for each array its panel, its picture and what some devices hold, beside each other.

    Where the terminal is too narrow for that they stand one below the other.
    """
    width = (console.width - GAP * (len(columns) - 1)) // len(columns)
    beside = len(columns) > 1 and width >= LEAST_WIDTH
    if not beside:
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
    if beside:
        grid = Table.grid(padding=(0, GAP), pad_edge=False)
        for _ in groups:
            grid.add_column(max_width=width)
        grid.add_row(*groups)
        console.print(grid, highlight=False)
    else:
        for group in groups:
            console.print(group, highlight=False)
