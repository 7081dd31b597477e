"""``jai-cli memory``: memory over time, from the record of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..output import Output, output_options, progress_bar
from ..usage import Refusal, refuse_reports
from . import Command

if TYPE_CHECKING:
    pass

WRITE_RECORD = (
    'python -c "import jax; from jax_array_info import record_memory;'
    " recorder = record_memory('memory/'); x = jax.numpy.zeros((1024, 1024)); recorder.stop()\""
)


@click.command(
    cls=Command,
    question="What happened to the memory over time: when was the peak, and what grew?",
    examples=(WRITE_RECORD, "jai-cli memory memory/", "jai-cli memory memory/ --output memory.html"),
)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--process",
    metavar="INDEX",
    type=click.IntRange(min=0),
    help="Index of the process. Default: the one with the highest peak.",
)
@click.option(
    "--run",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    help="Number of its run, if several programs had this index. Default: the one with the highest peak.",
)
@click.option(
    "--device",
    metavar="ID",
    type=int,
    help="Id of the device. Default: the one with the highest peak.",
)
@click.option(
    "--last",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Look only at so many seconds before the last sample.",
)
@click.option(
    "--max-rows",
    metavar="COUNT",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Maximum number of rows of each table.",
)
@output_options
def memory(
    folder: str,
    process: int | None,
    run: int | None,
    device: int | None,
    last: float | None,
    max_rows: int,
    output: Output,
) -> None:
    """Show the memory of a job over time, from the record in the folder DIR.

    The program writes the record with record_memory(DIR), or jai-cli run --record DIR starts it. The job may
    have ended, or still run: the record is only read.

    The first lines have allocations that failed, the peak with its time, step and mark, and the allocation
    sites that grow. The picture shows the bytes in use of one device by allocation site.
    """
    from jax_array_info_core import timeline_report
    from jax_array_info_core.text import printable

    output.require_place()
    refuse_reports(folder, "not a folder with a record")
    try:
        with progress_bar(f"reading {printable(folder)}") as on_progress:
            report = timeline_report(
                folder, process=process, run=run, device=device, last=last, on_progress=on_progress
            )
    except OSError as error:
        raise Refusal(f"{printable(folder)}: {error.strerror or error}") from error
    except ValueError as error:
        raise Refusal(f"{printable(folder)}: {error}") from error

    output.show([[report]], max_rows=max_rows)
