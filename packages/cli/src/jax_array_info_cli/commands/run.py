"""``jai-cli run``, ``demo`` and ``devices``: a program on devices, which may be simulated."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

import click

from ..output import Output, output_options, refused
from ..reporting import Answer, Command, report_command
from ..simulated_devices import (
    MAX_DEVICES,
    replaced_by_simulation,
    require_jax,
    simulated_device_environment,
    use_simulated_devices,
)

if TYPE_CHECKING:
    from rich.console import Console

DEVICES = 8
MAX_TIMEOUT = 10_000_000


@click.command(
    cls=Command,
    examples=(
        "jai-cli run train.py",
        "jai-cli run --devices 8 train.py",
        "jai-cli run --devices 4 --processes 2 train.py --steps 3",
        "jai-cli run --devices 2 --timeout 600 --quiet train.py",
        "jai-cli run --output arrays.html train.py",
        "jai-cli run --record memory/ train.py",
        "jai-cli run --recompiles --quiet train.py",
        "jai-cli run -m train",
    ),
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    help="Simulate this many CPU devices in each process, at most 2,048 across all processes."
    " Default with --processes: 8.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Simulate this many processes, connected through jax.distributed.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="After this many seconds, print the stacks of all threads, stop, and exit with code 124.",
)
@click.option(
    "--record",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Record the memory of each process over time. See jai-cli top and jai-cli memory.",
)
@click.option(
    "--recompiles",
    is_flag=True,
    help="Print each recompilation when it happens, with its reason, and all compilations at the end.",
)
@click.option(
    "--fail-on-recompile",
    is_flag=True,
    help="The same, and exit with code 1 if there was one and the program succeeds.",
)
@click.option("--quiet", is_flag=True, help="Do not print live arrays, even if an allocation fails.")
@click.option("-m", "is_module", is_flag=True, help="Run a module, like python -m.")
@output_options
@click.argument(
    "argv",
    metavar="[-m MODULE | SCRIPT | -] [ARGS]...",
    nargs=-1,
    type=click.Path(readable=False),  # only for shell completion: any argument is accepted
)
def run(
    devices: int | None,
    processes: int | None,
    timeout: float | None,
    record: str | None,
    recompiles: bool,
    fail_on_recompile: bool,
    quiet: bool,
    is_module: bool,
    argv: tuple[str, ...],
    output: Output,
) -> None:
    """Run a program as Python does, then print the arrays that are still live.

    Arguments after SCRIPT or MODULE are passed to the program. SCRIPT can be a named pipe, or - for
    standard input.

    Without --processes, the program takes the place of this command: its signals and exit code are those
    under Python, and without --devices, so are its devices and environment. As a rank of srun or mpirun
    other than 0, it prints no table, and --output gets the rank in its name, such as arrays-rank3.html.
    --timeout then ends the process of the program alone, with code 1 if C code keeps Python's lock.

    With --devices, the program runs on simulated CPU devices. With --processes, several processes run it,
    and end together with the process groups that they lead. Each line of output starts with the index of
    its process. jai-cli calls jax.distributed.initialize when the program imports JAX; later calls do
    nothing. When a process fails, jai-cli stops the others and exits with the exit code of the failed
    process.

    If an allocation fails (RESOURCE_EXHAUSTED), the live arrays are printed before the traceback. If the
    program fails otherwise, or does not start JAX, there is no table. --output works only with one process
    of a simulation. It writes only the live arrays, and only if the program succeeds.

    An error of JAX about shardings, meshes or devices that nothing catches, also in a thread, is explained
    before its traceback, as by explain_errors().

    With --recompiles, each compilation of a function that was compiled before prints a line on stderr when it
    happens: what differs from the nearest earlier call, and the line of the call. At the end, stderr gets the
    table of print_compilations(). With --processes, a line names its processes. Of the ranks of srun or
    mpirun, rank 0 prints. With --record, the record has the recompilations of all.

    With --record, a program's own record_memory(...) gets the running recorder: folder and options are
    the command's.
    """
    simulated = devices is not None or processes is not None
    _require_compatible(output, processes or 1, quiet)
    output = output.require_place()
    per_process, count = devices or DEVICES, processes or 1
    if per_process * count > MAX_DEVICES:
        raise click.UsageError(
            f"--devices {per_process} with --processes {count} makes {per_process * count} devices; the limit"
            f" is {MAX_DEVICES}. Lower one of them."
        )
    if timeout is not None and not timeout <= MAX_TIMEOUT:
        raise click.UsageError(f"--timeout must be at most {MAX_TIMEOUT} seconds, got {timeout}")
    if not argv:
        raise click.UsageError("Missing argument 'MODULE'." if is_module else "Missing argument 'SCRIPT'.")
    if not hasattr(os, "fork"):  # a process can be neither replaced nor stopped with all that it has started
        raise click.ClickException("os.fork is not available here: jai-cli run needs Linux or macOS")
    if record is not None:
        from jax_array_info_core.jobs.timeline.recorder import require_folder

        with refused(OSError, prefix=f"--record {record}: ", is_invalid=False):
            record = str(require_folder(record))  # the program may change the directory
    from ..launch import Job, print_message, read_source

    job = Job(
        argv,
        is_module=is_module,
        processes=processes or int(simulated),
        timeout=timeout,
        quiet=quiet,
        output=None if output.path is None else output,
        source=None if processes is None or is_module else read_source(argv[0]),
        record=record,
        recompiles=recompiles or fail_on_recompile,
        fail_on_recompile=fail_on_recompile,
    )
    environment: Mapping[str, str] = os.environ
    if simulated:
        if replaced := replaced_by_simulation(os.environ):
            print_message(f"simulated CPU devices replace {', '.join(replaced)}")
        environment = simulated_device_environment(os.environ, per_process)
    from ..launch.start import become, launch

    if processes is not None:
        sys.exit(launch(job, environment))
    with refused(OSError, prefix="the program cannot be started: ", is_invalid=False):
        become(job, environment)


def _require_compatible(output: Output, processes: int, quiet: bool) -> None:
    """Raise a usage error if other options leave --format and --output no single table or no file."""
    if output == Output():
        return
    if quiet:
        raise click.UsageError("--quiet drops the table that --format and --output write: omit one of them")
    if processes > 1:
        raise click.UsageError(
            "--format and --output write the table of one process, but there are "
            f"{processes}. Call save_picture(live_array_report(), FILE) in the program."
        )
    if output.path is None:
        raise click.UsageError(
            f"--format {output.format} needs --output FILE: the program itself writes to standard output"
        )


MAX_DEMO_DEVICES = 512


@click.command(
    cls=Command,
    examples=("jai-cli demo", "jai-cli demo --devices 4"),
)
@click.option(
    "--devices",
    type=click.IntRange(1, MAX_DEMO_DEVICES),
    default=8,
    show_default=True,
    help="Number of simulated CPU devices.",
)
@output_options
def demo(devices: int, output: Output) -> None:
    """Demonstrate the Python functions: show the code of each step, then its output.

    With --format json, svg or html, the code is left out.
    """
    use_simulated_devices(devices)
    if output.format == "text":
        output.write_text(_print_cells)
        return
    from jax_array_info_core import collect_reports

    with collect_reports() as reports:
        _run_cells(lambda *cell: None)
    output.show([reports])


def _run_cells(show: Callable[[str, str], None]) -> None:
    """Run the cells of the demo on the devices that JAX sees. The title and the code of each are shown first.

    A cell follows a line ``# %% title``.
    """
    script = resources.files("jax_array_info_cli").joinpath("tour_script.py").read_text(encoding="utf-8")
    _, *parts = re.split(r"^# %% (.+)\n", script, flags=re.MULTILINE)
    namespace: dict[str, Any] = {}
    for title, cell in zip(parts[::2], parts[1::2], strict=True):
        code = cell.strip("\n")
        show(title, code)
        exec(compile(code, "tour.py", "exec"), namespace)


def _print_cells(console: Console) -> None:
    """Print each cell with its output."""
    from jax_array_info.engine.render import titled_code

    with contextlib.redirect_stdout(console.file):
        _run_cells(lambda *cell: console.print(titled_code(*cell, width=console.width)))


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
