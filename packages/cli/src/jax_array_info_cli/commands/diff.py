"""``jai-cli diff``: differences of two trees, or of two compiled programs, in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jax_array_info_core.text import printable

from ..output import reading
from ..reporting import Answer, report_command
from ..usage import Problems, Refusal, refused
from .tree import FILE, WRITE_MODEL, read_or_refuse

if TYPE_CHECKING:
    from jax_array_info_core.changes.gates import Rule
    from jax_array_info_core.changes.values import StoredSide
    from jax_array_info_core.reports import ProgramDiff, ProgramReport, TreeDiff, TreeReport, ValuesDiff


@report_command(
    WRITE_MODEL,
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp,-' --output new.json",
    "jai-cli diff plan.json new.json",
    "jai-cli diff plan.json new.json --format json",
    "jai-cli diff plan.json new.json --fail-on memory+2% --fail-on removed",
    "jai-cli diff --values model.npz model.npz",
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
@click.option("--values", is_flag=True, help="Compare the values of the leaves in the files as well.")
def diff(before: str, after: str, fail_on: tuple[str, ...], values: bool) -> Answer:
    """List the differences of two trees, or of two compiled programs, from A to B. Bytes are per device.

    Of trees: the leaves that were added, removed, or changed in shape, dtype, spec or memory kind. A and B
    are files or directories as for jai-cli tree. If a step of an Orbax checkpoint has several items, name the
    directory of one.

    --values compares the values too, leaf by leaf and piece by piece, of .npz, .npy, safetensors and Orbax
    checkpoints, also of one format with another. 0.0 and -0.0 are equal, and so are two NaN. Where dtypes
    differ, values are compared after exact conversion. Entries that are not arrays of numbers, such as
    strings, are counted but not compared. A leaf of Orbax in chunks of more than 192 MiB is not read, which
    counts as a difference.

    Of programs: bytes sent by kind and mesh axes, memory, flops, shardings and donations. A and B are reports
    in JSON, from jai-cli program --output before.json.

    Rules of --fail-on for programs: sent, memory, flops, or a kind of collectives such as all-gather (it
    grows; all-gather:fsdp counts a mesh axis only, sent@dcn a link, and sent+5% or memory+1GiB accepts a
    growth); new-all-gather, or new-collective for any kind (an argument or a function has more of them and
    sends more bytes with them, whatever the others save); sharding (an argument or output has another one);
    donation (one is lost). For trees: memory (of the fullest device), added, removed, changed, shape, dtype,
    spec, axis_types, memory_kind, and with --values also values, which a leaf of one file only breaks too. An
    unknown figure breaks its rule.

    Exits with 0 if there are no such differences, or no broken rule of --fail-on; with 1 if there are; and
    with 2 if a file or a rule cannot be read, one file is a tree and the other a program, or the output
    cannot be written.
    """
    from jax_array_info_core.changes.gates import parse_rule

    problems = Problems()
    texts = [text for given in fail_on for text in given.split(",")]
    rules = [rule for text in texts if (rule := problems.catch("--fail-on", parse_rule, text))]
    problems.refuse()
    if values:
        first, second = _stored(before), _stored(after)
        from jax_array_info_core.changes.values import values_diff

        with reading(f"{first.path} and {second.path}") as progress:
            compared = values_diff(first, second, progress)
        report = _difference(before, first.report, after, second.report, rules, compared)
    else:
        report = _difference(before, _named_report(before), after, _named_report(after), rules)
    found = not all(result.passed for result in report.rules) if rules else not report.is_empty
    return Answer(report, found)


def _difference(
    before: str,
    first: TreeReport | ProgramReport,
    after: str,
    second: TreeReport | ProgramReport,
    rules: Sequence[Rule],
    values: ValuesDiff | None = None,
) -> TreeDiff | ProgramDiff:
    """Return the difference of two trees or of two programs, or end the command."""
    from jax_array_info_core.changes.gates import diff_with_rules
    from jax_array_info_core.errors import UnsupportedValueError
    from jax_array_info_core.reports import TreeDiff, TreeReport

    if isinstance(first, TreeReport) != isinstance(second, TreeReport):
        tree, program = (before, after) if isinstance(first, TreeReport) else (after, before)
        raise Refusal(f"{tree} is a tree, and {program} a compiled program: compare two of the same")
    with refused(UnsupportedValueError, prefix="--fail-on "):
        report = diff_with_rules(first, second, rules, values)
    return replace(report, syntax="shell") if isinstance(report, TreeDiff) else report


def _stored(path: str) -> StoredSide:
    """Return the tree in a file with values, or end the command."""
    from pathlib import Path

    from jax_array_info_core.changes.values import StoredSide
    from jax_array_info_core.trees.files import read_stored

    with reading(path, "without values: --values needs the arrays") as progress:
        report, tree = read_stored(path, progress=progress)
    return StoredSide(Path(path), _with_name(report, printable(path)), tree)


def _with_name(report: TreeReport, name: str) -> TreeReport:
    # The name of an Orbax checkpoint begins with its path, and adds the step.
    return report if (report.name or "").startswith(name) else replace(report, name=name)


def _named_report(path: str) -> TreeReport | ProgramReport:
    """Return the report in a file, with the name of the file: two plans of one model have the same name."""
    from jax_array_info_core.reports import ProgramReport, TreeReport

    problem = "neither a tree nor a compiled program"
    report: TreeReport | ProgramReport = read_or_refuse(path, problem, TreeReport, ProgramReport)
    name = printable(path)
    return _with_name(report, name) if isinstance(report, TreeReport) else replace(report, name=name)
