"""Compilation of a program, for the devices at hand or for a topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..compat.compiled_calls import refused_program
from ..compat.lowering import lowered_for_topology, with_compiler_options
from ..compat.processes import only_cpu
from ..compat.programs import lowered_devices, program_record
from ..compat.stages import Stages
from ..compat.topologies import ordered_devices, topology_of
from ..compat.topology_names import GPUS, Topology, parse_topology
from ..errors import SpecError, TopologyError
from ..hlo.messages import program_in
from ..hlo.oom_logs import read_out_of_memory
from ..layouts.spec import mesh_sizes
from ..plans.plan import spec_problems
from ..quantities import bytes_apart
from ..reports.program_memory import LargeBuffer, OutOfMemory, ProgramMemory

if TYPE_CHECKING:
    import jax


class CompiledStages(NamedTuple):
    """A compiled program, or one that does not fit the memory of a device."""

    stages: Stages
    """The stages, with the compiled one unless the program was refused."""

    record: bytes | None
    """XLA's record of the program, a serialized ``HloModuleProto``; None if it is not known."""

    topology: Topology | None = None
    """The topology; None for devices of this process."""

    traced_on: str | None = None
    """Devices with which the function was traced, if they are not those of the topology: ``CPU``."""

    refusal: str = ""
    """XLA's message, if the program does not fit."""

    assignment: Any = None
    """XLA's ``BufferAssignmentProto`` of a program that does not fit; None if it is not known."""


def compiled_stages(
    stages: Stages,
    topology: Topology | None,
    dcn: Mapping[str, int] | None = None,
) -> CompiledStages:
    """Compile a program.

    Args:
        stages: The stages of the program, as far as they exist.
        topology: The topology to compile for; None for the devices of the arguments, which can be those of a
            topology too.
        dcn: Number of slices along mesh axes of a topology of several slices.

    Raises:
        TopologyError: If the topology does not fit the program, or needs a compiler that is not installed; or
            if the program is lowered or compiled already; or for an AbstractMesh without a topology.
    """
    import jax

    traced_on = None
    if topology is not None:
        if stages.traced is None:
            raise TopologyError(
                f"topology {topology.name}: the program is lowered for its own devices already: pass the "
                "function, or a jax.stages.Traced"
            )
        lowered, traced_on = lowered_for_topology(stages.traced, topology, dcn)
        stages = stages._replace(lowered=lowered)
    if stages.compiled is not None:
        return CompiledStages(stages, program_record(stages.compiled))
    if stages.lowered is None:
        try:
            stages = stages._replace(lowered=stages.traced.lower())
        except ValueError as error:
            if "AbstractMesh" not in str(error):
                raise
            raise TopologyError(
                "an AbstractMesh has no devices to compile for: pass a topology, such as "
                'topology="v5e:2x4"; print_propagation needs no devices'
            ) from error
    topology = topology or topology_of(next(iter(lowered_devices(stages.lowered)), None))
    stages = stages._replace(lowered=with_compiler_options(stages.lowered, topology))
    try:
        stages = stages._replace(compiled=stages.lowered.compile())
    except jax.errors.JaxRuntimeError as error:
        refusal = str(error)
        if read_out_of_memory(refusal) is None:
            raise
        refused = refused_program(stages.lowered)
        program, assignment = (None, None) if refused is None else program_in(refused)
        return CompiledStages(stages, program, topology, traced_on, refusal, assignment)
    return CompiledStages(stages, program_record(stages.compiled), topology, traced_on)


def gpu_shortage(topology: Topology, memory: ProgramMemory) -> OutOfMemory | None:
    """Return what a compiled program lacks on a GPU; None if it fits.

    The compiler for GPUs refuses no program.
    """
    needed, available = memory.required_nbytes, topology.memory_nbytes
    if needed is None or needed <= available:
        return None
    needs, has = bytes_apart(needed, available)
    return OutOfMemory(
        message=f"the program needs {needs} per device, and an {GPUS[topology.kind].name} has {has}",
        required_nbytes=needed,
        available_nbytes=available,
        is_program_known=True,
        buffers=tuple(
            LargeBuffer(nbytes=row.nbytes, shape=row.shape, dtype=row.dtype, origin=row.origin)
            for row in memory.temporaries
            for _ in range(row.count)
        ),
    )


def topology_mesh(
    topology: str,
    axes: Mapping[str, int],
    *,
    axis_types: Any = None,
    allow_split_physical_axes: bool = False,
    dcn: Mapping[str, int] | None = None,
) -> jax.sharding.Mesh:
    """Return a mesh of the devices of a TPU or GPU topology, for programs that are only compiled.

    Use it as any other mesh, in the shardings of ShapeDtypeStructs and inside functions. Code that asks
    ``mesh.devices.flat[0]`` for its platform or its kind gets that of the topology. With arguments on this
    mesh, ``program_report(f, *args)`` compiles for the topology. Its devices cannot hold arrays.
    ``jax.devices()`` and ``jax.default_backend()`` are still those of this process.

    Needs libtpu or JAX's CUDA plugin, but no accelerator; one that is here is neither started nor used.

    Args:
        topology: The topology, such as ``v5p:2x2x2``, ``v5p-128`` or ``h100:8``; of several TPU slices, such
            as ``2*v5p:2x2x2`` or ``4*v5p-128``.
        axes: Size of each mesh axis by name. Their product is the number of devices. The devices are in the
            order of ``jax.make_mesh``, so that neighbors in the mesh are neighbors in the torus. Those of
            several slices are in the order of ``mesh_utils.create_hybrid_device_mesh``.
        axis_types: ``axis_types`` of ``jax.sharding.Mesh``. None for its default, ``Auto``; the default of
            ``jax.make_mesh`` is ``Explicit`` in recent versions of JAX.
        allow_split_physical_axes: Whether several mesh axes can share a side of the torus, as in
            ``jax.experimental.mesh_utils.create_device_mesh``. Always the case for v5e, as in
            ``jax.make_mesh``.
        dcn: Number of slices along each mesh axis that spans slices, such as ``{"data": 2}``. None for the
            only axis whose size is a multiple of the number of slices.

    Raises:
        TopologyError: (a ValueError) If the topology is not known or has another number of devices, if the
            axes cannot be assigned to its slices or to the sides of its torus, or if its compiler is not
            installed.
        SpecError: (a ValueError) If a size is not a positive integer.

    Example: ``mesh = topology_mesh("v5p:2x2x2", {"data": 2, "model": 4})``
    """
    target = parse_topology(topology)
    sizes = mesh_sizes(axes)
    slices = None if dcn is None else mesh_sizes(dcn)
    if problems := spec_problems((), sizes, ()):
        raise SpecError(problems)
    import jax

    with only_cpu():
        ordered, _ = ordered_devices(target, sizes, slices, splits_axes=allow_split_physical_axes)
    types = {} if axis_types is None else {"axis_types": axis_types}
    return jax.sharding.Mesh(ordered, tuple(sizes), **types)
