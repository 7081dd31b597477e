"""Compilation of a program for devices or a topology: its refusals, and what differs on another platform."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrays.origins.origins import UserLines, described_for_user
from ..arrays.plans import spec_problems
from ..base.errors import SpecError, TopologyError, UnsupportedValueError
from ..base.quantities import bytes_apart
from ..base.text import printable, that_apply
from ..compat.arrays import traceback_lines
from ..compat.compiled_calls import refused_program
from ..compat.jaxprs import equations, traceback_of
from ..compat.jitted import jitted_types
from ..compat.lowering import lowered_for_topology, require_shardy, with_compiler_options
from ..compat.processes import only_cpu
from ..compat.programs import (
    lowered_devices,
    program_device,
    program_name,
    program_record,
)
from ..compat.shardings import has_devices
from ..compat.stages import (
    ProgramLeaf,
    Stages,
    stages_of,
)
from ..compat.topologies import ordered_devices, topology_of
from ..compat.topology_names import Topology, parse_topology
from ..compat.values import is_sharding
from ..facts.reports.collectives import Collective
from ..facts.reports.compiler_messages import LargeBuffer, OutOfMemory
from ..facts.reports.control_flow import FlopTotals
from ..facts.reports.origin import Origin
from ..facts.reports.program_memory import ProgramMemory
from ..geometry.layouts.dtypes import bits_of_name
from ..geometry.layouts.spec import mesh_sizes
from ..xla.hlo.liveness import read_assignment
from ..xla.hlo.messages import ArrayShape, program_in
from ..xla.hlo.module import Computation, Module
from ..xla.hlo.oom_logs import read_out_of_memory
from ..xla.hlo.schedule import schedule_of
from ..xla.hlo.source import source_lines
from .compiler_log import listed_buffers
from .propagation.helper import start

if TYPE_CHECKING:
    import jax

_ON_CPU = 'On TPU or GPU, traffic and temporaries may differ: "What a CPU compile tells".'
VMEM = 1
"""XLA's number for a TPU's VMEM among the memory spaces."""
_SUMS = ("all-reduce", "reduce-scatter")
_TIMES = {2: "twice", 4: "4 times"}
_LONGEST = 300


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


def compiled_of(
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: Sequence[Any],
    target: Topology | None,
    slices: Mapping[str, int] | None,
    *,
    explain: bool,
) -> tuple[CompiledStages, bool]:
    """Return a compiled function, and whether Shardy can tell what its collectives are needed for."""
    # JAX's default device, which tracing and lowering can ask for, can be an accelerator of another process.
    devices = [*map(_devices_of, values)]
    is_here = target is None and all(topology_of(next(iter(held), None)) is None for held in devices)
    with contextlib.nullcontext() if is_here else only_cpu():
        process = os.getpid()
        stages = stages_of(f, args, kwargs)
        explains = explain and _can_explain(stages)
        if explains and any(len(held) > 1 for held in devices):
            start()
        if os.getpid() != process:  # compiling would wait forever for threads that a fork does not have
            raise UnsupportedValueError("the function forks while it is traced, and returns in the fork too")
        return compiled_stages(stages, target, slices), explains


def _can_explain(stages: Stages) -> bool:
    """Return whether Shardy can propagate a program."""
    with contextlib.suppress(UnsupportedValueError):
        require_shardy(stages)
        return True
    return False


def _devices_of(value: Any) -> Collection[Any]:
    """Return the devices that an array is on, or described as on; none if it has no such sharding."""
    sharding: Any = getattr(value, "sharding", None)
    has_known = is_sharding(sharding) and has_devices(sharding)
    devices: Collection[Any] = sharding.device_set if has_known else ()
    return devices


def place_of(compiled: CompiledStages, leaves: Sequence[ProgramLeaf]) -> tuple[Topology | None, str]:
    """Return the topology and the platform of a program."""
    topology = compiled.topology
    if topology is None:
        device = program_device(leaves)
        topology = topology_of(device)
        if topology is None:
            return None, str(device.platform)
    return topology, topology.platform


def definition_of(f: Any, stages: Stages, module: Module | None, lines: UserLines) -> tuple[str, Any]:
    """Return the name and the definition of a function."""
    if stages.traced is None:
        # The text of a large program is slow to print.
        text = f"HloModule {module.name}" if module else stages.lowered and stages.lowered.as_text()
        return program_name(text or ""), None
    if callable(f):
        # A plain function is described like one that is jitted.
        jitted = type(f) in jitted_types() or hasattr(f, "__wrapped__")
        described = described_for_user(f if jitted else functools.partial(f), lines.is_hidden)
        if described.name:
            name = described.name if jitted else described.name.removeprefix("partial(").removesuffix(")")
            return name, None if described.code is None else lines.definition(described.code)
    return str(stages.traced.fun_name), None


def shortage(memory: ProgramMemory, device: str) -> OutOfMemory | None:
    """Return what a compiled program lacks on a device of this name; None if it fits, or is not known to.

    The compiler for GPUs refuses no program, and those for TPUs know no other limit.
    """
    needed, available = memory.required_nbytes, memory.available_nbytes
    if needed is None or available is None or needed <= available:
        return None
    needs, has = bytes_apart(needed, available)
    return OutOfMemory(
        message=f"the program needs {needs} per device, and {device} has {has}",
        required_nbytes=needed,
        available_nbytes=available,
        is_program_known=True,
        buffers=tuple(
            LargeBuffer(nbytes=row.nbytes, shape=row.shape, dtype=row.dtype, origin=row.origin)
            for row in memory.temporaries or ()
            for _ in range(row.count)
        ),
    )


def out_of_memory_of(
    message: str, module: Module | None, assignment: Any, lines: UserLines
) -> OutOfMemory | None:
    """Return the compiler's refusal of a program; None if a message is about something else.

    Args:
        message: The whole message of the compiler.
        module: The program that was refused; None if it is not known.
        assignment: XLA's ``BufferAssignmentProto`` of it; None if it is not known.
        lines: The search for the user's line.
    """
    refusal = read_out_of_memory(message)
    if refusal is None:
        return None
    required, buffers = refusal.required_nbytes, refusal.buffers
    if module is not None and assignment is not None:
        # The message of some versions has the temporary values only, or a single buffer.
        assigned = read_assignment(assignment, module, lines.nearest)
        required = assigned.nbytes or required
        buffers = assigned.buffers or buffers
    return OutOfMemory(
        is_program_known=module is not None,
        message=printable(refusal.message[:_LONGEST]),
        required_nbytes=required,
        available_nbytes=refusal.available_nbytes,
        buffers=listed_buffers(buffers, lines),
    )


def operation_origin(jaxpr: Any, op_name: str) -> Origin | None:
    """Return the line of the operations that a name in XLA ends with; None if there are none or several.

    Args:
        jaxpr: The traced function.
        op_name: The name, such as ``jit(attend)/pallas_call``.
    """
    lines, primitive = UserLines(), op_name.rpartition("/")[2]
    ones = (equation for _, equation in equations(jaxpr) if equation.primitive.name == primitive)
    tracebacks = filter(None, map(traceback_of, ones))
    origins = {lines.origin(traceback_lines(traceback)) for traceback in tracebacks}
    return origins.pop() if len(origins) == 1 else None


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


def caveats_of(
    platform: str,
    dtypes: Collection[str],
    collectives: Collection[Collective],
    module: Module,
    dots: FlopTotals,
    ffts: FlopTotals,
) -> tuple[str, ...]:
    """Return what differs on another platform, and what is left out, as sentences.

    Args:
        platform: Platform that the program is compiled for.
        dtypes: Dtypes of the arguments and outputs.
        collectives: Collectives of the program.
        module: The compiled program.
        dots: Its dots and convolutions.
        ffts: Its Fourier transforms.
    """
    values = {value for computation in module.computations.values() for value in computation.once(_values)}
    if platform == "tpu" and any(shape.memory_space == VMEM for _, shape in values):
        return ("Values in VMEM are not among the temporaries that are listed.",)
    if platform != "cpu":
        return ()
    caveats = [_ON_CPU]
    inside = {shape.dtype for _, shape in values} - {"float16"}  # CPU has it in place of narrower ones
    widened = _widened({*dtypes, *inside}, collectives)
    caveats += (
        f"CPU sends {' and '.join(names)}, {_TIMES[factor]} the bytes of an accelerator."
        for factor, names in widened.items()
    )
    is_told = any(name.endswith("float32") for names in widened.values() for name in names)
    are_sent = not is_told and any(collective.dtype == "float32" for collective in collectives)
    are_complex = any(opcode == "dot" and shape.dtype.startswith("complex") for opcode, shape in values)
    caveats += that_apply(
        (
            are_sent and dots.exact != 0,
            "TPU may send float32 operands of matrix products as bfloat16, half the bytes.",
        ),
        (ffts.exact != 0, "TPU computes Fourier transforms as matrix products, with other FLOPs."),
        (are_complex, "TPU computes a product of complex numbers as 3 real ones, not 4: FLOPs are fewer."),
    )
    return tuple(caveats)


def _values(computation: Computation) -> set[tuple[str, ArrayShape]]:
    """Return the types of the values in a computation, each with the operation that makes it."""
    return {
        (instruction.opcode, shape)
        for instruction in computation.instructions
        for shape in instruction.shapes
    }


def _widened(dtypes: Collection[str], collectives: Collection[Collective]) -> dict[int, list[str]]:
    """Return the dtypes that CPU sends as wider ones, such as ``int4 as int8``, by the factor of the bytes.

    An accelerator moves numbers below 16 bits as they are, but may sum them as wider ones.
    """
    widened: dict[int, list[str]] = {}
    for dtype in sorted(dtypes):
        wide, bits = _sent_as(dtype), bits_of_name(dtype)
        wide_bits = bits_of_name(wide)
        if wide is None or bits is None or wide_bits is None:
            continue
        if any(
            collective.dtype == wide and (bits == 16 or collective.kind not in _SUMS)
            for collective in collectives
        ):
            widened.setdefault(wide_bits // bits, []).append(f"{dtype} as {wide}")
    return widened


def _sent_as(dtype: str) -> str | None:
    """Return the wider dtype as which the CPU backend sends one; None if it sends it as it is."""
    if dtype in ("bfloat16", "float16", "float8_e8m0fnu"):
        return "float32"
    if dtype in ("int4", "uint4"):
        return dtype.replace("4", "8")
    return "float16" if dtype.startswith(("float4_", "float6_", "float8_")) else None


def caveats_of_tracing(traced_on: str | None, topology: Topology | None) -> tuple[str, ...]:
    """Return what may differ in a program that was traced with other devices than those of its topology.

    Args:
        traced_on: The other devices, such as ``CPU``; None if there are none.
        topology: The topology.
    """
    if traced_on is None or topology is None:
        return ()
    target = topology.text if ":" in traced_on else topology.platform.upper()
    return (
        f"Traced with {traced_on} devices: code that asks for their platform, such as"
        f" mesh.devices.flat[0].platform, took the branch for {traced_on}. With a mesh from topology_mesh, it"
        f" takes the branch for {target}.",
    )


def caveats_of_cache(lowered_text: str | None, module: Module, lines: UserLines) -> tuple[str, ...]:
    """Return what may be wrong in a program that a persistent cache has with other source lines.

    Args:
        lowered_text: Text of the lowered program, with its source lines; None if there is no such cache.
        module: The compiled program.
        lines: The search for the user's line.
    """
    if lowered_text is None:
        return ()
    frames = {frame[:2] for operation in module.once(schedule_of).operations for frame in operation.frames}
    if all(lines.is_hidden(file) for file, _ in frames - source_lines(lowered_text)):
        return ()
    return (
        "Loaded from the persistent compilation cache, which ignores source lines: those of what XLA compiled"
        " can be of an earlier version of the source, and reasons of collectives unknown. Set"
        " jax_compilation_cache_include_metadata_in_key to compile again.",
    )
