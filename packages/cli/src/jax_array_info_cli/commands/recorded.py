"""``jai-cli log`` and ``jai-cli profile``: the files that a finished run has left."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from jax_array_info_core.text import printable

from ..entry import LOGS
from ..output import ignore_codes_option, line_options, reading
from ..reporting import Answer, report_command
from ..usage import Problems, Refusal


@report_command(
    "echo 'Some donated buffers were not usable: float32[8,64].' > train.log",
    "jai-cli log train.log --mesh x=4,y=2",
    "jai-cli log - < train.log",
    "jai-cli log train.log --format json",
)
@click.argument("source", metavar="LOG", type=click.Path(allow_dash=True))
@click.option("--mesh", help="Mesh of the run, such as x=4,y=2, to print partition specs.")
@ignore_codes_option
def log(source: str, mesh: str | None, ignore_codes: tuple[str, ...]) -> Answer:
    """List the findings in the log of a finished run: out of memory, full replication, unused donations.

    LOG is a file, a folder with the logs of several processes, or - for standard input. For a program that
    does not fit a device, XLA's largest buffers are listed with their lines; for an allocation that failed,
    the requested and the free bytes. XLA warns of an involuntary full rematerialization if it has no direct
    way from one sharding to another: each device then holds the whole array for a while. JAX warns of donated
    buffers that no output can reuse. Equal errors and warnings are listed once, with their count.

    Logs of any size are read in bounded memory. JAX is not imported, so no backend starts.
    """
    from jax_array_info_core import log_report
    from jax_array_info_core.errors import SpecError
    from jax_array_info_core.layouts import parse_mesh

    problems = Problems()
    sizes = None if mesh is None else problems.catch("--mesh", parse_mesh, mesh)
    problems.refuse()
    is_folder = os.path.isdir(source)
    with reading(source) if is_folder else _opened(source, "log") as file:
        try:
            lines = _lines_in(source) if is_folder else file
            report = log_report(lines, mesh=sizes, ignore_codes=ignore_codes)
        except SpecError as error:
            raise Refusal(f"--mesh: {error}") from error
    return Answer(replace(report, name=printable(source)))


@report_command(
    "python -c 'import jax; jax.profiler.save_device_memory_profile(\"memory.prof\")'",
    "jai-cli profile memory.prof",
    "jai-cli profile - < memory.prof",
    "jai-cli profile memory.prof --format json",
)
@click.argument("source", metavar="PROFILE", type=click.Path(allow_dash=True))
@line_options
def profile(source: str) -> Answer:
    """Show the contents of a device memory profile, by device and source line.

    PROFILE is a file written by jax.profiler.save_device_memory_profile, or - for standard input. JAX is
    not imported, so no backend starts.
    """
    from jax_array_info_core import memory_profile_report
    from jax_array_info_core.origins.profiles import MAX_NBYTES

    with _opened(source, "device memory profile") as file:
        # Files such as /dev/zero have no end: read one byte more than the limit at most.
        report = memory_profile_report(file.read(MAX_NBYTES + 1))
    return Answer(report)


@contextlib.contextmanager
def _opened(source: str, what: str) -> Iterator[IO[Any]]:
    """Open a file, or standard input for -. If it cannot be read, end the command with exit code 2.

    Args:
        source: Path of the file.
        what: The content that the command takes.
    """
    if source == "-" and sys.stdin is None:
        raise Refusal("standard input: it is closed")
    with reading(source, f"not a {what}"), click.open_file(source, "rb") as file:
        yield file


def _lines_in(folder: str) -> Iterator[bytes]:
    """Yield the lines of the logs in a folder, by name."""
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix in LOGS and path.is_file())
    if not paths:
        raise Refusal(f"{printable(folder)}: a folder without logs ({', '.join(LOGS)})")
    for path in paths:
        with path.open("rb") as file:
            yield from file
