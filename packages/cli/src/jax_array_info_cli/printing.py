"""How commands print reports to a terminal: as the functions do, several side by side."""

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

GAP = 2
LEAST_WIDTH = 36


def print_report(console: Console, report: Report) -> None:
    """Print a report as its verb does."""
    rendered = render(report, width=console.width, use_color=shows_colors(console))
    console.print(rendered, highlight=False)


def device_tables(report: DevicesReport, *, width: int = 80) -> list[RenderableType]:
    """Return what devices are, then their memory where any tells of it."""
    tables: list[RenderableType] = [devices_table(report)]
    if report.has_statistics:
        tables.append(memory_stats_table(report, width=width))
    return tables


def print_side_by_side(console: Console, plans: Sequence[tuple[ArrayReport, Sequence[ShardReport]]]) -> None:
    """Print for each array its panel, its picture and what some devices hold, beside each other.

    Where the terminal is too narrow for that they stand one below the other.
    """
    width = (console.width - GAP * (len(plans) - 1)) // len(plans)
    beside = len(plans) > 1 and width >= LEAST_WIDTH
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
        for report, parts in plans
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
