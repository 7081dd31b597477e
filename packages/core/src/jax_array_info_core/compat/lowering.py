"""Programs lowered for devices that are not here: for a topology, and for Shardy on any mesh."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import TopologyError, UnsupportedValueError
from ..geometry.layouts.spec import Spec, mesh_sizes
from . import private
from .programs import lowered_devices, platforms_of
from .shardings import default_memory_kind, has_devices, is_named
from .stages import Stages
from .topologies import (
    has_regular_slices,
    mesh_order,
    require_support,
    slices_along,
    topology_devices,
    topology_of,
)
from .topology_names import Topology, require_devices
from .values import is_abstract_mesh, is_mesh, is_sharding, type_name

SHARDINGS = ("in_shardings", "out_shardings", "intermediate_shardings")

# Autotuning would measure kernels on a GPU, and Triton is compiled for the GPU that is here.
_GPU_OPTIONS = (("xla_gpu_autotune_level", 0), ("xla_gpu_enable_triton_gemm", False))

FAST = {"xla_backend_optimization_level": 0}
"""Options with which the CPU backend compiles in half the time, to the same collectives and temporaries."""

_CALLBACK_ERROR = "is different from the lowering platform"


class Lowering(NamedTuple):
    """A program that is lowered for a topology."""

    lowered: Any
    """A ``jax.stages.Lowered``. Its ``compile`` returns a program for the topology, which cannot run."""

    traced_on: str | None
    """Devices with which the function was traced: a platform such as ``CPU``, or another topology. None if
    they are those of the topology."""


def lowered_for_topology(traced: Any, topology: Topology, dcn: Mapping[str, int] | None = None) -> Lowering:
    """Lower a traced function for a topology.

    The mesh is placed on a TPU as ``ordered_devices`` places it; a mesh whose devices are not in the order of
    their ids keeps its order. A mesh of the topology itself is kept.

    Args:
        traced: A ``jax.stages.Traced``.
        topology: The topology.
        dcn: Number of slices along mesh axes, as in ``ordered_devices``.

    Raises:
        TopologyError: If the topology does not have as many devices as the program, or needs a
            compiler that is not installed; or if several axes of the mesh can span the slices.
    """
    import jax

    require_support(topology)
    lowered = _lowered(traced, topology)
    try:
        places = lowered_devices(lowered)
        target = topology_of(places[0]) if places else None
        if target == topology:
            return Lowering(lowered, None)
        platform = str(places[0].platform).upper() if places else "CPU"
        return Lowering(_on_topology(lowered, topology, dcn), target.text if target else platform)
    except (AttributeError, KeyError) as error:
        raise TopologyError(
            f"topology {topology.name}: not supported on JAX {jax.__version__}, which lacks {error}: "
            "use a newer JAX"
        ) from error


def _lowered(traced: Any, topology: Topology) -> Any:
    """Lower a traced function for the platform of a topology, on the devices of its arguments."""
    try:
        lowered = traced.lower(lowering_platforms=("cuda" if topology.is_gpu else "tpu",))
    except ValueError as error:
        if _CALLBACK_ERROR not in str(error):
            raise
        raise TopologyError(_callback_problem(topology)) from error
    if lowered._lowering.compile_args.get("host_callbacks"):  # up to JAX 0.5
        raise TopologyError(_callback_problem(topology))
    return lowered


def _callback_problem(topology: Topology) -> str:
    """Return the message for a program that calls back into Python."""
    return (
        f"topology {topology.name}: JAX cannot compile a host callback for it: remove jax.debug.print, "
        "jax.debug.callback, io_callback and pure_callback from the function"
    )


def _on_topology(lowered: Any, topology: Topology, dcn: Mapping[str, int] | None = None) -> Any:
    """Return a lowered program with the devices of a topology."""
    arguments = dict(lowered._lowering.compile_args)
    shardings = [*itertools.chain.from_iterable(arguments[name] or () for name in SHARDINGS)]
    places = lowered_devices(lowered)
    count = len(places) or int(arguments["num_devices"])
    require_devices(topology, count, "the mesh" if _meshes(shardings) else "the program")
    devices = topology_devices(topology)
    ordered = _in_mesh_order(devices, places, _meshes(shardings), topology, dcn)
    placed = _Placement(dict(zip(places, ordered, strict=False)), ordered)
    for name in SHARDINGS:
        if arguments[name] is not None:
            arguments[name] = tuple(map(placed.sharding, arguments[name]))
    arguments["context_mesh"] = placed.mesh(arguments["context_mesh"])
    arguments["backend"] = devices[0].client
    device_list = private("lib").xla_client.DeviceList(tuple(ordered))
    if "device_assignment" not in arguments:
        return copied(lowered, compile_args=arguments, _executable=None, _device_list=device_list)
    arguments["device_assignment"] = device_list  # up to JAX 0.7
    return copied(lowered, compile_args=arguments, _executable=None)


def copied(lowered: Any, **changed: Any) -> Any:
    """Return a copy of a lowered program with other private attributes of its computation."""
    result, computation = copy.copy(lowered), copy.copy(lowered._lowering)
    for name, value in changed.items():
        setattr(computation, name, value)
    result._lowering = computation
    return result


def requested_outputs(lowered: Any) -> list[Any]:
    """Return the shardings that a program requests for its outputs; None for those that XLA chooses."""
    import jax

    rows = lowered._lowering.compile_args["out_shardings"]
    return [row if isinstance(row, jax.sharding.Sharding) else None for row in rows]


def with_compiler_options(lowered: Any, topology: Topology | None) -> Any:
    """Return a lowered program with the options of a compiler that has no device."""
    if topology is None or not topology.is_gpu:
        return lowered
    options = (*_GPU_OPTIONS, *lowered._lowering._compiler_options_kvs)
    return copied(lowered, _compiler_options_kvs=options, _executable=None)


def _meshes(shardings: Sequence[Any]) -> list[Any]:
    """Return the meshes of shardings, the largest first."""
    meshes = [sharding.mesh for sharding in shardings if is_sharding(sharding) and is_named(sharding)]
    return sorted(meshes, key=lambda mesh: -mesh.size)


def _in_mesh_order(
    devices: Sequence[Any],
    places: Sequence[Any],
    meshes: Sequence[Any],
    topology: Topology,
    dcn: Mapping[str, int] | None,
) -> list[Any]:
    """Return the devices of a topology in the order of the program's devices.

    Raises:
        TopologyError: If the mesh cannot have its slices along the axes that are asked for.
    """
    ids = [device.id for device in places]
    is_whole = bool(meshes) and meshes[0].size == len(devices)
    if dcn and not (is_whole and ids == sorted(ids)):
        raise TopologyError(
            f"topology {topology.name}: dcn needs a mesh of all devices in order of their ids: leave it out"
        )
    if not is_whole:
        return list(devices)
    if ids != sorted(ids) and not topology.is_gpu:
        kept = [devices[rank] for rank in np.argsort(np.argsort(ids))]
        slices_of = np.array([getattr(device, "slice_index", 0) for device in kept])
        if not has_regular_slices(slices_of.reshape(tuple(meshes[0].shape.values()))):
            raise TopologyError(
                f"topology {topology.name}: the devices of the mesh are not in the order of their ids, so "
                "that its axes have unequal parts of the slices, which libtpu does not compile: use "
                "topology_mesh"
            )
        return kept
    sizes = dict(meshes[0].shape)
    slices = slices_along(topology, sizes, dcn)
    if topology.is_gpu:
        return list(devices)  # XLA accepts GPUs in order only
    try:
        return list(mesh_order(devices, sizes, slices).ravel())
    except (ValueError, NotImplementedError):
        # No assignment of the mesh's axes to the axes of the torus.
        return list(devices)


class _Placement:
    """Devices of a topology in the places of others."""

    def __init__(self, moved: Mapping[Any, Any], ordered: Sequence[Any]) -> None:
        self._moved = moved
        self._ordered = ordered

    def mesh(self, mesh: Any) -> Any:
        """Return a mesh on the topology; anything else unchanged."""
        import jax

        if not is_mesh(mesh) or getattr(mesh, "empty", False):
            return mesh
        shape = tuple(mesh.shape.values())
        if is_abstract_mesh(mesh):
            if mesh.size != len(self._ordered):
                return mesh
            devices = np.array(self._ordered, object).reshape(shape)
        else:
            devices = np.array([self._moved[device] for device in mesh.devices.flat], object).reshape(shape)
        types = getattr(mesh, "axis_types", None)
        # In JAX 0.4.38 and 0.5.3, the types are a dict that the constructor does not always accept.
        if types is None or isinstance(types, dict):
            return jax.sharding.Mesh(devices, mesh.axis_names)
        return jax.sharding.Mesh(devices, mesh.axis_names, axis_types=types)

    def sharding(self, sharding: Any) -> Any:
        """Return a sharding on the topology; JAX's markers of an unspecified one unchanged."""
        import jax

        if not is_sharding(sharding):
            return sharding
        if is_named(sharding):
            return jax.sharding.NamedSharding(
                self.mesh(sharding.mesh),
                sharding.spec,
                memory_kind=_memory_kind(sharding),
                _logical_device_ids=getattr(sharding, "_logical_device_ids", None),
            )
        devices = [self._moved[device] for device in sharding._device_assignment]
        if len(devices) == 1:
            return jax.sharding.SingleDeviceSharding(devices[0], memory_kind=_memory_kind(sharding))
        if hasattr(sharding, "_hlo_sharding"):
            kinds = {"memory_kind": _memory_kind(sharding)}
            return type(sharding)(devices, sharding._hlo_sharding, **kinds)
        raise AttributeError(f"a way to place a {type_name(sharding)}")


def _memory_kind(sharding: Any) -> str | None:
    """Return the memory kind of a sharding; None for the default of its devices."""
    kind = sharding.memory_kind
    if kind is None or is_abstract_mesh(getattr(sharding, "mesh", None)):
        return None
    return None if kind == default_memory_kind(next(iter(sharding.device_set))) else str(kind)


OLDEST = (0, 10, 1)
"""Before this version of JAX, Shardy lacks passes, ends the process, or tells no origins."""


def require_shardy(stages: Stages | None = None) -> None:
    """Raise UnsupportedValueError if Shardy is missing or switched off, or the stages are compiled alone."""
    import jax

    if jax.__version_info__ < OLDEST:
        raise UnsupportedValueError(
            f"why a value is sharded needs JAX 0.10.1 or later: this is {jax.__version__}"
        )
    if not getattr(jax.config, "jax_use_shardy_partitioner", True):
        raise UnsupportedValueError("Shardy is off: set jax_use_shardy_partitioner to True")
    if stages is not None and stages.traced is None and stages.lowered is None:
        raise UnsupportedValueError(
            "a Compiled has no origins: pass the function, or a jax.stages.Traced or Lowered"
        )


def require_types() -> None:
    """Raise UnsupportedValueError if values have no types, whose meshes changes are written with."""
    import jax

    if not hasattr(jax, "typeof"):
        raise UnsupportedValueError(f"jai-cli advise needs JAX 0.6 or later: this is {jax.__version__}")


def lowered_for_propagation(stages: Stages, values: Sequence[Any]) -> tuple[Stages, str]:
    """Return the stages with a lowered program, and its platform.

    A program of a mesh without devices is lowered for TPUs.

    Args:
        stages: The stages of the program, as far as they exist.
        values: The leaves of its arguments.

    Raises:
        UnsupportedValueError: If Shardy is missing or switched off, or the program is compiled already.
    """
    import jax

    require_shardy(stages)
    given: list[Any] = [getattr(value, "sharding", None) for value in values]
    shardings = [sharding for sharding in given if is_sharding(sharding)]
    device = next((next(iter(sharding.device_set)) for sharding in shardings if has_devices(sharding)), None)
    is_abstract = any(is_named(sharding) and not has_devices(sharding) for sharding in shardings)
    platform = "tpu" if is_abstract else str((device or jax.devices()[0]).platform)
    if stages.lowered is None:
        platforms = {"lowering_platforms": (platform,)} if is_abstract else {}
        try:
            stages = stages._replace(lowered=stages.traced.lower(**platforms))
        except ValueError as error:  # an AbstractMesh in the function's own shardings
            if "lowering_platforms" not in str(error):
                raise
            stages = stages._replace(lowered=stages.traced.lower(lowering_platforms=("tpu",)))
    known = platforms_of(stages.lowered)
    return stages, str(known[0]) if known else platform


def mesh_of_jax(mesh: Any) -> Any:
    """Return a mesh as JAX takes it: of a mapping, an AbstractMesh whose axes are of type Auto.

    Args:
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.
    """
    import jax

    if is_mesh(mesh):
        return mesh
    sizes = mesh_sizes(mesh)
    if not hasattr(jax.sharding, "AxisType"):  # up to JAX 0.5
        older: Any = jax.sharding.AbstractMesh
        return older(tuple(sizes.items()))
    types = (jax.sharding.AxisType.Auto,) * len(sizes)
    return jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=types)


def sharded_struct(leaf: Any, mesh: Any, spec: Spec, memory_kind: str | None) -> Any:
    """Return a ShapeDtypeStruct with a NamedSharding.

    Args:
        leaf: An array or a ShapeDtypeStruct.
        mesh: A mesh of JAX.
        spec: The spec.
        memory_kind: Memory of the sharding; None for that of the devices.
    """
    import jax

    entries: list[Any] = [names[0] if len(names) == 1 else names or None for names in spec.axes]
    for dim in spec.unconstrained:
        entries[dim] = jax.sharding.PartitionSpec.UNCONSTRAINED
    unreduced: dict[str, Any] = {"unreduced": set(spec.unreduced)} if spec.unreduced else {}
    try:
        partition_spec = jax.sharding.PartitionSpec(*entries, **unreduced)
    except TypeError:
        raise UnsupportedValueError(f"{spec}: this version of JAX has no unreduced mesh axes") from None
    try:
        sharding = jax.sharding.NamedSharding(mesh, partition_spec, memory_kind=memory_kind)
    except ValueError as error:  # the devices of the mesh lack this memory
        raise UnsupportedValueError(str(error)) from None
    weak_type = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak_type)
