"""``jai-cli profile``: the contents of a device memory profile."""

from __future__ import annotations

import click

from ..line_options import line_options
from ..output import Output, output_options
from ..usage import Refusal
from .help import Command


@click.command(
    cls=Command,
    question="What does this device memory profile contain?",
    examples=(
        "python -c 'import jax; jax.profiler.save_device_memory_profile(\"memory.prof\")'",
        "jai-cli profile memory.prof",
        "jai-cli profile - < memory.prof",
        "jai-cli profile memory.prof --format json",
    ),
)
@click.argument("source", metavar="PROFILE", type=click.Path(allow_dash=True))
@line_options
@output_options
def profile(source: str, output: Output) -> None:
    """Show the contents of a device memory profile, by device and source line.

    PROFILE is a file written by jax.profiler.save_device_memory_profile, or - for standard input. JAX is
    not imported, so no backend starts.
    """
    from jax_array_info_core import ProfileError, memory_profile_report
    from jax_array_info_core.profiles.pprof import MAX_NBYTES
    from jax_array_info_core.text import printable

    try:
        with click.open_file(source, "rb") as file:
            # Files such as /dev/zero have no end: read one byte more than the limit at most.
            report = memory_profile_report(file.read(MAX_NBYTES + 1))
    except OSError as error:
        raise Refusal(f"{printable(source)}: {error.strerror}") from error
    except ProfileError as error:
        raise Refusal(f"{'standard input' if source == '-' else printable(source)}: {error}") from error
    output.show([[report]])
