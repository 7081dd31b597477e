"""``jai-cli explain``: a sharding as XLA or JAX prints it, or a code of findings."""

from __future__ import annotations

import json
from typing import Any

import click

from ..output import Output, output_options
from ..reporting import Command
from ..usage import Problems


@click.command(
    cls=Command,
    examples=(
        "jai-cli explain JAI101",
        "jai-cli explain full-replication",
        "jai-cli explain '{devices=[4,1,2]<=[8] last_tile_dim_replicate}'",
        "jai-cli explain '{devices=[4,2]<=[8]}' --mesh data=4,model=2",
        "jai-cli explain '{devices=[4,2]<=[8]}' --shape 10,16",
        "jai-cli explain '#sdy.sharding<@mesh, [{\"x\"}, {}]>' --mesh x=4,y=2",
        "jai-cli explain 'float32[8@x,8@y]' --mesh x=4,y=2",
    ),
)
@click.argument("text")
@click.option(
    "--mesh",
    help="Also print the equivalent PartitionSpec on this mesh, such as x=4,y=2. A sharding that names mesh"
    " axes, but not their sizes, needs it for the devices.",
)
@click.option(
    "--shape",
    help="Global shape of the array, such as 16,16,16. Also report axes that are not divisible by their"
    " number of shards.",
)
@output_options
def explain(text: str, mesh: str | None, shape: str | None, output: Output) -> None:
    """Explain a sharding: list the devices of each shard and draw a picture. Or explain a code.

    TEXT is a sharding, as copied from a program or an error, or the code or the name of a finding, such as
    JAI101. A sharding is one of XLA, such as '{devices=[4,2]<=[8]}', with or without what stands around it,
    a tuple of them, one of Shardy, such as '#sdy.sharding<@mesh, [{"x"}, {}]>', or the type of an array,
    such as 'float32[8@x,8@y]'. JAX is not imported, so no backend starts.

    In the list, k is the index of a shard along its axis, from 0. Add the term with k to each id: with
    0,1 + 2k, shard 3 is on devices 6 and 7. 0-30:2 means every second device from 0 to 30.
    """
    from jax_array_info_core.layouts import parse_mesh, parse_shape
    from jax_array_info_core.plans.plan import xla_reports
    from jax_array_info_core.reports.findings import Code, code_of

    problems = Problems()
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    lengths = problems.catch("--shape", parse_shape, shape)
    found = problems.catch("TEXT", lambda: code_of(text) or xla_reports(text, sizes, lengths))
    if isinstance(found, Code) and (mesh is not None or shape is not None):
        problems.add(["the code of a finding has neither a mesh nor a shape"])
    problems.refuse()
    if isinstance(found, Code) and output.format == "json":
        output.write(json.dumps({**found._asdict(), "page": found.page, "text": found.text}) + "\n")
    else:
        columns: list[list[Any]] = [[found]] if isinstance(found, Code) else [found or []]
        output.show(columns)
