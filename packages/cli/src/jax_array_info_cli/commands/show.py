"""``jai-cli show`` and ``jai-cli explain``: shardings on a mesh that does not have to exist."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from jax_array_info_core.quantities import format_number

from ..output import Output, output_options
from ..reporting import Command
from ..usage import Problems

if TYPE_CHECKING:
    from jax_array_info_core.layouts import Spec
    from jax_array_info_core.reports import Report


@click.command(
    cls=Command,
    question="Which slice would each device hold on a mesh I don't have?",
    examples=(
        "jai-cli show 16384,16384 --mesh data=4,model=2 --spec data,model",
        'jai-cli show 64,64 --mesh x=2,y=4 --spec \'P("x")\' --spec \'P(("x","y"))\'',
        "jai-cli show 4096,4096 --mesh data=256 --spec data --device 0 --device 255",
        "jai-cli show 8192,1024 --mesh x=8 --spec -,x --dtype int4 --format json",
        "jai-cli show 4096,4096 --mesh x=4,y=8 --spec x,y --output plan.svg",
    ),
)
@click.argument("shape")
@click.option("--mesh", required=True, help="Mesh axes and their sizes, such as data=4,model=2.")
@click.option(
    "--spec",
    "specs",
    multiple=True,
    required=True,
    help="A PartitionSpec, as JAX prints it or in short form: data,-,model+expert means"
    " P('data', None, ('model', 'expert')). Repeat the option to compare specs side by side.",
)
@click.option("--dtype", default="float32", show_default=True, help="A NumPy or ml_dtypes dtype.")
@click.option(
    "--device",
    "devices",
    type=int,
    multiple=True,
    help="Also print the slice on this device. Can be repeated.",
)
@output_options
def show(
    shape: str, mesh: str, specs: tuple[str, ...], dtype: str, devices: tuple[int, ...], output: Output
) -> None:
    """Show the slice of an array that each device would hold.

    SHAPE is the global shape, such as 16384,16384. Devices are numbered 0 to n-1; the last mesh axis
    varies fastest. JAX is not imported, so no backend starts. For each --spec, --format json prints one
    line of JSON, followed by one line for each --device.

    If there are more than 256 shards, the devices of each shard are listed below the picture. There, k is
    the index of a shard along its axis, starting at 0. For example, with 0,1 + 2k, shard 3 is on devices
    6 and 7.
    """
    from jax_array_info_core import dtype_bits, planned_report, shard_report
    from jax_array_info_core.layouts import parse_mesh, parse_shape, parse_spec

    problems = Problems()
    lengths = problems.catch("SHAPE", parse_shape, shape)
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    problems.catch("--dtype", dtype_bits, dtype)
    parsed = [problems.catch("--spec", parse_spec, text) for text in specs]
    known = [spec for spec in parsed if spec is not None]
    if sizes:
        last = math.prod(sizes.values()) - 1
        problems.add(
            f"device {device} is not in the mesh {mesh}: its devices are 0 to {format_number(last)}"
            for device in devices
            if not 0 <= device <= last
        )
        problems.add(_misfits(known, sizes, lengths))
    problems.refuse()
    assert lengths is not None
    assert sizes is not None
    columns: list[list[Report]] = []
    for spec in known:
        report = planned_report(lengths, sizes, spec, dtype=dtype, name=str(spec))
        columns.append([report, *(shard_report(report, device) for device in devices)])
    output.show(columns)


def _misfits(
    specs: Iterable[Spec], sizes: Mapping[str, int], lengths: tuple[int, ...] | None
) -> Iterator[str]:
    """Yield the problems of specs with the mesh, and with the shape if it could be read."""
    from jax_array_info_core import spec_problems, uneven_axes

    for spec in specs:
        like = (0,) * len(spec.axes) if lengths is None else lengths
        yield from spec_problems(like, sizes, spec)
        yield from map(str, uneven_axes(like, sizes, spec))


@click.command(
    cls=Command,
    question="What does this XLA sharding, or this code of a finding, mean?",
    examples=(
        "jai-cli explain JAI101",
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
    """Explain an XLA sharding: list the devices of each shard and draw a picture. Or explain a code.

    SHARDING is written as XLA prints it, such as '{devices=[4,2]<=[8]}', or the code of a finding, such as
    JAI101. JAX is not imported, so no backend starts.

    In the list, k is the index of a shard along its axis, from 0. Add the term with k to each id: with
    0,1 + 2k, shard 3 is on devices 6 and 7. 0-30:2 means every second device from 0 to 30.
    """
    from jax_array_info_core import xla_report
    from jax_array_info_core.layouts import parse_mesh, parse_shape, parse_xla_sharding
    from jax_array_info_core.reports.findings import code_of

    problems = Problems()
    code = problems.catch("SHARDING", code_of, sharding)
    if code is not None:
        if mesh is not None or shape is not None or output.format in ("svg", "html"):
            problems.add(["the code of a finding has neither a mesh, a shape nor a picture"])
        problems.refuse()
        text = f"{code}\n{code.severity}: {code.meaning}\ndocs/{code.page}\n"
        output.write(
            json.dumps({**code._asdict(), "page": code.page}) + "\n" if output.format == "json" else text
        )
        return
    problems.refuse()
    problems.catch("SHARDING", parse_xla_sharding, sharding)
    sizes = None if mesh is None else problems.catch("--mesh", parse_mesh, mesh)
    lengths = None if shape is None else problems.catch("--shape", parse_shape, shape)
    problems.refuse()
    report = problems.catch("", xla_report, sharding, sizes, lengths)
    problems.refuse()
    assert report is not None
    output.show([[report]])
