"""Order of a topology's devices in a mesh, as JAX places them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TopologyError
from ..layouts.notation import format_mesh
from ..text import printable
from .topologies import topology_devices
from .topology_names import TPUS, Topology, require_devices


def ordered_devices(
    topology: Topology,
    sizes: Mapping[str, int],
    dcn: Mapping[str, int] | None = None,
    *,
    splits_axes: bool = False,
) -> tuple[Any, str]:
    """Return the devices of a topology as an array in the shape of a mesh, and the name of their order.

    Devices of one slice are in the order of ``jax.make_mesh``. Those of several slices are in the order of
    ``mesh_utils.create_hybrid_device_mesh``, which ``jax.make_mesh`` refers to.

    Args:
        topology: The topology.
        sizes: Size of each mesh axis by name, in the order of the mesh.
        dcn: Number of slices along each mesh axis that spans slices, such as ``{"data": 2}``. It divides the
            size of the axis; the rest of the axis is inside a slice. None for the only axis that can span all
            slices.
        splits_axes: Whether several mesh axes can share a side of the torus. On v5e, they always can, as in
            ``jax.make_mesh``.

    Raises:
        TopologyError: If the mesh has another number of devices than the topology, if its axes cannot be
            assigned to the slices or to the sides of the torus, or if the compiler is not installed.
    """
    require_devices(topology, math.prod(sizes.values()), "the mesh")
    slices = slices_along(topology, sizes, dcn)
    devices = topology_devices(topology)
    try:
        ordered = mesh_order(devices, sizes, slices, splits_axes=splits_axes)
    except (NotImplementedError, ValueError) as error:
        reason = printable(str(error)).rstrip(".")
        fix = "" if splits_axes else " set allow_split_physical_axes=True, or"
        raise TopologyError(f"topology {topology.name}: {reason}:{fix} change the sizes") from error
    if slices is None:
        return ordered, "mesh_utils.create_device_mesh" if splits_axes else "jax.make_mesh"
    spanning = {name: count for name, count in slices.items() if count > 1}
    return ordered, f"mesh_utils.create_hybrid_device_mesh with slices along {format_mesh(spanning)}"


def mesh_order(
    devices: Sequence[Any],
    sizes: Mapping[str, int],
    slices: Mapping[str, int] | None = None,
    *,
    splits_axes: bool = False,
) -> Any:
    """Return devices as an array in the shape of a mesh, in the order of JAX.

    Args:
        devices: The devices, as many as the mesh has.
        sizes: Size of each mesh axis by name.
        slices: Number of slices along each mesh axis; None for devices of one slice.
        splits_axes: Whether several mesh axes can share a side of the torus. On v5e, they always can, as in
            ``jax.make_mesh``.

    Raises:
        NotImplementedError: If the mesh axes cannot be assigned to the sides of the torus.
    """
    from jax.experimental import mesh_utils

    splits_axes = splits_axes or devices[0].device_kind == TPUS["v5e"].device_kind
    options = {"allow_split_physical_axes": splits_axes}
    if slices is None:
        return mesh_utils.create_device_mesh([*sizes.values()], devices, **options)
    within = [size // slices[name] for name, size in sizes.items()]
    across = [slices[name] for name in sizes]
    return mesh_utils.create_hybrid_device_mesh(within, across, devices, **options)


def usual_order(
    devices: Sequence[Any], sizes: Mapping[str, int], slices: Mapping[str, int] | None = None
) -> Any | None:
    """Return the devices of a mesh in the order of JAX, in its shape; None if JAX refuses them.

    Args:
        devices: The devices of the mesh, in any order.
        sizes: Size of each mesh axis by name.
        slices: Number of slices along each mesh axis; None for devices of one slice.
    """
    here = set(devices)
    try:
        listed = [device for device in devices[0].client.devices() if device in here]
    except AttributeError:
        listed = []
    if len(listed) != len(devices):
        listed = sorted(devices, key=lambda device: device.id)
    try:
        return mesh_order(listed, sizes, slices)
    except Exception:
        # No assignment of the axes to the sides of the torus, or devices that mesh_utils does not know.
        return None


def slices_along(
    topology: Topology, sizes: Mapping[str, int], dcn: Mapping[str, int] | None
) -> dict[str, int] | None:
    """Return the number of slices along each mesh axis; None for a topology of one slice.

    Args:
        topology: The topology.
        sizes: Size of each mesh axis by name.
        dcn: Number of slices along some axes; None for the only axis that can span all slices.

    Raises:
        TopologyError: If there are several ways, or none.
    """
    if not dcn and topology.slice_count > 1:
        able = [name for name, size in sizes.items() if size % topology.slice_count == 0]
        if len(able) != 1:
            raise TopologyError(
                f"topology {topology.name} has {topology.slice_count} slices, and "
                f"{'several axes' if able else 'no axis'} of the mesh {printable(format_mesh(sizes))} can "
                "span all of them: name the axes that span them with dcn, with the number of slices along "
                "each"
            )
        dcn = {able[0]: topology.slice_count}
    if dcn and (problem := next(_dcn_problems(topology, sizes, dcn), None)):
        raise TopologyError(f"topology {topology.name}: {problem}")
    if dcn is None or topology.slice_count == 1:
        return None
    return {name: int(dcn.get(name, 1)) for name in sizes}


def has_regular_slices(slices: NDArray[np.int64]) -> bool:
    """Return whether each group of devices along some mesh axes has as many of each slice that it is in.

    libtpu ends the process when it compiles some collectives of other groups.

    Args:
        slices: Slice of each device, in the shape of the mesh.
    """
    axes = range(slices.ndim)
    for size in range(1, slices.ndim + 1):
        for along in itertools.combinations(axes, size):
            groups = np.moveaxis(slices, along, range(-size, 0))
            for group in groups.reshape(-1, math.prod(groups.shape[slices.ndim - size :])):
                if len(set(np.unique(group, return_counts=True)[1].tolist())) > 1:
                    return False
    return True


def _dcn_problems(topology: Topology, sizes: Mapping[str, int], dcn: Mapping[str, int]) -> Iterator[str]:
    """Yield why a mesh cannot have its slices along some axes."""
    for name, count in dcn.items():
        if name not in sizes:
            yield f"dcn names {printable(repr(name))}, and the mesh has {', '.join(map(printable, sizes))}"
        elif count < 1 or sizes[name] % count:
            yield (
                f"dcn has {count} slices along mesh axis {printable(name)}, whose size "
                f"{sizes[name]} is not a multiple of it"
            )
    if math.prod(dcn.values()) != topology.slice_count:
        yield (
            f"dcn {printable(format_mesh(dcn))} has {math.prod(dcn.values())} slices, and the topology has "
            f"{topology.slice_count}"
        )
