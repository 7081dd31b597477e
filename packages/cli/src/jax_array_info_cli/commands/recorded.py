"""``jai-cli log`` and ``jai-cli profile``: the files that a finished run has left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import click

from jax_array_info_core.text import printable

from ..output import Output, ignore_codes_option, line_options, output_options
from ..usage import Problems, Refusal, refuse_reports
from . import Command


@click.command(
    cls=Command,
    question="What ran out of memory in this run, what was fully replicated, which donations failed?",
    examples=(
        "echo 'Some donated buffers were not usable: float32[8,64].' > train.log",
        "jai-cli log train.log --mesh x=4,y=2",
        "jai-cli log - < train.log",
        "jai-cli log train.log --format json",
    ),
)
@click.argument("source", metavar="LOG", type=click.Path(allow_dash=True))
@click.option("--mesh", help="Mesh of the run, such as x=4,y=2, to print partition specs.")
@ignore_codes_option
@output_options
def log(source: str, mesh: str | None, ignore_codes: tuple[str, ...], output: Output) -> None:
    """List the findings in the log of a finished run: out of memory, full replication, unused donations.

    LOG is a file, or - for standard input. For a program that does not fit a device, XLA's largest buffers
    are listed with their lines; for an allocation that failed, the requested and the free bytes. XLA warns of
    an involuntary full rematerialization if it has no direct way from one sharding to another: each device
    then holds the whole array for a while. JAX warns of donated buffers that no output can reuse. Equal
    errors and warnings are listed once, with their count.

    Logs of any size are read in bounded memory. JAX is not imported, so no backend starts.
    """
    output.require_place()
    from jax_array_info_core import log_report
    from jax_array_info_core.errors import SpecError
    from jax_array_info_core.layouts import parse_mesh

    problems = Problems()
    sizes = None if mesh is None else problems.catch("--mesh", parse_mesh, mesh)
    problems.refuse()
    with _opened(source, "log") as file:
        try:
            report = log_report(file, mesh=sizes, ignore_codes=ignore_codes)
        except SpecError as error:
            raise Refusal(f"--mesh: {error}") from error
    output.show([[replace(report, name=printable(source))]])


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
    from jax_array_info_core import memory_profile_report
    from jax_array_info_core.origins.profiles import MAX_NBYTES

    with _opened(source, "device memory profile") as file:
        # Files such as /dev/zero have no end: read one byte more than the limit at most.
        report = memory_profile_report(file.read(MAX_NBYTES + 1))
    output.show([[report]])


@contextlib.contextmanager
def _opened(source: str, what: str) -> Iterator[IO[Any]]:
    """Open a file, or standard input for -. If it cannot be read, end the command with exit code 2.

    Args:
        source: Path of the file.
        what: The content that the command takes.
    """
    from jax_array_info_core import ArrayInfoError

    name = "standard input" if source == "-" else printable(source)
    refuse_reports(source, f"not a {what}")
    if source == "-" and sys.stdin is None:
        raise Refusal(f"{name}: it is closed")
    try:
        with click.open_file(source, "rb") as file:
            yield file
    except OSError as error:
        raise Refusal(f"{name}: {error.strerror}") from error
    except ArrayInfoError as error:
        raise Refusal(f"{name}: {error}") from error
