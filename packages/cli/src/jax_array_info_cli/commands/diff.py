"""``jai-cli diff``: differences of two trees, or of two compiled programs, in files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jax_array_info_core.text import printable

from ..reporting import Answer, report_command
from ..usage import Problems, Refusal, refused
from .tree import FILE, WRITE_MODEL, read_or_refuse

if TYPE_CHECKING:
    from jax_array_info_core.reports import ProgramReport, TreeReport


@report_command(
    WRITE_MODEL,
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp,-' --output new.json",
    "jai-cli diff plan.json new.json",
    "jai-cli diff plan.json new.json --format json",
    "jai-cli diff plan.json new.json --fail-on memory+2% --fail-on removed",
    has_verdict=True,
)
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@click.option(
    "--fail-on",
    metavar="RULE,...",
    multiple=True,
    help="Exit with 1 only if one of these rules is broken, with 0 for other differences. Can be repeated.",
)
@click.option("--values", is_flag=True, hidden=True)
def diff(before: str, after: str, fail_on: tuple[str, ...], values: bool) -> Answer:
    """List the differences of two trees, or of two compiled programs, from A to B. Bytes are per device.

    Of trees: the leaves that were added, removed, or changed in shape, dtype, spec or memory kind. A and B
    are files or directories as for jai-cli tree. If a step of an Orbax checkpoint has several items, name the
    directory of one.

    Of programs: bytes sent by kind and mesh axes, memory, flops, shardings and donations. A and B are reports
    in JSON, from jai-cli program --output before.json.

    Rules of --fail-on for programs: sent, memory, flops, or a kind of collectives such as all-gather (it
    grows; all-gather:fsdp counts a mesh axis only, sent@dcn a link, and sent+5% or memory+1GiB accepts a
    growth); new-all-gather, or new-collective for any kind (an argument or a function has more of them and
    sends more bytes with them, whatever the others save); sharding (an argument or output has another one);
    donation (one is lost). For trees: memory (of the fullest device), added, removed, changed, shape, dtype,
    spec, axis_types and memory_kind. An unknown figure breaks its rule.

    Exits with 0 if there are no such differences, or no broken rule of --fail-on; with 1 if there are; and
    with 2 if a file or a rule cannot be read, one file is a tree and the other a program, or the output
    cannot be written.
    """
    from jax_array_info_core.changes.gates import diff_with_rules, parse_rule
    from jax_array_info_core.changes.tree_diff import VALUES_REFUSED
    from jax_array_info_core.errors import UnsupportedValueError
    from jax_array_info_core.reports import TreeReport

    if values:
        raise Refusal(VALUES_REFUSED)
    problems = Problems()
    texts = [text for given in fail_on for text in given.split(",")]
    rules = [rule for text in texts if (rule := problems.catch("--fail-on", parse_rule, text))]
    problems.refuse()
    first, second = _named_report(before), _named_report(after)
    if isinstance(first, TreeReport) != isinstance(second, TreeReport):
        tree, program = (before, after) if isinstance(first, TreeReport) else (after, before)
        raise Refusal(f"{tree} is a tree, and {program} a compiled program: compare two of the same")
    with refused(UnsupportedValueError, prefix="--fail-on "):
        report = diff_with_rules(first, second, rules)
    found = not all(result.passed for result in report.rules) if rules else not report.is_empty
    return Answer(report, found)


def _named_report(path: str) -> TreeReport | ProgramReport:
    """Return the report in a file, with the name of the file: two plans of one model have the same name."""
    from jax_array_info_core.reports import ProgramReport, TreeReport

    problem = "neither a tree nor a compiled program"
    report: TreeReport | ProgramReport = read_or_refuse(path, problem, TreeReport, ProgramReport)
    name = printable(path)
    # The name of an Orbax checkpoint begins with its path, and adds the step.
    is_named = isinstance(report, TreeReport) and (report.name or "").startswith(name)
    return report if is_named else replace(report, name=name)
