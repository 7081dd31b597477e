"""``jai-cli log``: XLA's and JAX's warnings in the log of a finished run."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from ..output import Output, output_options
from ..usage import Problems, Refusal
from .help import Command


@click.command(
    cls=Command,
    question="What did XLA rematerialize in this run, and which donations failed?",
    examples=(
        "echo 'Some donated buffers were not usable: float32[8,64].' > train.log",
        "jai-cli log train.log --mesh x=4,y=2",
        "jai-cli log - < train.log",
        "jai-cli log train.log --format json",
    ),
)
@click.argument("source", metavar="LOG", type=click.Path(allow_dash=True))
@click.option("--mesh", help="Mesh of the run, such as x=4,y=2, to print partition specs.")
@output_options
def log(source: str, mesh: str | None, output: Output) -> None:
    """List the rematerialization and donation warnings in the log of a finished run, the most bytes first.

    LOG is a file, or - for standard input. XLA warns of an involuntary full rematerialization if it has no
    direct way from one sharding to another: each device then holds the whole array for a while. JAX warns of
    donated buffers that no output can reuse. Equal warnings are listed once, with their count.

    Logs of any size are read in bounded memory. JAX is not imported, so no backend starts.
    """
    output.require_place()
    from jax_array_info_core import FileFormatError, SpecError, log_report, parse_mesh
    from jax_array_info_core.text import printable

    problems = Problems()
    sizes = None if mesh is None else problems.catch("--mesh", parse_mesh, mesh)
    problems.refuse()
    name = "standard input" if source == "-" else printable(source)
    if source == "-" and sys.stdin is None:
        raise Refusal(f"{name}: it is closed")
    try:
        with click.open_file(source, "rb") as file:
            report = replace(log_report(file, mesh=sizes), name=printable(source))
    except SpecError as error:
        raise Refusal(f"--mesh: {error}") from error
    except OSError as error:
        raise Refusal(f"{name}: {error.strerror}") from error
    except FileFormatError as error:
        raise Refusal(f"{name}: {error}") from error
    output.show([[report]])
