"""Compiled programs as plain values."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arrays.origins.origins import UserLines
from ..arrays.stage_leaves import argument_values, output_values, with_requested
from ..base.errors import UnsupportedValueError
from ..compat.jaxprs import requested_outputs
from ..compat.programs import (
    program_mesh,
    text_for_frame_numbers,
)
from ..compat.stages import (
    ProgramLeaf,
    Stages,
    argument_leaves,
    array_leaves,
    is_stage,
    output_leaves,
    with_object_keys,
)
from ..compat.topology_names import DEVICE_NBYTES, parse_topology
from ..facts.reports.codes import known_codes
from ..facts.reports.findings import MIN_NBYTES
from ..facts.reports.left_out import ALL, Parts
from ..facts.reports.program import ProgramReport
from ..facts.reports.program_memory import ProgramTimelineReport
from ..facts.reports.program_values import ProgramValue
from ..geometry.layouts.links import as_bandwidths
from ..geometry.layouts.notation import as_nbytes
from ..geometry.layouts.spec import mesh_sizes
from ..xla.hlo.module import Module, read_module
from .compiled import (
    CompiledStages,
    caveats_of_tracing,
    compiled_of,
    definition_of,
    out_of_memory_of,
    place_of,
)
from .constraints import constraints_of, with_padding
from .lost_axes import with_gradients, with_lost_axes, with_moments
from .report_parts import OF_PARTS, OF_TIMELINE, PARTS, Fields, Program
from .updates import MOST_CALLS, Interface, next_arguments, passed_on, with_replaced


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
    hbm_nbytes: int | str | None = None,
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
        hbm_nbytes: Memory of a device in bytes, a size such as ``"16GiB"``, or a chip such as ``"v5p"``, to
            compare the program with. None for that of the topology, if there is one.
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
    hbm = None if hbm_nbytes is None else as_nbytes("hbm_nbytes", hbm_nbytes, DEVICE_NBYTES)
    if steady and is_stage(f):
        raise UnsupportedValueError("steady=True compiles again: pass the function with its arguments")
    lines = UserLines(has_code=True)
    values = array_leaves(args, kwargs)
    compiled, explains = compiled_of(f, args, kwargs, values, target, slices, explain=explain)
    with paused():
        parts = Parts()
        module = parts.made(ALL, lambda: module_of(compiled.record, compiled.stages.lowered), None)
        given, returned = _leaves(f, args, kwargs, values, compiled.stages, module)
        name, origin = definition_of(f, compiled.stages, module, lines)
        interface, passed = _interface(given, returned, compiled.stages, module, lines, parts, name)
        place, platform = place_of(compiled, [*given, *returned])
        fields: Fields = {
            "name": name,
            "origin": origin,
            **_plain_fields(compiled, interface, passed, module, lines),
            "platform": platform,
            "topology": place.text if place else None,
            "caveats": caveats_of_tracing(compiled.traced_on, place),
            "ignored_codes": codes,
            "min_nbytes": least,
        }
        if compiled.record is not None:
            fields |= dict.fromkeys(OF_PARTS)
        if module is not None:
            program = Program(
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
                hbm_nbytes=hbm,
                parts=parts,
            )
            for part, make in PARTS.items():
                fields |= parts.made(part, functools.partial(make, program, fields), {})
        elif not compiled.refusal:
            errors = (f"the compiled program cannot be read ({one.error})" for one in parts.left_out)
            fields["reason"] = next(errors, _NO_RECORD)
        fields["left_out"] = parts.left_out
    report = ProgramReport(**fields)
    if not steady or module is None:
        return report
    nbytes = report.sent_nbytes if passed == {} else None
    following = next_arguments((args, kwargs), values, given, returned, passed or {})
    calls = MOST_CALLS if steady is True else steady
    if following is not None and calls > 1:
        args, kwargs = following
        options: Fields = {"topology": topology, "dcn": dcn, "explain": False}
        nbytes = program_report(f, *args, steady=calls - 1, **options, **kwargs).steady_sent_nbytes
    return replace(report, steady_sent_nbytes=nbytes)


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
    return ProgramTimelineReport(**{name: getattr(report, name) for name in OF_TIMELINE})


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
    parts: Parts,
    name: str,
) -> tuple[Interface, dict[int, int] | None]:
    """Return the arguments and outputs of a program, and which are passed on, as of ``passed_on``."""
    mesh = program_mesh([*given, *returned])
    arguments, outputs = with_moments(argument_values(given, mesh)), output_values(returned, mesh)
    jaxpr = None if stages.traced is None else stages.traced.jaxpr
    is_donated = [leaf.is_donated for leaf in given]
    if module is not None:
        requested = [None] * len(outputs) if jaxpr is None else requested_outputs(jaxpr)
        as_asked = outputs = with_requested(outputs, requested)
        are_asked = [asked is not None for asked in requested]
        outputs = parts.made(
            "lost mesh axes",
            lambda: with_lost_axes(as_asked, arguments, module, are_asked, is_donated, name),
            outputs,
        )
    if jaxpr is None:
        return Interface(mesh, arguments, outputs, None), {}
    constraints = parts.made(
        "constraints", lambda: with_gradients(constraints_of(jaxpr, module, lines), arguments), None
    )
    plain = with_padding(outputs, constraints or ())

    def next_call() -> tuple[tuple[ProgramValue, ...], dict[int, int] | None]:
        replaced = with_replaced(plain, arguments, is_donated, jaxpr)
        return replaced, passed_on(replaced, arguments, is_donated, jaxpr)

    outputs, passed = parts.made("what the next call gets", next_call, (plain, None))
    return Interface(mesh, arguments, outputs, constraints), passed


def _plain_fields(
    compiled: CompiledStages,
    interface: Interface,
    passed: Collection[int] | None,
    module: Module | None,
    lines: UserLines,
) -> Fields:
    """Return the fields of a report that it has also of a program whose record cannot be read."""
    paths = [argument.path for argument in interface.arguments]
    return {
        **interface._asdict(),
        "out_of_memory": out_of_memory_of(compiled.refusal, module, compiled.assignment, lines),
        "device_count": interface.device_count,
        "passed_on": None if passed is None else tuple(paths[number] for number in sorted(passed)),
    }
