"""``jai-cli explain``: the meaning of an XLA sharding."""

from __future__ import annotations

import click

from ..output import Output, output_options
from ..usage import Problems
from .help import Command


@click.command(
    cls=Command,
    question="What does this XLA sharding mean?",
    examples=(
        "jai-cli explain '{devices=[4,1,2]<=[8] last_tile_dim_replicate}'",
        "jai-cli explain '{devices=[4,2]<=[8]}' --mesh data=4,model=2",
        "jai-cli explain '{devices=[4,2]<=[8]}' --shape 10,16",
    ),
)
@click.argument("sharding")
@click.option("--mesh", help="Also print the equivalent PartitionSpec on this mesh, such as x=4,y=2.")
@click.option(
    "--shape",
    help="Global shape of the array, such as 16,16,16. Also report axes that are not divisible by their"
    " number of shards.",
)
@output_options
def explain(sharding: str, mesh: str | None, shape: str | None, output: Output) -> None:
    """Explain an XLA sharding: list the devices of each shard and draw a picture.

    SHARDING is written as XLA prints it, such as '{devices=[4,2]<=[8]}'. JAX is not
    imported, so no backend starts.

    In the list, k is the index of a shard along its axis, from 0. Add the term with k to each id: with
    0,1 + 2k, shard 3 is on devices 6 and 7. 0-30:2 means every second device from 0 to 30.
    """
    from jax_array_info_core import parse_mesh, parse_shape, parse_xla_sharding, xla_report

    problems = Problems()
    problems.catch("SHARDING", parse_xla_sharding, sharding)
    sizes = None if mesh is None else problems.catch("--mesh", parse_mesh, mesh)
    lengths = None if shape is None else problems.catch("--shape", parse_shape, shape)
    problems.refuse()
    report = problems.catch("", xla_report, sharding, sizes, lengths)
    problems.refuse()
    assert report is not None
    output.show([[report]])
