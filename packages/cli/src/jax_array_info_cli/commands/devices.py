"""``jai-cli devices``: the devices that JAX sees, and their memory."""

from __future__ import annotations

import click

from ..reporting import Answer, report_command
from ..simulated_devices import MAX_DEVICES, require_jax, use_simulated_devices


@report_command(
    "jai-cli devices",
    "jai-cli devices --devices 4",
    "jai-cli devices --devices 4 --format json",
)
@click.option(
    "--devices",
    "count",
    type=click.IntRange(1, MAX_DEVICES),
    help="Use this many simulated CPU devices instead of the real ones.",
)
def devices(count: int | None) -> Answer:
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
    return Answer(report, options={"kinds": True})
