"""``jai-cli demo``: a tour of the functions on real arrays."""

from __future__ import annotations

import sys

import click

from ..fake_devices import environment_or_refusal, use_fake_devices
from ..output import Output, output_options
from ..usage import require_at_most, require_fork
from .help import Command

MAX_DEVICES = 512


@click.command(
    cls=Command,
    question="What do the functions print? A tour, code and output.",
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
    help="How many fake CPU devices JAX starts on, in each process.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_DEVICES),
    default=1,
    show_default=True,
    help="With several, the tour is that of an array which spans them.",
)
@output_options
def demo(devices: int, processes: int, output: Output) -> None:
    """Show what the functions print: the code that you would write, then its output.

    In JSON, SVG and HTML there are the reports alone.
    """
    if processes > 1 and output != Output():
        raise click.UsageError(
            "--format and --output are for the tour of one process: redirect what is printed"
        )
    require_at_most(MAX_DEVICES, devices=devices, processes=processes)
    if processes > 1:
        environment = environment_or_refusal(devices)
        require_fork()
        from ..launch.job import Job
        from ..launch.launcher import launch

        words = ("jax_array_info_cli.tour.processes",)
        sys.exit(launch(Job(words, is_module=True, processes=processes, quiet=True), environment))
    use_fake_devices(devices)
    from ..tour.cells import collect_tour, show_tour

    if output.format == "text":
        output.write_text(show_tour)
    else:
        output.show([collect_tour()])
