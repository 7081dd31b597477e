"""Meshes of the devices of a topology that is not here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..compat.processes import only_cpu
from ..compat.topologies import mesh_order, topology_devices
from ..compat.topology_names import misfit, parse_topology
from ..errors import SpecError, TopologyError
from ..plans.spec_checks import mesh_sizes, spec_problems
from ..text import printable

if TYPE_CHECKING:
    import jax


def topology_mesh(
    topology: str,
    axes: Mapping[str, int],
    *,
    axis_types: Any = None,
    allow_split_physical_axes: bool = False,
) -> jax.sharding.Mesh:
    """Return a mesh of the devices of a TPU or GPU topology, for programs that are only compiled.

    Use it as any other mesh, in the shardings of ShapeDtypeStructs and inside functions. Code that asks
    ``mesh.devices.flat[0]`` for its platform or its kind gets that of the topology. With arguments on this
    mesh, ``program_report(f, *args)`` compiles for the topology. Its devices cannot hold arrays.
    ``jax.devices()`` and ``jax.default_backend()`` are still those of this process.

    Needs libtpu or JAX's CUDA plugin, but no accelerator; one that is here is neither started nor used.

    Args:
        topology: The topology, such as ``v5p:2x2x2`` or ``h100:8``.
        axes: Size of each mesh axis by name. Their product is the number of devices. The devices are in the
            order of ``jax.make_mesh``, so that neighbors in the mesh are neighbors in the torus.
        axis_types: ``axis_types`` of ``jax.sharding.Mesh``. None for its default, ``Auto``; the default of
            ``jax.make_mesh`` is ``Explicit`` in recent versions of JAX.
        allow_split_physical_axes: Whether several mesh axes can share a side of the torus, as in
            ``jax.experimental.mesh_utils.create_device_mesh``. Always the case for v5e, as in
            ``jax.make_mesh``.

    Raises:
        TopologyError: (a ValueError) If the topology is not known or has another number of devices, if the
            axes cannot be assigned to the sides of its torus, or if its compiler is not installed.
        SpecError: (a ValueError) If a size is not a positive integer.

    Example: ``mesh = topology_mesh("v5p:2x2x2", {"data": 2, "model": 4})``
    """
    target = parse_topology(topology)
    sizes = mesh_sizes(axes)
    if problems := spec_problems((), sizes, ()):
        raise SpecError(problems)
    if (count := math.prod(sizes.values())) != target.device_count:
        raise TopologyError(misfit(target, count, "the mesh"))
    import jax

    with only_cpu():
        devices = topology_devices(target)
        try:
            ordered = mesh_order(devices, sizes, splits_axes=allow_split_physical_axes)
        except (NotImplementedError, ValueError) as error:
            reason = printable(str(error)).rstrip(".")
            fix = "" if allow_split_physical_axes else " set allow_split_physical_axes=True, or"
            raise TopologyError(f"topology {target.text}: {reason}:{fix} change the sizes") from error
    types = {} if axis_types is None else {"axis_types": axis_types}
    return jax.sharding.Mesh(ordered, tuple(sizes), **types)
