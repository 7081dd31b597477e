"""``jai-cli report``: a report that was saved, as the function that made it prints it."""

from __future__ import annotations

import click

from ..output import reading
from ..reporting import Answer, report_command


@report_command(
    "jai-cli show 64,64 --mesh x=8 --spec x --output array.json",
    "jai-cli report array.json",
    "jai-cli array.json",
    has_rows=True,
)
@click.argument("source", metavar="FILE", type=click.Path())
def report(source: str) -> Answer:
    """Show a report in JSON, as its own command or function prints it.

    FILE is from --format json of any command, or from save_report, save_tree or to_json in Python.
    """
    from jax_array_info_core import load_report

    with reading(source):
        return Answer(load_report(source))
