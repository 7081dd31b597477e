"""Compiled programs as plain values."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arrays.origins.origins import UserLines, code_origin, described_for_user
from ..arrays.stage_leaves import argument_values, output_values, with_requested
from ..base.errors import UnsupportedValueError
from ..compat.arrays import buffer_key
from ..compat.jaxprs import requested_outputs
from ..compat.jitted import jitted_types, with_object_keys
from ..compat.lowering import require_shardy
from ..compat.processes import only_cpu
from ..compat.programs import (
    memory_analysis,
    program_device,
    program_devices,
    program_mesh,
    program_name,
    text_for_cached_lines,
    text_for_frame_numbers,
    xla_flops,
)
from ..compat.shardings import has_devices
from ..compat.stages import (
    ProgramLeaf,
    Stages,
    argument_leaves,
    array_leaves,
    is_stage,
    output_leaves,
    places_of_arguments,
    stages_of,
)
from ..compat.topologies import topology_of
from ..compat.topology_names import Topology, parse_topology
from ..compat.values import is_sharding
from ..facts.reports.codes import known_codes
from ..facts.reports.floors import MIN_NBYTES
from ..facts.reports.program import ProgramReport
from ..facts.reports.program_memory import ProgramTimelineReport
from ..geometry.layouts.links import Link, as_bandwidths
from ..geometry.layouts.notation import as_nbytes
from ..geometry.layouts.spec import mesh_sizes
from ..xla.hlo.collectives import instruction_text, may_send, movements
from ..xla.hlo.dataflow import Dataflow
from ..xla.hlo.loops import executions
from ..xla.hlo.module import Module, read_module
from ..xla.hlo.resharding import replicated_values
from .because import Reasons
from .collectives import collectives_of, devices_of, totals_of
from .compiled import (
    CompiledStages,
    caveats_of,
    caveats_of_cache,
    caveats_of_tracing,
    compiled_stages,
    gpu_shortage,
    out_of_memory_of,
)
from .constraints import constraints_of, with_padding
from .control_flow import flops_of
from .donations import donatable, donations_of, sharing
from .full_replication import rematerializations_of, repeated_of
from .memory import memory_of, saved_of, timeline_of, with_host_apart
from .propagation.helper import start
from .updates import MOST_CALLS, next_arguments, passed_on, steady_nbytes, with_lost_axes, with_replaced


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
    # JAX's default device, which tracing and lowering can ask for, can be an accelerator of another process.
    devices = [*map(_devices_of, values)]
    is_here = target is None and all(topology_of(next(iter(one), None)) is None for one in devices)
    with contextlib.nullcontext() if is_here else only_cpu():
        process = os.getpid()
        stages = stages_of(f, args, kwargs)
        explains = explain and _can_explain(stages)
        if explains and any(len(one) > 1 for one in devices):
            start()
        if os.getpid() != process:  # compiling would wait forever for threads that a fork does not have
            raise UnsupportedValueError("the function forks while it is traced, and returns in the fork too")
        compiled = compiled_stages(stages, target, slices)
    stages = compiled.stages
    with paused():
        module = module_of(compiled.record, stages.lowered)
        labels = [] if module is None else [one.op_name for one in module.parameters()]
        given, returned = argument_leaves(stages, values, labels), output_leaves(stages)
        given, returned = with_object_keys(f, args, kwargs, given, returned)
        mesh = program_mesh([*given, *returned])
        place, platform = _place(compiled, [*given, *returned])
        arguments = argument_values(given, mesh)
        outputs = output_values(returned, mesh)
        if module is not None:
            traced = stages.traced
            requested = [None] * len(outputs) if traced is None else requested_outputs(traced.jaxpr)
            outputs = with_requested(outputs, requested)
            outputs = with_lost_axes(outputs, arguments, module, [one is not None for one in requested])
        constraints, passed = None, dict[int, int]()
        if stages.traced is not None:
            constraints = constraints_of(stages.traced.jaxpr, module, lines)
            outputs = with_padding(outputs, constraints)
            is_donated = [leaf.is_donated for leaf in given]
            outputs = with_replaced(outputs, arguments, is_donated, stages.traced.jaxpr)
            passed = passed_on(outputs, arguments, is_donated, stages.traced.jaxpr)
        name, origin = _definition(f, stages, module, lines)
        report = ProgramReport(
            name=name,
            origin=origin,
            mesh=mesh,
            platform=platform,
            topology=place.text if place else None,
            arguments=arguments,
            outputs=outputs,
            constraints=constraints,
            out_of_memory=out_of_memory_of(compiled.refusal, module, compiled.assignment, lines),
            device_count=1 if mesh is None else math.prod(mesh.sizes),
            caveats=caveats_of_tracing(compiled.traced_on, place),
            passed_on=tuple(arguments[number].path for number in sorted(passed)),
            ignored_codes=codes,
            min_nbytes=least,
        )
        if module is None:
            return report if compiled.refusal else replace(report, reason=_NO_RECORD)
        report = _with_program(
            report, module, compiled, place, given, values, lines, speeds, explains=explains
        )
        if timeline and report.memory is not None:
            report = replace(report, timeline=timeline_of(report, report.memory, module, lines))
    if not steady:
        return report
    following = next_arguments((args, kwargs), values, given, returned, passed)
    left = MOST_CALLS if steady is True else steady
    if report.passed_on and following is not None and left > 1:
        args, kwargs = following
        options: dict[str, Any] = {"topology": topology, "dcn": dcn, "explain": False, "steady": left - 1}
        later = program_report(f, *args, **options, **kwargs)
        return replace(report, steady_sent_nbytes=later.steady_sent_nbytes)
    return replace(report, steady_sent_nbytes=steady_nbytes(report))


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
    >>> [one.kind for one in report.series][:2], max(report.total_nbytes) == report.peak_nbytes
    (['arguments', 'outputs'], True)
    """
    options: dict[str, Any] = {"topology": topology, "dcn": dcn, "explain": False}
    report = program_report(f, *args, timeline=True, **options, **kwargs)
    if report.timeline is not None:
        return report.timeline
    return ProgramTimelineReport(
        name=report.name,
        origin=report.origin,
        platform=report.platform,
        topology=report.topology,
        out_of_memory=report.out_of_memory,
    )


def _with_program(
    report: ProgramReport,
    module: Module,
    compiled: CompiledStages,
    topology: Topology | None,
    leaves: Sequence[ProgramLeaf],
    values: Sequence[Any],
    lines: UserLines,
    bandwidths: Mapping[Link, int],
    *,
    explains: bool,
) -> ProgramReport:
    """Return a report with the facts from the compiled program."""
    times = module.once(executions)
    flops = flops_of(module, times, lines)
    paths = {
        leaf.label: argument.path
        for leaf, argument in zip(leaves, report.arguments, strict=True)
        if leaf.label is not None
    }
    reasons = Reasons(report.arguments, report.outputs, compiled.stages.lowered, lines)
    because = reasons.of if explains else None
    devices = devices_of(program_devices(compiled.stages, leaves))
    collectives, unread = collectives_of(
        module, times, report.mesh, paths, lines, report.constraints, because, devices
    )
    dataflow = module.once(Dataflow)
    count = module.device_count if devices is None else devices.count(module)
    slices = None if devices is None else devices.slices(module)
    moved, _ = movements(dataflow, slices)
    replicated = replicated_values(dataflow, moved)
    sizes = report.mesh.shape if report.mesh and math.prod(report.mesh.sizes) == count else None
    is_donated = [leaf.is_donated for leaf in leaves]
    places = places_of_arguments(values, leaves) or ()
    shared = sharing(report.arguments, [buffer_key(values[place]) for place in places])
    donations = donations_of(report.arguments, is_donated, report.outputs, module, shared)
    dtypes = {value.dtype for value in (*report.arguments, *report.outputs)}
    memory, out_of_memory = None, report.out_of_memory
    if not compiled.refusal:
        stages = compiled.stages
        saved = saved_of(stages, leaves, lines, report.device_count, explains=explains)
        statistics = memory_analysis(stages.compiled)
        memory = memory_of(module, statistics, report.platform, lines, stages.traced, saved)
        memory = with_host_apart(memory, report.arguments, report.outputs, donations)
        if topology is not None:
            memory = replace(
                memory, required_nbytes=memory.allocated_nbytes, available_nbytes=topology.memory_nbytes
            )
            out_of_memory = gpu_shortage(topology, memory) if topology.is_gpu else None
        flops["xla_flops"] = xla_flops(stages.compiled)
    rematerializations = rematerializations_of(replicated, dataflow, sizes, times, lines)
    report = replace(report, rematerializations=rematerializations, **flops)
    return replace(
        report,
        repeated=repeated_of(
            report, module, times, moved, sizes, paths, lines, replicated, is_numbered=slices is None
        ),
        device_count=count,
        donations=donations,
        donatable=donatable(report.arguments, is_donated, report.outputs, donations, shared),
        collectives=collectives,
        sent=totals_of(collectives, bandwidths),
        memory=memory,
        out_of_memory=out_of_memory,
        unread=tuple(dict.fromkeys((*map(instruction_text, module.unknown_types), *unread))),
        unread_local=tuple(
            dict.fromkeys(instruction_text(one) for one in module.unknown_types if not may_send(one))
        ),
        caveats=(
            *report.caveats,
            *caveats_of_cache(text_for_cached_lines(compiled.stages.lowered), module, lines),
            *caveats_of(
                report.platform, dtypes, collectives, module, flops["dot_totals"], flops["fft_totals"]
            ),
            *reasons.caveats,
        ),
    )


def _can_explain(stages: Stages) -> bool:
    """Return whether Shardy can propagate a program."""
    with contextlib.suppress(UnsupportedValueError):
        require_shardy(stages)
        return True
    return False


def _devices_of(value: Any) -> Collection[Any]:
    """Return the devices that an array is on, or described as on; none if it has no such sharding."""
    sharding: Any = getattr(value, "sharding", None)
    found: Collection[Any] = ()
    if is_sharding(sharding) and has_devices(sharding):
        found = sharding.device_set
    return found


def _place(compiled: CompiledStages, leaves: Sequence[ProgramLeaf]) -> tuple[Topology | None, str]:
    """Return the topology and the platform of a program."""
    topology = compiled.topology
    if topology is None:
        device = program_device(leaves)
        topology = topology_of(device)
        if topology is None:
            return None, str(device.platform)
    return topology, topology.platform


def _definition(f: Any, stages: Stages, module: Module | None, lines: UserLines) -> tuple[str, Any]:
    """Return the name and the definition of a function."""
    if stages.traced is None:
        # The text of a large program is slow to print.
        text = f"HloModule {module.name}" if module else stages.lowered and stages.lowered.as_text()
        return program_name(text or ""), None
    if callable(f):
        # A plain function is described like one that is jitted.
        jitted = type(f) in jitted_types() or hasattr(f, "__wrapped__")
        found = described_for_user(f if jitted else functools.partial(f), lines.is_hidden)
        if found.name:
            name = found.name if jitted else found.name.removeprefix("partial(").removesuffix(")")
            return name, None if found.code is None else code_origin(found.code)
    return str(stages.traced.fun_name), None
