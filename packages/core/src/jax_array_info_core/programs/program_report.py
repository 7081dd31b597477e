"""Compiled programs as plain values."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..arrays.origins.origins import UserLines
from ..arrays.stage_leaves import argument_values, output_values, with_requested
from ..base.errors import UnsupportedValueError
from ..compat.arrays import buffer_key
from ..compat.jaxprs import requested_outputs
from ..compat.programs import (
    memory_analysis,
    program_devices,
    program_mesh,
    text_for_cached_lines,
    text_for_frame_numbers,
    xla_flops,
)
from ..compat.stages import (
    ProgramLeaf,
    Stages,
    argument_leaves,
    array_leaves,
    is_stage,
    output_leaves,
    places_of_arguments,
    with_object_keys,
)
from ..compat.topology_names import Topology, parse_topology
from ..facts.reports.codes import known_codes
from ..facts.reports.findings import MIN_NBYTES
from ..facts.reports.program import ProgramReport
from ..facts.reports.program_memory import ProgramTimelineReport
from ..geometry.layouts.links import Link, as_bandwidths
from ..geometry.layouts.notation import as_nbytes
from ..geometry.layouts.spec import mesh_sizes
from ..xla.hlo.collectives import instruction_text, may_send, movements
from ..xla.hlo.dataflow import Dataflow
from ..xla.hlo.loops import executions
from ..xla.hlo.module import Module, read_module
from ..xla.hlo.replica_groups import ProgramSlices
from ..xla.hlo.resharding import replicated_values
from .because import Reasons
from .collectives import ProgramDevices, collectives_of, devices_of, totals_of
from .compiled import (
    CompiledStages,
    caveats_of,
    caveats_of_cache,
    caveats_of_tracing,
    compiled_of,
    definition_of,
    gpu_shortage,
    out_of_memory_of,
    place_of,
)
from .constraints import constraints_of, with_padding
from .control_flow import flops_of
from .donations import donatable, donations_of, sharing
from .full_replication import rematerializations_of, repeated_of
from .memory import memory_of, saved_of, timeline_of, with_host_apart
from .updates import MOST_CALLS, Interface, next_arguments, passed_on, with_lost_axes, with_replaced


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Return a context in which Python collects no garbage, for work that makes many objects and no cycles.

    A collector that is disabled before stays so. Otherwise it is enabled after the context, also if this ends
    with an error or an interrupt.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


_Fields = dict[str, Any]
"""Fields of a report by name."""
_OF_TIMELINE = ("name", "origin", "platform", "topology", "out_of_memory")
"""Fields of a report that the one along the schedule has too."""
_NO_RECORD = "the platform does not hand out the compiled program"


def module_of(record: bytes | None, lowered: Any) -> Module | None:
    """Return a compiled program; None if it is not known.

    Args:
        record: XLA's record of it, a serialized ``HloModuleProto``.
        lowered: The lowered program; None if it is not known.
    """
    return None if record is None else read_module(record, text_for_frame_numbers(lowered))


def program_report(
    f: Any,
    /,
    *args: Any,
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    explain: bool = True,
    bandwidths: Mapping[str, int | str] | None = None,
    ignore_codes: str | Iterable[str] = (),
    min_nbytes: int | str = MIN_NBYTES,
    timeline: bool = False,
    steady: bool | int = False,
    **kwargs: Any,
) -> ProgramReport:
    """Return what XLA made of a function: shardings, collectives, donations, memory and flops per device.

    The function is traced, lowered and compiled for the arguments, as ``jax.jit(f).lower(…).compile()``
    does. Nothing runs, nothing is allocated and nothing is donated. JAX caches the compiled program; a call
    of the function compiles it again only in versions of JAX that do not share it. Python's garbage collector
    is paused while the compiled program is described.

    A function with an argument that is called as one of the options itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function; or a ``jax.stages.Traced``, ``Lowered`` or ``Compiled``, without
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: TPU or GPU topology to compile for, such as ``v5p:2x2x2``, ``v5p-128``, ``2*v5p:2x2x2`` (two
            slices) or ``h100:8``. It needs libtpu or JAX's CUDA plugin, but no accelerator. The mesh of the
            arguments is placed on it. Code that asks these devices for their platform does not get that of
            the topology: better pass arguments on a ``topology_mesh``. None compiles for the devices of the
            arguments.
        dcn: Number of slices along each mesh axis that spans the slices of ``topology``, such as
            ``{"data": 2}``, as in ``topology_mesh``.
        explain: Whether to find ``because``, the operation that each collective is needed for, on JAX 0.10.1
            and later, unless Shardy is off. If there are collectives, Shardy propagates the shardings once
            more, in a process of its own. A Compiled has no reasons.
        bandwidths: Bytes per second and device, in each direction, of the links between devices, such as
            ``{"dcn": "6.25GB/s", "ici": "90GB/s"}``, for a lower bound of the time of what is sent. None for
            no such bound.
        ignore_codes: Codes of findings to leave out, such as ``"JAI207"``.
        min_nbytes: Bytes per device, or a size such as ``"1MiB"``, below which bytes that are held or
            repeated without need are no finding. 0 accepts none.
        timeline: Whether to add the memory along the schedule, as in ``program_timeline_report``.
        steady: Whether to find ``steady_sent_nbytes``, the bytes that later calls send. If arguments return
            with other shardings, the function is compiled again for these, up to three times; with a number
            in place of True, up to one time less than it.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is neither a function nor a stage, or a stage with
            arguments or with ``steady``; or if a bandwidth or a size is not one.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.

    An error of the function itself, or of its compilation, is raised unchanged. A program that does not fit
    the memory of the topology is reported in ``out_of_memory``.

    >>> import jax, jax.numpy as jnp
    >>> report = program_report(lambda x: x @ x.T, jax.ShapeDtypeStruct((64, 32), jnp.float32))
    >>> report.dot_flops, report.sent.nbytes, report.outputs[0].shape
    (262144, 0, (64, 64))
    """
    target = None if topology is None else parse_topology(topology)
    if dcn and target is None:
        raise UnsupportedValueError("dcn needs a topology of several slices, such as 2*v5p:2x2x2")
    slices = None if dcn is None else mesh_sizes(dcn)
    codes, speeds = known_codes(ignore_codes), as_bandwidths(bandwidths)
    least = as_nbytes("min_nbytes", min_nbytes)
    if steady and is_stage(f):
        raise UnsupportedValueError("steady=True compiles again: pass the function with its arguments")
    lines = UserLines(has_code=True)
    values = array_leaves(args, kwargs)
    compiled, explains = compiled_of(f, args, kwargs, values, target, slices, explain=explain)
    with paused():
        module = module_of(compiled.record, compiled.stages.lowered)
        given, returned = _leaves(f, args, kwargs, values, compiled.stages, module)
        interface, passed = _interface(given, returned, compiled.stages, module, lines)
        place, platform = place_of(compiled, [*given, *returned])
        name, origin = definition_of(f, compiled.stages, module, lines)
        fields: _Fields = {
            "name": name,
            "origin": origin,
            "mesh": interface.mesh,
            "platform": platform,
            "topology": place.text if place else None,
            "arguments": interface.arguments,
            "outputs": interface.outputs,
            "constraints": interface.constraints,
            "out_of_memory": out_of_memory_of(compiled.refusal, module, compiled.assignment, lines),
            "device_count": interface.device_count,
            "caveats": caveats_of_tracing(compiled.traced_on, place),
            "passed_on": tuple(interface.arguments[number].path for number in sorted(passed)),
            "ignored_codes": codes,
            "min_nbytes": least,
        }
        if module is not None:
            program = _Program(
                compiled=compiled,
                module=module,
                interface=interface,
                platform=platform,
                topology=place,
                leaves=given,
                values=values,
                lines=lines,
                bandwidths=speeds,
                explains=explains,
                has_timeline=timeline,
            )
            for part in _PARTS:
                fields |= part(program, fields)
        elif not compiled.refusal:
            fields["reason"] = _NO_RECORD
    if steady and module is not None:
        following = next_arguments((args, kwargs), values, given, returned, passed)
        calls = MOST_CALLS if steady is True else steady
        fields["steady_sent_nbytes"] = None if passed else _sent_nbytes(fields)
        if following is not None and calls > 1:
            args, kwargs = following
            options: dict[str, Any] = {"topology": topology, "dcn": dcn, "explain": False}
            later = program_report(f, *args, steady=calls - 1, **options, **kwargs)
            fields["steady_sent_nbytes"] = later.steady_sent_nbytes
    return ProgramReport(**fields)


def program_timeline_report(
    f: Any,
    /,
    *args: Any,
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> ProgramTimelineReport:
    """Return the live bytes of a compiled function along its schedule, by line, and its peak.

    The function is compiled as in ``program_report``. Nothing runs. ``program_report(…, timeline=True)`` has
    the same report in its field ``timeline``.

    A function with an argument that is called as one of the options itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function; or a ``jax.stages.Traced``, ``Lowered`` or ``Compiled``, without
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: TPU or GPU topology to compile for, as in ``program_report``. None compiles for the devices
            of the arguments.
        dcn: Number of slices along each mesh axis that spans the slices of ``topology``.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is neither a function nor a stage, or a stage with
            arguments.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.

    An error of the function itself, or of its compilation, is raised unchanged. A program that does not fit
    the memory of the topology is reported in ``out_of_memory``.

    >>> import jax, jax.numpy as jnp
    >>> def norms(x):
    ...     return jnp.sqrt(jnp.sum(jnp.cumsum(x @ x.T, 0) ** 2, 1))
    >>> report = program_timeline_report(norms, jax.ShapeDtypeStruct((64, 32), jnp.float32))
    >>> [series.kind for series in report.series][:2], max(report.total_nbytes) == report.peak_nbytes
    (['arguments', 'outputs'], True)
    """
    options: dict[str, Any] = {"topology": topology, "dcn": dcn, "explain": False}
    report = program_report(f, *args, timeline=True, **options, **kwargs)
    if report.timeline is not None:
        return report.timeline
    return ProgramTimelineReport(**{name: getattr(report, name) for name in _OF_TIMELINE})


def _leaves(
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: Sequence[Any],
    stages: Stages,
    module: Module | None,
) -> tuple[Sequence[ProgramLeaf], Sequence[ProgramLeaf]]:
    """Return the leaves of the arguments and of the outputs."""
    labels = [] if module is None else [parameter.op_name for parameter in module.parameters()]
    given = argument_leaves(stages, values, labels)
    return with_object_keys(f, args, kwargs, given, output_leaves(stages))


def _interface(
    given: Sequence[ProgramLeaf],
    returned: Sequence[ProgramLeaf],
    stages: Stages,
    module: Module | None,
    lines: UserLines,
) -> tuple[Interface, dict[int, int]]:
    """Return the arguments and outputs of a program, and which are passed on, as of ``passed_on``."""
    mesh = program_mesh([*given, *returned])
    arguments, outputs = argument_values(given, mesh), output_values(returned, mesh)
    jaxpr = None if stages.traced is None else stages.traced.jaxpr
    if module is not None:
        requested = [None] * len(outputs) if jaxpr is None else requested_outputs(jaxpr)
        outputs = with_requested(outputs, requested)
        outputs = with_lost_axes(outputs, arguments, module, [asked is not None for asked in requested])
    if jaxpr is None:
        return Interface(mesh, arguments, outputs, None), {}
    constraints = constraints_of(jaxpr, module, lines)
    is_donated = [leaf.is_donated for leaf in given]
    outputs = with_replaced(with_padding(outputs, constraints), arguments, is_donated, jaxpr)
    passed = passed_on(outputs, arguments, is_donated, jaxpr)
    return Interface(mesh, arguments, outputs, constraints), passed


@dataclass(frozen=True, kw_only=True)
class _Program:
    """A compiled program: what each part of its report is made of."""

    compiled: CompiledStages
    module: Module
    interface: Interface
    platform: str
    topology: Topology | None
    leaves: Sequence[ProgramLeaf]
    """Leaves of the arguments."""

    values: Sequence[Any]
    """The arrays among them."""

    lines: UserLines
    bandwidths: Mapping[Link, int]
    explains: bool
    has_timeline: bool

    @cached_property
    def devices(self) -> ProgramDevices | None:
        """The devices; None if they are not known."""
        return devices_of(program_devices(self.compiled.stages, self.leaves))

    @cached_property
    def device_count(self) -> int:
        """Number of devices."""
        return self.module.device_count if self.devices is None else self.devices.count(self.module)

    @cached_property
    def slices(self) -> ProgramSlices | None:
        """The slices, if XLA has compiled the program for a single one."""
        return None if self.devices is None else self.devices.slices(self.module)

    @cached_property
    def paths(self) -> dict[str, str]:
        """Path of each argument by the ``op_name`` of its parameter."""
        pairs = zip(self.leaves, self.interface.arguments, strict=True)
        return {leaf.label: argument.path for leaf, argument in pairs if leaf.label is not None}

    @cached_property
    def reasons(self) -> Reasons:
        """What collectives are needed for."""
        interface, lowered = self.interface, self.compiled.stages.lowered
        return Reasons(interface.arguments, interface.outputs, lowered, self.lines)


def _flops(program: _Program, _: _Fields) -> _Fields:
    """Return the fields of a report on flops."""
    compiled, module = program.compiled, program.module
    flops = flops_of(module, module.once(executions), program.lines)
    return flops if compiled.refusal else {**flops, "xla_flops": xla_flops(compiled.stages.compiled)}


def _collectives(program: _Program, _: _Fields) -> _Fields:
    """Return the fields of a report on what is sent, and on what of it could not be read."""
    module, interface = program.module, program.interface
    collectives, unread = collectives_of(
        module,
        module.once(executions),
        interface.mesh,
        program.paths,
        program.lines,
        interface.constraints,
        program.reasons.of if program.explains else None,
        program.devices,
    )
    local = (row for row in module.unknown_types if not may_send(row))
    return {
        "device_count": program.device_count,
        "collectives": collectives,
        "sent": totals_of(collectives, program.bandwidths),
        "unread": tuple(dict.fromkeys((*map(instruction_text, module.unknown_types), *unread))),
        "unread_local": tuple(dict.fromkeys(map(instruction_text, local))),
    }


def _repeated(program: _Program, fields: _Fields) -> _Fields:
    """Return the fields of a report on values that devices hold or compute whole."""
    module, interface, lines = program.module, program.interface, program.lines
    dataflow = module.once(Dataflow)
    moved, _ = movements(dataflow, program.slices)
    replicated = replicated_values(dataflow, moved)
    mesh, count = interface.mesh, interface.device_count
    sizes = mesh.shape if mesh and count == program.device_count else None
    times = module.once(executions)
    return {
        "rematerializations": rematerializations_of(replicated, dataflow, sizes, times, lines),
        "repeated": repeated_of(
            interface,
            module,
            fields["known_dot_flops"],
            moved,
            sizes,
            program.paths,
            lines,
            replicated,
            is_numbered=program.slices is None,
        ),
    }


def _donations(program: _Program, _: _Fields) -> _Fields:
    """Return the fields of a report on memory that outputs reuse."""
    arguments, outputs = program.interface.arguments, program.interface.outputs
    is_donated = [leaf.is_donated for leaf in program.leaves]
    places = places_of_arguments(program.values, program.leaves) or ()
    shared = sharing(arguments, [buffer_key(program.values[place]) for place in places])
    donations = donations_of(arguments, is_donated, outputs, program.module, shared)
    return {
        "donations": donations,
        "donatable": donatable(arguments, is_donated, outputs, donations, shared),
    }


def _memory(program: _Program, fields: _Fields) -> _Fields:
    """Return the fields of a report on memory; none if the compiler refused the program."""
    if program.compiled.refusal:
        return {}
    stages, interface, lines = program.compiled.stages, program.interface, program.lines
    topology = program.topology
    saved = saved_of(stages, program.leaves, lines, interface.device_count, explains=program.explains)
    statistics = memory_analysis(stages.compiled)
    memory = memory_of(program.module, statistics, program.platform, lines, stages.traced, saved)
    memory = with_host_apart(memory, interface.arguments, interface.outputs, fields["donations"])
    if topology is None:
        return {"memory": memory}
    needed, available = memory.allocated_nbytes, topology.memory_nbytes
    memory = replace(memory, required_nbytes=needed, available_nbytes=available)
    return {"memory": memory, "out_of_memory": gpu_shortage(topology, memory) if topology.is_gpu else None}


def _schedule(program: _Program, fields: _Fields) -> _Fields:
    """Return the field of a report on memory along the schedule, if it is asked for and known."""
    memory = fields.get("memory")
    if memory is None or not program.has_timeline:
        return {}
    about = ProgramTimelineReport(**{name: fields[name] for name in _OF_TIMELINE})
    return {"timeline": timeline_of(about, memory, program.module, program.lines)}


def _caveats(program: _Program, fields: _Fields) -> _Fields:
    """Return the field of a report on what differs elsewhere or is unsure."""
    interface, module = program.interface, program.module
    dtypes = {value.dtype for value in (*interface.arguments, *interface.outputs)}
    collectives, dots, ffts = (fields[name] for name in ("collectives", "dot_totals", "fft_totals"))
    cached = text_for_cached_lines(program.compiled.stages.lowered)
    return {
        "caveats": (
            *fields["caveats"],
            *caveats_of_cache(cached, module, program.lines),
            *caveats_of(program.platform, dtypes, collectives, module, dots, ffts),
            *program.reasons.caveats,
        )
    }


_PARTS = (_flops, _collectives, _repeated, _donations, _memory, _schedule, _caveats)
"""Parts of the report on a compiled program: each makes fields of it from the program and earlier fields."""


def _sent_nbytes(fields: _Fields) -> int | None:
    """Return the bytes that a device sends in one call; None if a part of them is unknown."""
    is_unknown = fields["sent"].unknown_count or {*fields["unread"]} - {*fields["unread_local"]}
    return None if is_unknown else fields["sent"].nbytes
