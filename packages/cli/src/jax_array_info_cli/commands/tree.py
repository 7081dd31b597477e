"""``jai-cli tree``: the leaves of a tree in a file, as it is sharded or as planned."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

from ..output import Output, output_options
from ..usage import Problems
from .help import Command
from .tree_options import WRITE_MODEL, Planned, planned_tree

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from jax_array_info.export.document import Part
    from jax_array_info_core.reports.tree_rows import Sort


@click.command(
    cls=Command,
    question="How is every leaf of a checkpoint or a saved tree sharded, and what does a device hold?",
    examples=(
        WRITE_MODEL,
        "jai-cli tree model.npz",
        "jai-cli tree model.npz --mesh fsdp=4,tensor=2 --spec 'embed=fsdp,tensor'",
        "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
        "jai-cli tree plan.json --depth 1 --sort waste",
    ),
)
@planned_tree
@click.option(
    "--depth", type=click.IntRange(min=1), help="Fold leaves with more keys than this into one row."
)
@click.option(
    "--sort",
    type=click.Choice(("tree", "waste")),
    default="tree",
    show_default=True,
    help="Order of the leaves: as in the tree, or by the bytes that further sharding would save.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Fold the leaves beyond this number of rows into one.",
)
@output_options
def tree(planned: Planned, depth: int | None, sort: Sort, max_rows: int, output: Output) -> None:
    """Show the shape, sharding and bytes per device of every leaf of a tree.

    FILE is a report in JSON (from --output plan.json, or from save_tree in Python), MaxText's
    named_shardings.json or logical_shardings.json, a .safetensors file or its .safetensors.index.json, an
    .npz file, or the directory of an Orbax checkpoint: an item, a step, or the root with all steps.

    Only headers and metadata are read, not the arrays. JAX is not imported.

    --mesh, --spec and --axes plan another sharding. Leaves that no --spec matches keep theirs. An axis that
    does not divide evenly is reported with its padding.

    --depth, --sort and --max-rows do not apply to --format json, which has all leaves.
    """
    problems = Problems()
    arguments = planned.arguments(problems)
    problems.refuse()
    output.require_place()
    from jax_array_info_core import tree_report

    read = planned.read(arguments, problems)
    report = problems.catch("", functools.partial(tree_report, read, **arguments))
    problems.refuse()
    assert report is not None
    from jax_array_info.tables.trees import tree_table

    def table(width: int) -> RenderableType:
        return tree_table(report, depth=depth, sort=sort, max_rows=max_rows, width=width)

    def print_text(console: Console) -> None:
        console.print(table(console.width), highlight=False)

    def parts() -> list[list[Part]]:
        from jax_array_info.export.tree_html import TreePart

        # Only the order of the tree can be folded by prefix.
        return [[table(80) if sort == "waste" else TreePart(report, depth=depth, max_rows=max_rows)]]

    output.show([[report]], print_text, parts)
