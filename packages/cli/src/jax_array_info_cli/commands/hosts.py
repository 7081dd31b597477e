"""``jai-cli hosts``: the processes of a job, from the files that they wrote."""

from __future__ import annotations

import click

from ..output import ignore_codes_option, reading
from ..reporting import Answer, report_command

WRITE_HOSTS = (
    'python -c "import jax; from jax_array_info import live_array_report, save_report;'
    " x = jax.numpy.zeros((1024, 1024)); save_report(live_array_report(), '.')\""
)


@report_command(
    WRITE_HOSTS,
    "jai-cli hosts .",
    "jai-cli hosts . --rows --output hosts.svg",
    has_verdict=True,
    has_rows=True,
)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--rows",
    is_flag=True,
    help="Read the reports of all files, not only their summaries, and compare all processes that differ.",
)
@click.option(
    "--details",
    metavar="COUNT",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Number of processes that differ whose arrays are compared, without --rows.",
)
@ignore_codes_option
def hosts(folder: str, rows: bool, details: int, ignore_codes: tuple[str, ...]) -> Answer:
    """Compare the processes of a job by the files that they wrote to the folder DIR.

    Each process calls save_report(live_array_report(), DIR), which writes the file process-INDEX.json. Files
    with reports of trees or of devices are compared as well. Only the first line of each file is read, and
    the reports of the processes whose arrays differ.

    Findings are processes without a file, processes whose arrays differ from those of most processes in
    shape, dtype, sharding, label or number, and files that cannot be read or are of another job.

    Exits with 0 if nothing was found, with 1 if there are findings, and with 2 if there is no answer, for
    example because the folder has no files or the output cannot be written.
    """
    from jax_array_info_core.hosts.files import hosts_in_folder

    with reading(folder, "and not in a folder of several") as progress:
        report = hosts_in_folder(
            folder, rows=rows, details=details, ignore_codes=ignore_codes, on_progress=progress
        )
    return Answer(report, not report.passed)
