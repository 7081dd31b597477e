"""What commands print: reports as text, side by side where there are several, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Group
from rich.table import Table

from jax_array_info.consoles import terminal_console
from jax_array_info.memory_tables import devices_table
from jax_array_info.render import render
from jax_array_info_core import ArrayReport, DevicesReport, Report, ShardReport, to_json

GAP = 2
LEAST_WIDTH = 36


def print_json(reports: Sequence[Report]) -> None:
    """Print each report as a line of JSON."""
    for report in reports:
        click.echo(to_json(report))


def print_report(report: Report) -> None:
    """Print a report as its verb does."""
    console = terminal_console()
    console.print(render(report, width=console.width, encoding=console.encoding), highlight=False)


def print_devices(report: DevicesReport) -> None:
    """Print what devices are, then their memory where any tells of it."""
    console = terminal_console()
    console.print(devices_table(report, encoding=console.encoding), highlight=False)
    if any(device.bytes_in_use is not None for device in report.devices):
        print_report(report)


def print_side_by_side(plans: Sequence[tuple[ArrayReport, Sequence[ShardReport]]]) -> None:
    """Print for each array its panel, its picture and what some devices hold, beside each other.

    Where the terminal is too narrow for that they stand one below the other.
    """
    console = terminal_console()
    width = (console.width - GAP * (len(plans) - 1)) // len(plans)
    beside = len(plans) > 1 and width >= LEAST_WIDTH
    if not beside:
        width = console.width
    groups = [
        Group(
            *(
                render(entry, width=width, encoding=console.encoding)
                for entry in (report, report.layout, *parts)
                if entry is not None
            )
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
