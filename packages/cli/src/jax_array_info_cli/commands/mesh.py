"""``jai-cli mesh``: which axis of a mesh crosses which wire, for a mesh that does not have to exist."""

from __future__ import annotations

import click

from ..reporting import Answer, report_command
from ..usage import Problems, Refusal, in_shell


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
    slices = None if dcn is None else problems.catch("--dcn", parse_mesh, dcn)
    problems.refuse()
    assert sizes is not None
    try:
        report = planned_mesh_report(sizes, topology=topology, dcn=slices, hosts=hosts)
    except ArrayInfoError as error:
        raise Refusal(in_shell(str(error))) from error
    return Answer(report)
