"""``jai-cli diff``: leaves that differ between two trees in files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..output import Output, output_options
from .tree_options import FILE, WRITE_MODEL, read_or_refuse
from .verdict import VerdictCommand

if TYPE_CHECKING:
    from jax_array_info_core import TreeReport


@click.command(
    cls=VerdictCommand,
    question="Which leaves of a checkpoint or a plan changed?",
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
    """List the leaves that were added, removed, or changed in shape, dtype, spec or memory kind from A to B.

    A and B are files or directories as for jai-cli tree. If a step of an Orbax checkpoint has several items,
    name the directory of one. Bytes are per device.

    Exits with 0 if the trees are equal, with 1 if they differ, and with 2 if a file cannot be read or the
    output cannot be written.
    """
    output.require_place()
    from jax_array_info_core import tree_diff

    report = tree_diff(_named_tree(before), _named_tree(after))
    output.show([[report]])
    return not report.is_empty


def _named_tree(path: str) -> TreeReport:
    """Return the tree in a file, with the name of the file: two plans of one model have the same name."""
    from jax_array_info_core.text import printable

    tree, name = read_or_refuse(path), printable(path)
    # The name of an Orbax checkpoint begins with its path, and adds the step.
    return tree if (tree.name or "").startswith(name) else replace(tree, name=name)
