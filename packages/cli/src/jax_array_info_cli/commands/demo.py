"""``jai-cli demo``: a tour of the functions on real arrays."""

from __future__ import annotations

import os
import sys

import click

from ..output import Output, output_options
from ..simulated_devices import simulated_device_environment, use_simulated_devices
from ..usage import require_at_most, require_fork
from . import Command

MAX_DEVICES = 512


@click.command(
    cls=Command,
    question="What do the panels, tables and pictures look like?",
    examples=(
        "jai-cli demo",
        "jai-cli demo --devices 4",
        "jai-cli demo --devices 2 --processes 2",
    ),
)
@click.option(
    "--devices",
    type=click.IntRange(1, MAX_DEVICES),
    default=8,
    show_default=True,
    help="Number of simulated CPU devices in each process.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_DEVICES),
    default=1,
    show_default=True,
    help="Number of processes. With two or more, the demo shows arrays that span processes.",
)
@output_options
def demo(devices: int, processes: int, output: Output) -> None:
    """Demonstrate the Python functions: show the code of each step, then its output.

    With --format json, svg or html, the code is left out. --format and --output work only
    with one process.
    """
    if processes > 1 and output != Output():
        raise click.UsageError(
            "--format and --output work only with one process. To save this tour, "
            "redirect its output to a file."
        )
    require_at_most(MAX_DEVICES, devices=devices, processes=processes)
    if processes > 1:
        environment = simulated_device_environment(os.environ, devices)
        require_fork()
        from ..launch.program import Job
        from ..launch.supervisor import launch

        argv = ("jax_array_info_cli.tour",)
        sys.exit(launch(Job(argv, is_module=True, processes=processes, quiet=True), environment))
    use_simulated_devices(devices)
    from ..tour import collect_tour, show_tour

    if output.format == "text":
        output.write_text(show_tour)
    else:
        output.show([collect_tour()])
