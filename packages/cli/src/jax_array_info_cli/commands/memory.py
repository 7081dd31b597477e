"""``jai-cli memory``: memory over time, from the record of a job."""

from __future__ import annotations

import click

from ..output import reading
from ..reporting import Answer, report_command

WRITE_RECORD = (
    'python -c "import jax; from jax_array_info import record_memory;'
    " recorder = record_memory('memory/'); x = jax.numpy.zeros((1024, 1024)); recorder.stop()\""
)


@report_command(
    WRITE_RECORD,
    "jai-cli memory memory/",
    "jai-cli memory memory/ --output memory.html",
    has_rows=True,
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
def memory(
    folder: str,
    process: int | None,
    run: int | None,
    device: int | None,
    last: float | None,
) -> Answer:
    """Show the memory of a job over time, from the record in the folder DIR.

    The program writes the record with record_memory(DIR), or jai-cli run --record DIR starts it. The job may
    have ended, or still run: the record is only read.

    The first lines have allocations that failed, the peak with its time, step and mark, and the allocation
    sites that grow. The picture shows the bytes in use of one device by allocation site.
    """
    from jax_array_info_core import timeline_report

    with reading(folder, "not a folder with a record") as progress:
        return Answer(
            timeline_report(folder, process=process, run=run, device=device, last=last, on_progress=progress)
        )
