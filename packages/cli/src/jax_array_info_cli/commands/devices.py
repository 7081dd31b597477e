"""``jai-cli devices``: the devices that JAX sees, and their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..output import Output, output_options
from ..reporting import Command
from ..simulated_devices import require_jax, use_simulated_devices

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from jax_array_info_core.reports import DevicesReport

MAX_DEVICES = 2048


@click.command(
    cls=Command,
    question="Which devices does JAX see, and how much of their memory is in use?",
    examples=(
        "jai-cli devices",
        "jai-cli devices --devices 4",
        "jai-cli devices --devices 4 --format json",
    ),
)
@click.option(
    "--devices",
    "count",
    type=click.IntRange(1, MAX_DEVICES),
    help="Use this many simulated CPU devices instead of the real ones.",
)
@output_options
def devices(count: int | None, output: Output) -> None:
    """Show the devices that JAX sees, with their memory kinds and memory in use.

    The command starts JAX, which may preallocate accelerator memory. JAX_PLATFORMS selects the platform, and
    XLA_PYTHON_CLIENT_PREALLOCATE=false turns preallocation off.
    """
    if count is None:
        require_jax()
    else:
        use_simulated_devices(count)
    from jax_array_info_core import devices_report

    try:
        report = devices_report()
    except RuntimeError as error:
        # No backend could be started.
        raise click.ClickException(str(error).partition("\n")[0]) from error

    def print_text(console: Console) -> None:
        for table in device_tables(report, width=console.width):
            console.print(table, highlight=False)

    output.show([[report]], print_text, lambda: [device_tables(report)])


def device_tables(report: DevicesReport, *, width: int = 80) -> list[RenderableType]:
    """Return the table of devices, and a table of device memory if any device reports it."""
    from jax_array_info.tables.devices import devices_table, memory_stats_table

    memory = [memory_stats_table(report, width=width)] if report.has_statistics else []
    return [devices_table(report), *memory]
