"""``jai-cli diff``: differences of two trees, or of two compiled programs, in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..output import Output, output_options
from ..usage import Problems, Refusal
from . import VerdictCommand
from .tree import FILE, WRITE_MODEL, refused_files

if TYPE_CHECKING:
    from jax_array_info_core.changes.gates import Rule
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
        "jai-cli diff plan.json new.json --fail-on memory+2% --fail-on removed",
    ),
)
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@click.option(
    "--fail-on",
    metavar="RULE",
    multiple=True,
    help="Exit with 1 only if this rule is broken, with 0 for other differences. Can be repeated.",
)
@output_options
def diff(before: str, after: str, fail_on: tuple[str, ...], output: Output) -> bool:
    """List the differences of two trees, or of two compiled programs, from A to B. Bytes are per device.

    Of trees: the leaves that were added, removed, or changed in shape, dtype, spec or memory kind. Values are
    not compared. A and B are files or directories as for jai-cli tree. If a step of an Orbax checkpoint has
    several items, name the directory of one.

    Of programs: bytes sent by kind and mesh axes, memory, flops, shardings and donations. A and B are reports
    in JSON, from jai-cli program --output before.json.

    Rules of --fail-on for programs: sent, memory, flops, or a kind of collectives such as all-gather, if it
    grows; all-gather:fsdp counts a mesh axis only. sent+5% and memory+1GiB accept a growth. sharding, if an
    argument or output has another one; donation, if one is lost. For trees: memory (of the fullest device),
    added, removed, changed, shape, dtype, spec and memory_kind. An unknown figure breaks its rule.

    Exits with 0 if there are no such differences, or no broken rule of --fail-on; with 1 if there are; and
    with 2 if a file or a rule cannot be read, one file is a tree and the other a program, or the output
    cannot be written.
    """
    from jax_array_info_core.changes.gates import parse_rule

    problems = Problems()
    rules = [rule for text in fail_on if (rule := problems.catch("--fail-on", parse_rule, text))]
    problems.refuse()
    output.require_place()
    report = _difference(before, _named_report(before), after, _named_report(after), rules)
    output.show([[report]])
    if rules:
        return not all(result.passed for result in report.rules)
    return not report.is_empty


def _difference(
    before: str,
    first: TreeReport | ProgramReport,
    after: str,
    second: TreeReport | ProgramReport,
    rules: Sequence[Rule],
) -> TreeDiff | ProgramDiff:
    """Return the difference of two trees or of two programs, or end the command."""
    from jax_array_info_core.changes.gates import diff_with_rules
    from jax_array_info_core.errors import UnsupportedValueError
    from jax_array_info_core.reports import TreeReport

    if isinstance(first, TreeReport) != isinstance(second, TreeReport):
        tree, program = (before, after) if isinstance(first, TreeReport) else (after, before)
        raise Refusal(f"{tree} is a tree, and {program} a compiled program: compare two of the same")
    try:
        return diff_with_rules(first, second, rules)
    except UnsupportedValueError as error:
        raise Refusal(f"--fail-on {error}") from error


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
