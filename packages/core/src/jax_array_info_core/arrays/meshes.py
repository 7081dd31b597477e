"""Reports on meshes: which device is where, and what connects the devices along each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import SpecError, TopologyError, UnsupportedValueError
from ..base.quantities import counted, format_number
from ..base.text import plain_text
from ..compat import values
from ..compat.shardings import device_placement, device_places, mesh_placement
from ..compat.topologies import ordered_devices, usual_order
from ..compat.topology_names import parse_topology
from ..facts.reports.findings import Finding, reported
from ..facts.reports.mesh import MeshReport
from ..geometry.layouts.layout import Processes, mesh_layout
from ..geometry.layouts.links import AxisLinks, Places, mesh_links
from ..geometry.layouts.spec import MeshAxes, mesh_sizes
from .plans import planned_axes, spec_layout


def mesh_report(mesh: Any) -> MeshReport:
    """Return the report of a mesh: its axes, the positions of its devices, and the links between them.

    Where a mesh of devices crosses hosts, slices or processes along an axis, and the order of
    ``jax.make_mesh`` would not, the report has a finding.

    Args:
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name. Without devices, links are
            unknown.

    Raises:
        UnsupportedValueError: (a ValueError) If ``mesh`` is not one of these.
    """
    if not values.is_mesh(mesh):
        return planned_mesh_report(mesh)
    axes, ids, platform, processes = mesh_placement(mesh)
    layout = mesh_layout(axes.sizes, axes.shape, [(name,) for name in axes.names], ids, platform, processes)
    if ids is None:
        return MeshReport(axes=axes, layout=layout)
    devices = mesh.devices.ravel().tolist()
    places = device_places(devices)
    links = mesh_links(places, axes.shape)
    return MeshReport(
        axes=axes,
        layout=layout,
        links=links,
        hosts=_hosts(ids, places),
        slices=_owners(ids, places.slices),
        findings=reported([_crossing(axes, devices, links)], ()),
    )


def planned_mesh_report(
    mesh: Any,
    *,
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    hosts: int | None = None,
) -> MeshReport:
    """Return the report of a mesh that is not here. No devices are needed.

    Without a topology, devices are numbered 0…n−1 in the order of the mesh. With one, they are those of the
    topology, in JAX's own order: that of ``jax.make_mesh``, or for several slices that of
    ``mesh_utils.create_hybrid_device_mesh``. ``order`` of the report says which.

    Args:
        mesh: Size of each mesh axis by name; or a Mesh or an AbstractMesh, whose devices do not count.
        topology: TPU or GPU topology, such as ``v5p:2x2x4``, ``v5p-128`` or ``2*v5p:2x2x1``. Needs libtpu or
            JAX's CUDA plugin.
        dcn: Number of slices along each mesh axis, such as ``{"data": 2}``; other axes have 1. May be left
            out if only one axis can hold the slices.
        hosts: Number of hosts, each with the same number of consecutive devices. Needs no packages.

    Raises:
        SpecError: (a ValueError) If the size of an axis is less than 1, the mesh has more than 1,048,576
            devices, or they cannot be divided among the hosts.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices, or needs
            a package that is not installed; or the slices do not fit the mesh.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh, or ``hosts`` not an integer.

    >>> planned_mesh_report({"data": 2, "model": 2}).layout.device_ids[..., 0].tolist()
    [[0, 1], [2, 3]]
    >>> report = planned_mesh_report({"data": 2, "model": 4}, hosts=2)
    >>> [(links.axis, links.leaves_host) for links in report.links]
    [('data', 'always'), ('model', 'never')]
    """
    sizes = mesh_sizes(mesh)
    layout = spec_layout(tuple(sizes.values()), sizes, tuple(sizes))
    axes = planned_axes(sizes)
    if topology is not None and hosts is not None:
        raise UnsupportedValueError("a topology has hosts of its own: pass either topology or hosts")
    if topology is None and dcn is not None:
        raise UnsupportedValueError("dcn divides the slices of a topology: pass topology, too")
    if topology is not None:
        return _on_topology(axes, topology, dcn)
    if hosts is None:
        return MeshReport(axes=axes, layout=layout)
    count = layout.device_ids.size
    owners = np.repeat(np.arange(hosts), devices_per_host(count, hosts))
    return MeshReport(
        axes=axes,
        layout=layout,
        links=mesh_links(Places(hosts=owners), sizes),
        hosts=_owners(np.arange(count), owners),
        order="ascending ids",
    )


def devices_per_host(count: int, hosts: Any) -> int:
    """Return the number of devices of each host.

    Raises:
        SpecError: (a ValueError) If the devices cannot be divided among the hosts.
        UnsupportedValueError: (a ValueError) If ``hosts`` is not an integer.
    """
    if isinstance(hosts, bool) or not isinstance(hosts, int | np.integer):
        raise UnsupportedValueError(f"hosts is a number of hosts, got {plain_text(hosts, repr)}")
    if hosts < 1 or count % hosts:
        few = ", ".join(str(size) for size in range(1, min(count, 64) + 1) if count % size == 0)
        raise SpecError(
            [
                f"{counted(count, 'device', 'devices')} cannot be divided among {format_number(int(hosts))} "
                f"hosts: use a divisor of {format_number(count)}, such as {few}"
            ]
        )
    return count // int(hosts)


def _on_topology(axes: MeshAxes, topology: str, dcn: Mapping[str, int] | None) -> MeshReport:
    """Return the report of a mesh on a topology."""
    parsed_topology = parse_topology(topology)
    try:
        ordered, order = ordered_devices(parsed_topology, axes.shape, dcn)
    except TopologyError:
        # jax.make_mesh refuses axes that share a side of the torus.
        ordered, order = ordered_devices(parsed_topology, axes.shape, dcn, splits_axes=True)
        order += ", allow_split_physical_axes=True"
    devices = ordered.ravel().tolist()
    ids, platform, processes = device_placement(devices)
    places = device_places(devices)
    names = [(name,) for name in axes.names]
    return MeshReport(
        axes=axes,
        layout=mesh_layout(axes.sizes, axes.shape, names, ids.reshape(axes.sizes), platform, processes),
        links=mesh_links(places, axes.shape),
        hosts=_hosts(ids, places),
        slices=_owners(ids, places.slices),
        topology=parsed_topology.name,
        order=order,
    )


def _hosts(ids: NDArray[Any], places: Places) -> Processes:
    """Return the device ids of each host; empty for one host, and where hosts are not known."""
    return () if places.are_processes else _owners(ids, places.hosts)


def _owners(ids: NDArray[Any], owners: NDArray[Any] | None) -> Processes:
    """Return the device ids of each owner in ascending order; empty for one owner."""
    if owners is None or (owners == owners[0]).all():
        return ()
    flat = ids.ravel()
    if (np.diff(owners) < 0).any() or (np.diff(flat) < 0).any():
        order = np.lexsort((flat, owners))
        flat, owners = flat[order], owners[order]
    starts = np.flatnonzero(np.diff(owners, prepend=owners[0] - 1))
    devices, ends = tuple(flat.tolist()), [*starts[1:].tolist(), flat.size]
    numbers = zip(owners[starts].tolist(), starts.tolist(), ends, strict=True)
    return tuple((number, devices[start:end]) for number, start, end in numbers)


def _crossing(axes: MeshAxes, devices: Sequence[Any], links: Sequence[AxisLinks]) -> Finding | None:
    """Return the finding for axes that cross hosts, and would not in JAX's order of the devices."""
    if all(link.leaves_host == "never" for link in links):
        return None
    slices = _usual_slices(axes, len({getattr(device, "slice_index", 0) for device in devices}), links)
    usual = usual_order(devices, axes.shape, slices)
    if usual is None:
        return None
    order = "jax.make_mesh" if slices is None else "mesh_utils.create_hybrid_device_mesh"
    problems = {}
    for here, there in zip(links, mesh_links(device_places(usual.ravel().tolist()), axes.shape), strict=True):
        for noun, count, usual_count in (
            ("slices", here.groups_over_slices, there.groups_over_slices),
            ("hosts", here.groups_over_hosts, there.groups_over_hosts),
            ("processes", here.groups_over_processes, there.groups_over_processes),
        ):
            if count and not usual_count and here.axis not in problems:
                groups = counted(here.group_count, "group", "groups")
                problems[here.axis] = (
                    f"Mesh axis {here.axis!r} crosses {noun} in {format_number(count)} of {groups}; in the "
                    f"order of {order} it does not."
                )
    if not problems:
        return None
    if slices is None:
        call = f"{order}({axes.sizes!r}, {axes.names!r})"
    else:
        within = tuple(size // slices[name] for name, size in axes.shape.items())
        call = f"{order}({within!r}, {tuple(slices.values())!r})"
    return Finding(
        kind="axis across hosts",
        problem=" ".join(problems.values()),
        remedy=f"Order the devices with {call}.",
        mesh_axes=tuple(problems),
    )


def _usual_slices(axes: MeshAxes, slice_count: int, links: Sequence[AxisLinks]) -> dict[str, int] | None:
    """Return the slices along each axis, all along one that can hold them; None for one slice."""
    able = [link for link in links if axes.shape[link.axis] % slice_count == 0]
    if slice_count == 1 or not able:
        return None
    # A slice of GPUs counts as a host.
    spanning = max(
        able, key=lambda link: (link.groups_over_slices, link.groups_over_hosts or 0, -link.group_count)
    )
    return {name: slice_count if name == spanning.axis else 1 for name in axes.names}
