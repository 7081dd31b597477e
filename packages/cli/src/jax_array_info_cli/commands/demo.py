"""``jai-cli demo``: a tour of the functions on real arrays."""

from __future__ import annotations

import os

import click

MAX_DEVICES = 512


@click.command()
@click.option(
    "--devices",
    type=click.IntRange(1, MAX_DEVICES),
    default=8,
    show_default=True,
    help="How many fake CPU devices JAX starts on.",
)
def demo(devices: int) -> None:
    """Show what the functions print: the code that you would write, then its output."""
    from ..fake_devices import fake_device_environment

    try:
        environment = fake_device_environment(os.environ, devices)
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"XLA_FLAGS names a file that cannot be read: {error}") from error
    # JAX reads these when it starts; nothing has imported it yet.
    os.environ.clear()
    os.environ.update(environment)
    from ..tour import show_tour

    show_tour()
