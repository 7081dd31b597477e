"""``jai-cli diff``: differences of two trees, or of two compiled programs, in files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..output import Output, output_options
from ..usage import Refusal
from . import VerdictCommand
from .tree import FILE, WRITE_MODEL, refused_files

if TYPE_CHECKING:
    from jax_array_info_core.reports import ProgramDiff, ProgramReport, TreeDiff, TreeReport


@click.command(
    cls=VerdictCommand,
    question="Which leaves of a checkpoint or a plan changed, or what does my program send now?",
    examples=(
        WRITE_MODEL,
        "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
        "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp,-' --output new.json",
        "jai-cli diff plan.json new.json",
        "jai-cli diff plan.json new.json --format json",
    ),
)
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@output_options
def diff(before: str, after: str, output: Output) -> bool:
    """List the differences of two trees, or of two compiled programs, from A to B. Bytes are per device.

    Of trees: the leaves that were added, removed, or changed in shape, dtype, spec or memory kind. Values are
    not compared. A and B are files or directories as for jai-cli tree. If a step of an Orbax checkpoint has
    several items, name the directory of one.

    Of programs: bytes sent by kind and mesh axes, memory, flops, shardings and donations. A and B are reports
    in JSON, from jai-cli program --output before.json.

    Exits with 0 if there are no such differences, with 1 if there are, and with 2 if a file cannot be read,
    one is a tree and the other a program, or the output cannot be written.
    """
    output.require_place()
    report = _difference(before, _named_report(before), after, _named_report(after))
    output.show([[report]])
    return not report.is_empty


def _difference(
    before: str, first: TreeReport | ProgramReport, after: str, second: TreeReport | ProgramReport
) -> TreeDiff | ProgramDiff:
    """Return the difference of two trees or of two programs, or end the command."""
    from jax_array_info_core import program_diff_report, tree_diff_report
    from jax_array_info_core.reports import ProgramReport, TreeReport

    if isinstance(first, TreeReport) and isinstance(second, TreeReport):
        return tree_diff_report(first, second)
    if isinstance(first, ProgramReport) and isinstance(second, ProgramReport):
        return program_diff_report(first, second)
    tree, program = (before, after) if isinstance(first, TreeReport) else (after, before)
    raise Refusal(f"{tree} is a tree, and {program} a compiled program: compare two of the same")


def _named_report(path: str) -> TreeReport | ProgramReport:
    """Return the report in a file, with the name of the file: two plans of one model have the same name."""
    from jax_array_info_core.reports import ProgramReport, TreeReport
    from jax_array_info_core.text import printable
    from jax_array_info_core.trees.files import read_report

    with refused_files(path) as progress:
        report = read_report(path, progress=progress)
    name = printable(path)
    if isinstance(report, TreeReport):
        # The name of an Orbax checkpoint begins with its path, and adds the step.
        return report if (report.name or "").startswith(name) else replace(report, name=name)
    if isinstance(report, ProgramReport):
        return replace(report, name=name)
    kind = type(report).__name__
    raise Refusal(f"{name}: the report is a {kind}, neither a tree nor a compiled program")
