"""``jai-cli tree``, ``check`` and ``diff``: trees in files, their findings, and their differences."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jax_array_info_core.base.text import printable

from ..output import (
    Problems,
    Refusal,
    device_nbytes,
    hbm_option,
    ignore_codes_option,
    min_size_option,
    positive_bytes,
    reading,
    refusal_of_report,
    refused,
)
from ..reporting import Answer, report_command

if TYPE_CHECKING:
    from jax_array_info_core import PathRules
    from jax_array_info_core.reports import ProgramReport, TreeReport

_T = TypeVar("_T")

WRITE_MODEL = "python -c 'import numpy as np; np.savez(\"model.npz\", embed=np.eye(64))'"
"""An example that writes the file of the other examples, without JAX."""

FILE = click.Path()
"""The type of arguments that name a file or a directory; shells complete them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A tree in a file and the sharding to plan for it, as given on the command line."""

    source: str
    mesh: str | None
    specs: tuple[str, ...]
    axes: str | None
    dtype: str
    item: str | None

    def arguments(self, problems: Problems) -> dict[str, Any]:
        """Return the arguments of ``tree_report`` that plan the sharding."""
        from jax_array_info_core import dtype_bits
        from jax_array_info_core.layouts import parse_mesh

        problems.catch("--dtype", dtype_bits, self.dtype)
        return {
            "mesh": problems.catch("--mesh", parse_mesh, self.mesh),
            "specs": path_rules("--spec", self.specs, problems),
            "logical_axes": problems.catch("--axes", _logical_rules, self.axes),
        }

    def read(self, arguments: Mapping[str, Any], problems: Problems) -> TreeReport:
        """Return the tree in the file, or refuse options that it lacks the mesh or the names for.

        Args:
            arguments: The parsed options, from ``arguments``.
            problems: The problems so far.
        """
        from jax_array_info_core.reports import TreeReport

        tree: TreeReport = read_or_refuse(
            self.source, "not a TreeReport", TreeReport, dtype=self.dtype, item=self.item
        )
        problems.add(self._missing(tree, arguments["mesh"]))
        problems.refuse()
        return tree

    def _missing(self, tree: TreeReport, mesh: Mapping[str, int] | None) -> Iterator[str]:
        """Yield the options that a tree needs, and those that it lacks the names for."""
        source = printable(self.source)
        logical = [name for row in tree.rows if row.logical for names in row.logical.axes for name in names]
        if (self.specs or self.axes) and mesh is None and not any(used.axes for used in tree.meshes):
            yield f"{'--spec' if self.specs else '--axes'} needs --mesh: {source} has no mesh"
        if self.axes and not self.specs and not logical:
            yield f"--axes needs logical axis names, but {source} has none: pass them with --spec"
        if mesh and not self.axes and not self.specs and (unknown := set(logical).difference(mesh)):
            rule = printable(f"{next(name for name in logical if name in unknown)}={next(iter(mesh))}")
            yield f"--mesh needs --axes for the logical axis names of {source}, such as {rule}"


def _logical_rules(text: str) -> Any:
    """Return rules for logical axis names: those in the text, or in a JSON file."""
    from jax_array_info_core.geometry.layouts.notation import parse_logical_axes
    from jax_array_info_core.trees.stored.reading import Budget, json_text, parse_json, read_whole

    if not text.endswith(".json"):
        return parse_logical_axes(text)
    budget = Budget()
    try:
        return parse_json(json_text(read_whole(Path(text), budget), budget))
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror}") from error


def planned_tree(function: Callable[..., _T]) -> Callable[..., _T]:
    """Add the argument FILE and the options that plan a sharding, passed on as the argument ``planned``."""

    @click.argument("source", metavar="FILE", type=FILE)
    @click.option(
        "--mesh", metavar="AXIS=SIZE,...", help="Plan the tree on this mesh, such as fsdp=16,tensor=16."
    )
    @click.option(
        "--spec",
        "specs",
        metavar="PATTERN=SPEC",
        multiple=True,
        help="Plan this PartitionSpec for the leaves whose paths match, such as '*mlp/w*=fsdp,tensor' or"
        " '*=-' for replicated. * and ? are wildcards. Can be repeated: the first match applies. Leaves with"
        " fewer axes than the spec of '*' or 'params/*' are replicated.",
    )
    @click.option(
        "--axes",
        metavar="NAME=AXIS,...|FILE.json",
        help="Rules for logical axis names, such as embed=fsdp,mlp=tensor, or a JSON file with Flax's list of"
        " rules. embed=fsdp+tensor means both, norm=- none, and a second rule for a name is a fallback.",
    )
    @click.option(
        "--dtype", default="float32", show_default=True, help="The dtype of leaves in files without dtypes."
    )
    @click.option("--item", help="The item of an Orbax checkpoint that has several.")
    @functools.wraps(function)
    def command(
        *args: Any,
        source: str,
        mesh: str | None,
        specs: tuple[str, ...],
        axes: str | None,
        dtype: str,
        item: str | None,
        **kwargs: Any,
    ) -> _T:
        planned = Planned(source=source, mesh=mesh, specs=specs, axes=axes, dtype=dtype, item=item)
        return function(*args, planned=planned, **kwargs)

    return command


def path_rules(option: str, texts: tuple[str, ...], problems: Problems) -> PathRules | None:
    """Return rules written as ``PATTERN=SPEC``, in order; None if there are none."""
    from jax_array_info_core import PathRules
    from jax_array_info_core.geometry.layouts.notation import parse_rule

    rules = [rule for text in texts if (rule := problems.catch(option, parse_rule, text)) is not None]
    patterns = [pattern for pattern, _ in rules]
    problems.add(
        f"{option} {pattern!r} is given twice: only the first could match"
        for number, pattern in enumerate(patterns)
        if pattern in patterns[:number]
    )
    return PathRules(dict(rules)) if rules else None


def read_or_refuse(path: str, problem: str, *kinds: type, **options: Any) -> Any:
    """Return the report in a file. If it cannot be read, end the command with one line and exit code 2.

    Args:
        path: Path of a saved report, or of a file or a directory with a tree.
        problem: What another report is not, in words.
        *kinds: Classes of the reports that the command takes.
        **options: Options for files with trees, such as ``dtype``.
    """
    from jax_array_info_core.trees.files import read_report

    with reading(path) as progress:
        report = read_report(path, progress=progress, **options)
    if not isinstance(report, kinds):
        raise refusal_of_report(path, report, problem)
    return report


@report_command(
    WRITE_MODEL,
    "jai-cli tree model.npz",
    "jai-cli tree model.npz --mesh fsdp=4,tensor=2 --spec 'embed=fsdp,tensor'",
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
    "jai-cli tree plan.json --depth 1 --sort waste",
    has_rows=True,
)
@planned_tree
@click.option(
    "--depth", type=click.IntRange(min=1), help="Fold leaves with more keys than this into one row."
)
@click.option(
    "--sort",
    type=click.Choice(("tree", "waste", "nan")),
    default="tree",
    show_default=True,
    help="Order of the leaves: as in the tree, by the bytes that further sharding would save, or NaN first.",
)
def tree(planned: Planned, depth: int | None, sort: str) -> Answer:
    """Show the shape, sharding and bytes per device of every leaf of a tree.

    FILE is a report in JSON (from --output plan.json, or from save_tree or save_report in Python), MaxText's
    named_shardings.json or logical_shardings.json, a .safetensors file or its .safetensors.index.json, an
    .npz file, or the directory of an Orbax checkpoint: an item, a step, or the root with all steps.

    Only headers and metadata are read, not the arrays. JAX is not imported.

    --mesh, --spec and --axes plan another sharding. Leaves that no --spec matches keep theirs. An axis that
    does not divide evenly is reported with its padding.

    --depth, --sort and --max-rows do not apply to --format json, which has all leaves.
    """
    from jax_array_info_core import tree_report

    problems = Problems()
    arguments = planned.arguments(problems)
    problems.refuse()
    read = planned.read(arguments, problems)
    report = problems.catch("", functools.partial(tree_report, read, **arguments))
    problems.refuse()
    assert report is not None
    return Answer(report, options={"depth": depth, "sort": sort})


@report_command(
    WRITE_MODEL,
    "jai-cli check model.npz --mesh data=2 --spec '*=-' --replicated-over data",
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
    "jai-cli check plan.json --hbm 95GiB --optimizer adam",
    "jai-cli check plan.json --expect 'embed=fsdp' --format json",
    has_verdict=True,
    has_rows=True,
)
@planned_tree
@hbm_option
@click.option(
    "--host-memory",
    metavar="SIZE",
    help="Memory of one host for leaves in host memory, such as 512GiB.",
)
@click.option(
    "--hosts",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="Number of hosts, each with the same number of consecutive devices, for --host-memory.",
)
@click.option(
    "--optimizer",
    type=click.Choice(("adam", "adamw", "lion", "momentum")),
    help="Add the state of this optimizer, unless the tree has it: moments that are sharded like their"
    " parameters.",
)
@click.option(
    "--moment-dtype",
    metavar="DTYPE",
    help="Dtype of the moments, such as float32. By default, that of their parameters, as in optax.",
)
@click.option(
    "--replicated-over",
    metavar="AXIS,...",
    multiple=True,
    help="Mesh axes over which replication is intended, such as data. Can be repeated.",
)
@click.option(
    "--max-replicated",
    metavar="FRACTION",
    type=float,
    default=0.02,
    show_default=True,
    help="Part of the bytes of the fullest device that further sharding may save without a finding.",
)
@click.option(
    "--devices",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="Least number of devices of each leaf. 1 accepts leaves on one device. By default, that of --mesh or"
    " of the largest mesh of the tree.",
)
@click.option(
    "--ignore", metavar="PATTERN", multiple=True, help="Leave out leaves whose paths match. Can be repeated."
)
@ignore_codes_option
@min_size_option
@click.option(
    "--min-share",
    metavar="FRACTION",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Part of the bytes per device. The smallest leaves of a finding that take less share a line.",
)
@click.option("--allow-empty", is_flag=True, help="Accept a tree without arrays.")
@click.option(
    "--expect",
    metavar="PATTERN=SPEC",
    multiple=True,
    help="The PartitionSpec that leaves whose paths match must have. Can be repeated: the first match"
    " applies.",
)
def check(
    planned: Planned,
    hbm: str | None,
    host_memory: str | None,
    replicated_over: tuple[str, ...],
    min_share: float,
    expect: tuple[str, ...],
    **options: Any,
) -> Answer:
    """Check a tree for leaves that are replicated or padded without need, and whether it fits.

    FILE and the options --mesh, --spec, --axes, --dtype and --item are those of jai-cli tree.

    Findings are a tree without arrays, avoidable replication, leaves on fewer devices than the mesh, padding,
    invalid specs, mesh axes that shard no leaf, leaves that differ from --expect, leaves that are sharded
    differently from others whose paths differ only in numbers, optimizer moments that are sharded
    differently from their parameters, and a tree that does not fit --hbm or --host-memory. Gradients and
    activations are not counted.

    Exits with 0 if nothing was found, with 1 if there are findings, and with 2 if there is no answer, for
    example because a file cannot be read or the output cannot be written.
    """
    from jax_array_info_core import check_report, dtype_bits
    from jax_array_info_core.geometry.layouts.notation import parse_names

    problems = Problems()
    arguments = planned.arguments(problems)
    names = [problems.catch("--replicated-over", parse_names, text) or () for text in replicated_over]
    options["replicated_over"] = tuple(itertools.chain(*names))
    options["hbm_nbytes"] = problems.catch("--hbm", device_nbytes, hbm)
    options["host_nbytes"] = problems.catch("--host-memory", positive_bytes, host_memory)
    if options["hosts"] is not None and host_memory is None:
        problems.add(["--hosts needs --host-memory, the memory of one"])
    if not 0 <= options["max_replicated"] <= 1:
        problems.add([f"--max-replicated must be a fraction from 0 to 1, got {options['max_replicated']:g}"])
    options["expect"] = path_rules("--expect", expect, problems)
    if options["moment_dtype"] is not None:
        problems.catch("--moment-dtype", dtype_bits, options["moment_dtype"])
        if options["optimizer"] is None:
            problems.add(["--moment-dtype needs --optimizer, such as adam"])
    problems.refuse()
    tree = planned.read(arguments, problems)
    report = problems.catch("", lambda: check_report(tree, **arguments, **options))
    problems.refuse()
    assert report is not None
    return Answer(replace(report, syntax="shell"), not report.passed, {"min_share": min_share})


@report_command(
    WRITE_MODEL,
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp,-' --output new.json",
    "jai-cli diff plan.json new.json",
    "jai-cli diff plan.json new.json --format json",
    "jai-cli diff plan.json new.json --fail-on memory+2% --fail-on removed",
    has_verdict=True,
    has_rows=True,
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

    Of programs: bytes sent by kind and mesh axes, the share of work, memory, flops, shardings and donations.
    A and B are reports in JSON, from jai-cli program --output before.json.

    Rules of --fail-on for programs: sent, memory, flops, or a kind of collectives such as all-gather (it
    grows; all-gather:fsdp counts a mesh axis only, sent@dcn a link, and sent+5% or memory+1GiB accepts a
    growth); new-all-gather, or new-collective for any kind (an argument or a function has more of them and
    sends more bytes with them, whatever the others save); work (each device does a larger share of the heavy
    work, by more than 5 %); sharding (an argument or output has another one); donation (one is lost). For
    trees: memory (of the fullest device), added, removed, changed, shape, dtype, spec, axis_types and
    memory_kind. An unknown figure breaks its rule.

    Exits with 0 if there are no such differences, or no broken rule of --fail-on; with 1 if there are; and
    with 2 if a file or a rule cannot be read, one file is a tree and the other a program, the part that a
    rule is about is left out of a report because of an error, or the output cannot be written.
    """
    from jax_array_info_core.errors import UnsupportedValueError
    from jax_array_info_core.programs.gates import diff_with_rules, parse_rule
    from jax_array_info_core.reports import TreeReport
    from jax_array_info_core.trees.tree_diff import VALUES_REFUSED

    if values:
        raise Refusal(VALUES_REFUSED)
    problems = Problems()
    texts = [text for option in fail_on for text in option.split(",")]
    rules = [rule for text in texts if (rule := problems.catch("--fail-on", parse_rule, text))]
    problems.refuse()
    first, second = _named_report(before), _named_report(after)
    if isinstance(first, TreeReport) != isinstance(second, TreeReport):
        tree, program = (before, after) if isinstance(first, TreeReport) else (after, before)
        raise Refusal(f"{tree} is a tree, and {program} a compiled program: compare two of the same")
    with refused(UnsupportedValueError, prefix="--fail-on "):
        report = diff_with_rules(first, second, rules)
    has_failed = not all(result.passed for result in report.rules) if rules else not report.is_empty
    lacking = [result.fact for result in report.rules if result.is_left_out]
    if not rules and not has_failed:
        lacking = [part.words for one in (first, second) for part in getattr(one, "left_out", ())]
    return Answer(report, has_failed, refusal="\n".join(lacking) or None)


def _named_report(path: str) -> TreeReport | ProgramReport:
    """Return the report in a file, with the name of the file: two plans of one model have the same name."""
    from jax_array_info_core.reports import ProgramReport, TreeReport

    problem = "neither a tree nor a compiled program"
    report: TreeReport | ProgramReport = read_or_refuse(path, problem, TreeReport, ProgramReport)
    name = printable(path)
    # The name of an Orbax checkpoint begins with its path, and adds the step.
    is_named = isinstance(report, TreeReport) and (report.name or "").startswith(name)
    return report if is_named else replace(report, name=name)
