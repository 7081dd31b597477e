"""``jai-cli run``: a program of the user's, on fake devices, in one process or several."""

from __future__ import annotations

import os
import pkgutil
import sys
from dataclasses import replace

import click

from ..fake_devices import environment_or_refusal
from ..output import Output, output_options
from ..usage import require_at_most, require_fork
from .help import Command, shown_on_stderr

MAX_DEVICES = 2048
MAX_TIMEOUT = 10_000_000


@click.command(
    cls=Command,
    question="How is what my program makes sharded, and what of it stays alive?",
    examples=(
        "jai-cli run train.py",
        "jai-cli run --devices 4 --processes 2 train.py --steps 3",
        "jai-cli run --devices 2 --timeout 600 --quiet train.py",
        "jai-cli run --output arrays.html train.py",
        "jai-cli run -m train",
    ),
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="How many fake CPU devices each process has.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many processes run it, joined by jax.distributed.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds after which all is ended with exit code 124, and every stack is printed.",
)
@click.option("--quiet", is_flag=True, help="Print no table of live arrays at the end, or out of memory.")
@click.option("-m", "is_module", is_flag=True, help="Run a module, as python -m does.")
@output_options
@click.argument(
    "words",
    metavar="[-m MODULE | SCRIPT | -] [ARGS]...",
    nargs=-1,
    type=click.Path(readable=False),  # for the completion of words alone: any word is admitted
)
def run(
    devices: int,
    processes: int,
    timeout: float | None,
    quiet: bool,
    is_module: bool,
    words: tuple[str, ...],
    output: Output,
) -> None:
    """Run a program on fake CPU devices, then print its live arrays.

    What follows SCRIPT or MODULE is the program's; SCRIPT may be a pipe, and - is the standard input.
    With several processes each line of output begins with the number of its process;
    jax.distributed.initialize is called for the program, and does no harm when it calls it too. The
    first failure ends all, and its exit code is the command's. When a device has no memory left, the
    live arrays come before the traceback. FILE is for the live arrays alone, of a program that does not
    fail.
    """
    _require_sense(output, processes, quiet)
    output.require_place()
    require_at_most(MAX_DEVICES, devices=devices, processes=processes)
    if timeout is not None and not timeout <= MAX_TIMEOUT:
        raise click.UsageError(f"--timeout {timeout} is more than {MAX_TIMEOUT} seconds, or no number")
    if not words:
        raise click.UsageError("Missing argument 'MODULE'." if is_module else "Missing argument 'SCRIPT'.")
    source = None if is_module else _source_of(words[0])
    environment = environment_or_refusal(devices)
    require_fork()
    from ..launch.job import Job
    from ..launch.launcher import launch

    kept = None
    if output.path is not None:
        kept = replace(output, path=os.path.abspath(output.path))  # the program may go elsewhere
    job = Job(
        words,
        is_module=is_module,
        processes=processes,
        timeout=timeout,
        quiet=quiet,
        output=kept,
        source=source,
    )
    sys.exit(launch(job, environment))


def _require_sense(output: Output, processes: int, quiet: bool) -> None:
    """Refuse --format and --output where there is no one table to write, or no place of its own for it."""
    if output == Output():
        return
    if quiet:
        raise click.UsageError("--quiet leaves out what --format and --output are for")
    if processes > 1:
        raise click.UsageError(
            f"{processes} processes have a table each: save_picture(live_array_report(), FILE) in the program"
        )
    if output.path is None:
        raise click.UsageError(
            f"the program writes to the standard output: name a file for the {output.format} with --output"
        )


def _source_of(script: str) -> bytes | None:
    """Return the code of a script, None for a folder or a zip file.

    It is read once for all processes: a pipe has it only once. Where it cannot be read, the command exits
    with 2 and one line, as Python does.
    """
    try:
        if script == "-":
            return sys.stdin.buffer.read() if sys.stdin else b""
        if pkgutil.get_importer(script) is not None:
            return None
        with open(script, "rb") as file:
            return file.read()
    except OSError as error:
        problem = f"jai-cli run: can't open file {script!r}: {error.strerror}"
        click.echo(shown_on_stderr(problem), err=True)
        sys.exit(2)
