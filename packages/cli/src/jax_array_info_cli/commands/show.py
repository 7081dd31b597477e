"""``jai-cli show``: an array that does not exist yet, on a mesh that need not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from ..problems import Problems

if TYPE_CHECKING:
    from jax_array_info_core import ArrayReport, ShardReport

MAX_DEVICES = 2**20


@click.command()
@click.argument("shape")
@click.option("--mesh", required=True, help="Axes and sizes, such as data=4,model=2.")
@click.option(
    "--spec",
    "specs",
    multiple=True,
    required=True,
    help="A PartitionSpec, as JAX prints it or as data,-,model+expert. Several are shown side by side.",
)
@click.option("--dtype", default="float32", show_default=True, help="A dtype of numpy or ml_dtypes.")
@click.option("--device", "devices", type=int, multiple=True, help="Say what this device holds.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(
    shape: str, mesh: str, specs: tuple[str, ...], dtype: str, devices: tuple[int, ...], output: str
) -> None:
    """Show which device would hold which part of an array of SHAPE, such as 16384,16384.

    Devices are numbered 0 to n-1, the last mesh axis fastest. JAX is not needed. In JSON there is
    a report a line.
    """
    from jax_array_info_core import (
        dtype_bits,
        parse_mesh,
        parse_shape,
        parse_spec,
        planned_report,
        shard_report,
    )

    problems = Problems()
    lengths = problems.catch("SHAPE", parse_shape, shape)
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    if sizes and math.prod(sizes.values()) > MAX_DEVICES:
        problems.add(f"--mesh has {math.prod(sizes.values())} devices, more than {MAX_DEVICES}")
        sizes = None
    problems.catch("--dtype", dtype_bits, dtype)
    plans: list[tuple[ArrayReport, list[ShardReport]]] = []
    for text in specs:
        spec = problems.catch("--spec", parse_spec, text)
        if spec is None or lengths is None or sizes is None:
            continue
        report = problems.catch("", planned_report, lengths, sizes, spec, dtype=dtype, name=str(spec))
        if report is not None:
            parts: list[ShardReport] = []
            for device in devices:
                part = problems.catch("--device", shard_report, report, device)
                parts += [part] if part is not None else []
            plans.append((report, parts))
    problems.refuse()
    from ..output import print_json, print_side_by_side

    if output == "json":
        for report, parts in plans:
            print_json([report, *parts])
    else:
        print_side_by_side(plans)
