"""Planned arrays side by side, as text: the panel, the picture and the shards of each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table

from jax_array_info.console import shows_colors
from jax_array_info.pictures.text import LEAST_WIDTH as LEAST_PICTURE
from jax_array_info.pictures.text import array_picture
from jax_array_info.render import render
from jax_array_info_core import ArrayReport, ShardReport

Column = tuple[ArrayReport, *tuple[ShardReport, ...]]
"""An array, and what some devices hold of it."""

GAP = 2
LEAST_WIDTH = 36


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
