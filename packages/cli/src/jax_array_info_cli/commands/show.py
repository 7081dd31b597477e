"""``jai-cli show``: an array that does not exist yet, on a mesh that need not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from ..output import Output, output_options
from ..problems import Problems

if TYPE_CHECKING:
    from jax_array_info.drawing.pictures import Part
    from jax_array_info_core import Report


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
@output_options
def show(
    shape: str, mesh: str, specs: tuple[str, ...], dtype: str, devices: tuple[int, ...], output: Output
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
        spec_problems,
        uneven_axes,
    )

    problems = Problems()
    lengths = problems.catch("SHAPE", parse_shape, shape)
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    problems.catch("--dtype", dtype_bits, dtype)
    parsed = [problems.catch("--spec", parse_spec, text) for text in specs]
    known = [spec for spec in parsed if spec is not None]
    total = math.prod(sizes.values()) if sizes else 0
    problems.limit(total)
    for device in devices:
        if sizes and not 0 <= device < total:
            problems.add(f"device {device} is not in the mesh {mesh}, whose devices are 0 to {total - 1}")
    for spec in known:
        if sizes:
            like = (0,) * len(spec.axes) if lengths is None else lengths
            problems.check(spec_problems(like, sizes, spec))
            problems.check(map(str, uneven_axes(like, sizes, spec)))
    problems.refuse()
    assert lengths is not None
    assert sizes is not None
    plans = []
    for spec in known:
        report = planned_report(lengths, sizes, spec, dtype=dtype, name=str(spec))
        plans.append((report, [shard_report(report, device) for device in devices]))
    columns: list[list[Report]] = [[report, *parts] for report, parts in plans]
    from ..printing import print_side_by_side

    def drawn() -> list[list[Part]]:
        from jax_array_info.drawing.pictures import parts_of

        return [[part for report in reports for part in parts_of(report)] for reports in columns]

    every = [report for reports in columns for report in reports]
    output.show(every, lambda console: print_side_by_side(console, plans), drawn)
