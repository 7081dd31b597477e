"""``jai-cli show``, ``mesh`` and ``explain``: arrays, meshes and shardings that do not have to exist."""

from __future__ import annotations

import math
from typing import Any

import click

from jax_array_info_core.base.quantities import format_number

from ..output import Output, Problems, output_options, refused
from ..reporting import Answer, Command, report_command


@report_command(
    "jai-cli show 16384,16384 --mesh data=4,model=2 --spec data,model",
    'jai-cli show 64,64 --mesh x=2,y=4 --spec \'P("x")\' --spec \'P(("x","y"))\'',
    "jai-cli show 4096,4096 --mesh data=256 --spec data --device 0 --device 255",
    "jai-cli show 8192,1024 --mesh x=8 --spec -,x --dtype int4 --format json",
    "jai-cli show 4096,4096 --mesh x=4,y=8 --spec x,y --output plan.svg",
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
@click.option("--dtype", help="A NumPy or ml_dtypes dtype. Default: float32, or that of SHAPE.")
@click.option(
    "--device",
    "devices",
    type=int,
    multiple=True,
    help="Also print the slice on this device. Can be repeated.",
)
def show(
    shape: str, mesh: str, specs: tuple[str, ...], dtype: str | None, devices: tuple[int, ...]
) -> Answer:
    """Show the slice of an array that each device would hold.

    SHAPE is the global shape, such as 16384,16384, or a type, such as 'bfloat16[8192,8192]'. Devices are
    numbered 0 to n-1; the last mesh axis varies fastest. JAX is not imported, so no backend starts. For
    each --spec, --format json prints one line of JSON, followed by one line for each --device.

    If there are more than 256 shards, the devices of each shard are listed below the picture. There, k is
    the index of a shard along its axis, starting at 0. For example, with 0,1 + 2k, shard 3 is on devices
    6 and 7.
    """
    from jax_array_info_core import dtype_bits, planned_report, shard_report
    from jax_array_info_core.arrays.plans import strict_problems
    from jax_array_info_core.geometry.layouts.notation import parse_array
    from jax_array_info_core.layouts import parse_mesh, parse_shape, parse_spec

    problems = Problems()
    array = problems.catch("SHAPE", parse_array, shape) if "[" in shape else None
    lengths = problems.catch("SHAPE", parse_shape, shape) if "[" not in shape else array and array.shape
    if array is not None and any(array.spec.axes):
        problems.add([f"SHAPE has a spec: jai-cli explain {shape!r} --mesh {mesh} shows it"])
    if array is not None and dtype not in (None, array.dtype):
        problems.add([f"SHAPE has the dtype {array.dtype}: omit --dtype {dtype}"])
    dtype = array.dtype if array is not None else dtype or "float32"
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
        for spec in known:
            like = (0,) * len(spec.axes) if lengths is None else lengths
            problems.add(strict_problems(like, sizes, spec))
    problems.refuse()
    assert lengths is not None
    assert sizes is not None
    planned = [planned_report(lengths, sizes, spec, dtype=dtype, name=str(spec)) for spec in known]
    return Answer([[report, *(shard_report(report, device) for device in devices)] for report in planned])


@report_command(
    "jai-cli mesh data=2,fsdp=4 --hosts 2",
    "jai-cli mesh data=8,model=8 --hosts 16 --format json",
    "jai-cli mesh data=4,model=8 --hosts 8 --output mesh.svg",
)
@click.argument("mesh")
@click.option(
    "--topology",
    metavar="NAME",
    help="A TPU or GPU topology, such as v5p:2x2x4, v5p-128, 2*v5p:2x2x1 or h100:16. Needs libtpu, or JAX's"
    " CUDA plugin.",
)
@click.option(
    "--dcn",
    metavar="AXES",
    help="Slices along mesh axes, such as data=2. Can be left out if only one axis can hold the slices.",
)
@click.option("--hosts", type=int, help="Number of hosts, with devices in order. Needs no packages.")
def mesh(mesh: str, topology: str | None, dcn: str | None, hosts: int | None) -> Answer:
    """Show which devices of a mesh share a host or a slice, and what connects them along each axis.

    MESH has the mesh axes and their sizes, such as data=2,fsdp=4. With --topology, devices are in the order
    of jax.make_mesh, or for several slices of mesh_utils.create_hybrid_device_mesh. Neighbors are devices
    at consecutive positions of an axis.
    """
    from jax_array_info_core import planned_mesh_report
    from jax_array_info_core.errors import ArrayInfoError
    from jax_array_info_core.layouts import parse_mesh

    problems = Problems()
    sizes = problems.catch("MESH", parse_mesh, mesh)
    slices = problems.catch("--dcn", parse_mesh, dcn)
    problems.refuse()
    assert sizes is not None
    with refused(ArrayInfoError):
        return Answer(planned_mesh_report(sizes, topology=topology, dcn=slices, hosts=hosts))


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
    from jax_array_info_core.arrays.plans import xla_reports
    from jax_array_info_core.facts.reports.codes import Code, code_of
    from jax_array_info_core.layouts import parse_mesh, parse_shape

    problems = Problems()
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    lengths = problems.catch("--shape", parse_shape, shape)
    subject = problems.catch("TEXT", lambda: code_of(text) or xla_reports(text, sizes, lengths))
    if isinstance(subject, Code) and (mesh is not None or shape is not None):
        problems.add(["the code of a finding has neither a mesh nor a shape"])
    problems.refuse()
    if isinstance(subject, Code) and output.format == "json":
        import json  # only codes need it

        output.write(json.dumps({**subject._asdict(), "page": subject.page, "text": subject.text}) + "\n")
    else:
        columns: list[list[Any]] = [[subject]] if isinstance(subject, Code) else [subject or []]
        output.show(columns)
