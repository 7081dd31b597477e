"""``jai-cli tree``: the leaves of a tree in a file; and the options of all commands that read one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jax_array_info_core.text import printable

from ..output import reading
from ..reporting import Answer, report_command
from ..usage import Problems, refusal_of_report

if TYPE_CHECKING:
    from jax_array_info_core import PathRules
    from jax_array_info_core.reports import TreeReport


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
        if (self.specs or self.axes) and mesh is None and not any(found.axes for found in tree.meshes):
            yield f"{'--spec' if self.specs else '--axes'} needs --mesh: {source} has no mesh"
        if self.axes and not self.specs and not logical:
            yield f"--axes needs logical axis names, but {source} has none: pass them with --spec"
        if mesh and not self.axes and not self.specs and (unknown := set(logical).difference(mesh)):
            rule = printable(f"{next(name for name in logical if name in unknown)}={next(iter(mesh))}")
            yield f"--mesh needs --axes for the logical axis names of {source}, such as {rule}"


def _logical_rules(text: str) -> Any:
    """Return rules for logical axis names: those in the text, or in a JSON file."""
    from jax_array_info_core.layouts.notation import parse_logical_axes
    from jax_array_info_core.stored.reading import Budget, json_text, parse_json, read_whole

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
    from jax_array_info_core.layouts.notation import parse_rule

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
