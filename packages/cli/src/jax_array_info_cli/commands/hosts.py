"""``jai-cli hosts``: the processes of a job, from the files that they wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..output import Output, ignore_codes_option, output_options, progress_bar
from ..usage import Refusal, refuse_reports
from . import VerdictCommand

if TYPE_CHECKING:
    pass

WRITE_HOSTS = (
    'python -c "import jax; from jax_array_info import live_array_report, save_report;'
    " x = jax.numpy.zeros((1024, 1024)); save_report(live_array_report(), '.')\""
)


@click.command(
    cls=VerdictCommand,
    question="Which process of a job has the most bytes, and which have other arrays?",
    examples=(WRITE_HOSTS, "jai-cli hosts .", "jai-cli hosts . --rows --output hosts.svg"),
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
@click.option(
    "--max-rows",
    metavar="COUNT",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of processes in the table, half of them the fullest.",
)
@ignore_codes_option
@output_options
def hosts(
    folder: str, rows: bool, details: int, max_rows: int, ignore_codes: tuple[str, ...], output: Output
) -> bool:
    """Compare the processes of a job by the files that they wrote to the folder DIR.

    Each process calls save_report(live_array_report(), DIR), which writes the file process-INDEX.json. Files
    with reports of trees or of devices are compared as well. Only the first line of each file is read, and
    the reports of the processes whose arrays differ.

    Findings are processes without a file, processes whose arrays differ from those of most processes in
    shape, dtype, sharding, label or number, and files that cannot be read or are of another job.

    Exits with 0 if nothing was found, with 1 if there are findings, and with 2 if there is no answer, for
    example because the folder has no files or the output cannot be written.
    """
    from jax_array_info_core.errors import FileFormatError
    from jax_array_info_core.hosts.files import hosts_in_folder
    from jax_array_info_core.text import printable

    output.require_place()
    refuse_reports(folder, "and not in a folder of several")
    try:
        with progress_bar(f"reading {printable(folder)}") as on_progress:
            report = hosts_in_folder(
                folder, rows=rows, details=details, ignore_codes=ignore_codes, on_progress=on_progress
            )
    except OSError as error:
        raise Refusal(f"{printable(folder)}: {error.strerror or error}") from error
    except FileFormatError as error:
        raise Refusal(f"{printable(folder)}: {error}") from error

    output.show([[report]], max_rows=max_rows)
    return not report.passed
