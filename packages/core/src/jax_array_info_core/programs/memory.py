"""Memory of a compiled program, along its schedule, and of its backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ..arrays.origins.origins import Owner, UserLines
from ..arrays.stage_leaves import shard_shape
from ..base.grouping import by_key
from ..base.quantities import known_sum
from ..compat.arrays import traceback_lines
from ..compat.jaxprs import jaxpr_names, traceback_of
from ..compat.lowering import lowered_for_propagation
from ..compat.programs import MemoryStatistics, module_bytecode
from ..compat.residuals import (
    NestedDerivativesError,
    SavedValue,
    passes_are_named,
    saved_values,
    with_further_outputs,
)
from ..compat.stages import ProgramLeaf, Stages, output_leaves
from ..facts.reports.origin import Origin
from ..facts.reports.program_memory import (
    BackwardLine,
    LiveAtBackward,
    ProgramMemory,
    ProgramSeries,
    ProgramTimelineReport,
    SavedForBackward,
    Temporary,
)
from ..facts.reports.program_values import (
    Donation,
    ProgramValue,
)
from ..facts.reports.timeline import MAX_POINTS, MAX_SERIES
from ..geometry.layouts.dtypes import bits_per_element, dtype_name, packed_nbytes
from ..xla.hlo.liveness import (
    LiveBytes,
    LiveValue,
    Temporaries,
    live_bytes_of,
    most_live_nbytes,
    temporaries_of,
)
from ..xla.hlo.module import Module
from ..xla.hlo.schedule import schedule_of
from ..xla.hlo.source import is_nested_derivative, pass_of, scope_of
from .collectives import merged
from .compiled import VMEM
from .propagation.graph import shard_of
from .propagation.helper import ask
from .propagation.propagation_report import results_of
from .propagation.wire import read_graph

_KEPT = "reduce_precision"
"""Last part of the name of a value that ``jax.checkpoint`` keeps."""
MOST_TEMPORARIES = 20
"""Number of the largest temporary values in a report."""
_LEAST_SHARE = 1000
"""Part of the bytes at the peak that a line of its own has at least, at some point."""
_Sizes = tuple[int | None, int | None]
_NESTED = "nested derivatives"
_UNNAMED = "up to JAX 0.6, only operations in a jax.named_scope tell their pass"


class CheckpointNames:
    """The names by line and dtype, which is all that a compiled program has of them."""

    def __init__(self, jaxpr: Any, lines: UserLines) -> None:
        self._names: dict[tuple[str, int, str], set[str]] = {}
        for name, dtype, traceback in jaxpr_names(jaxpr):
            origin = None if traceback is None else lines.origin(traceback_lines(traceback))
            if origin is not None:
                self._names.setdefault((origin.file, origin.line, dtype_name(dtype)), set()).add(name)

    def of(self, value: LiveValue, origin: Origin | None) -> str | None:
        """Return the name of a value; None if it has none, or if several of its line have its dtype."""
        if origin is None or not (value.op_name or "").endswith(_KEPT):
            return None
        names = self._names.get((origin.file, origin.line, value.shape.dtype), set())
        return next(iter(names)) if len(names) == 1 else None


def figures_of(statistics: MemoryStatistics | None, platform: str) -> ProgramMemory:
    """Return the memory of a program per device, without its temporary values.

    Args:
        statistics: XLA's figures; None if the backend has none.
        platform: Platform that it is compiled for.
    """
    figures = statistics or MemoryStatistics()
    # On CPU, from JAX 0.7 on, the peak is little more than the arguments, without any temporary value. On
    # TPU, its temporary values are those of the fullest memory, which may be VMEM.
    peak = None if platform in ("cpu", "tpu") else figures.peak_nbytes or None
    return ProgramMemory(
        **figures._replace(peak_nbytes=peak)._asdict(), temporaries=None, live_nbytes=None, elsewhere=None
    )


def with_temporaries(
    memory: ProgramMemory, module: Module, platform: str, lines: UserLines, traced: Any = None
) -> ProgramMemory:
    """Return the memory of a program with its temporary values.

    They are computed from the schedule. XLA may need a little more for them than the sum, because of
    alignment and gaps, or less, because it also uses the memory of outputs.

    Args:
        memory: XLA's figures, and what JAX saves for the backward pass.
        module: The compiled program.
        platform: Platform that it is compiled for.
        lines: The search for the user's line.
        traced: The ``jax.stages.Traced`` that it is compiled from; None if it is not known.
    """
    saved = memory.saved
    names = None if traced is None else CheckpointNames(traced.jaxpr, lines)
    is_traced = traced is not None
    is_nested = _is_nested(module, saved, is_traced=is_traced)
    temporaries = temporaries_of(
        module, lines.nearest, tells_passes=passes_are_named(traced) and not is_nested
    )
    at_backward = (
        LiveAtBackward(reason=_NESTED)
        if is_nested
        else _live_at_backward(temporaries, module, saved, lines, is_traced=is_traced)
    )
    return replace(
        memory,
        temporaries=_merged(temporaries.highest, lines, names)[:MOST_TEMPORARIES],
        live_nbytes=sum(value.shape.nbytes for value in temporaries.highest),
        vmem_nbytes=most_live_nbytes(module, VMEM) if platform == "tpu" else None,
        live_at_backward=at_backward,
        elsewhere=_merged(temporaries.elsewhere, lines, names)[:MOST_TEMPORARIES],
    )


def _merged(
    values: Iterable[LiveValue], lines: UserLines, names: CheckpointNames | None
) -> tuple[Temporary, ...]:
    """Return equal values of the same line together, those with the most bytes first."""
    rows = merged(
        (
            Temporary(
                shape=value.shape.dims,
                dtype=value.shape.dtype,
                nbytes=value.shape.nbytes,
                origin=(origin := lines.origin(value.frames)),
                checkpoint_name=None if names is None else names.of(value, origin),
                is_kept=value.is_kept,
                is_for_backward=value.is_for_backward,
            ),
            scope_of(value.op_name),
        )
        for value in values
    )
    return tuple(sorted(rows, key=lambda row: -row.nbytes * row.count))


def with_host_apart(
    memory: ProgramMemory,
    arguments: Iterable[ProgramValue],
    outputs: Iterable[ProgramValue],
    donations: Iterable[Donation],
) -> ProgramMemory:
    """Return the memory of a program with the bytes of arguments and outputs in host memory apart.

    XLA tells them apart on TPU and GPU. On CPU, its figures of host memory are 0, and those of the device
    include them.

    Args:
        memory: XLA's figures.
        arguments: The arguments.
        outputs: The outputs.
        donations: The donated arguments.
    """
    kept = [value for value in arguments if value.is_in_host_memory and not value.is_pruned]
    paths = {value.path for value in kept}
    hosted = {
        "argument_nbytes": sum(value.nbytes or 0 for value in kept),
        "output_nbytes": sum(value.nbytes or 0 for value in outputs if value.is_in_host_memory),
        "alias_nbytes": sum(
            donation.nbytes
            for donation in donations
            if donation.output is not None and donation.path in paths
        ),
    }
    moved: dict[str, Any] = {}
    for name, nbytes in hosted.items():
        on_device = getattr(memory, name)
        if nbytes and on_device is not None and not getattr(memory, f"host_{name}"):
            part = min(nbytes, on_device)
            moved |= {name: on_device - part, f"host_{name}": part}
    return replace(memory, **moved)


def timeline_of(
    about: ProgramTimelineReport, memory: ProgramMemory, module: Module, lines: UserLines
) -> ProgramTimelineReport:
    """Return the memory of a program along its schedule.

    Temporary values are those of the schedule, arguments and outputs the figures of XLA. Outputs have the
    memory that XLA reports, less what the temporary values need of it: XLA places some of them in it.

    Args:
        about: A report that only names the program.
        memory: Its memory.
        module: The compiled program.
        lines: The search for the user's line.
    """
    live = live_bytes_of(module, lines.nearest, MAX_POINTS)
    peak = max(range(len(live.points)), key=live.nbytes.__getitem__)
    series = [*_of_xla(memory, live.nbytes, peak), *_of_lines(live, peak, lines)]
    series = [band for band in series if any(band.nbytes)]
    needed = memory.needed_nbytes
    return replace(
        about,
        operation_count=live.operation_count,
        points=live.points,
        operations=tuple(operation.name for operation in live.operations),
        series=tuple(series),
        live_nbytes=live.nbytes,
        total_nbytes=tuple(sum(band.nbytes[point] for band in series) for point in range(len(live.points))),
        peak=peak,
        peak_origin=lines.origin(live.operations[peak].frames),
        needed_nbytes=needed,
        needed_source="unknown" if needed is None else "sum" if memory.peak_nbytes is None else "peak",
        host_nbytes=memory.host_nbytes,
    )


def _of_xla(memory: ProgramMemory, live: Sequence[int], peak: int) -> Iterable[ProgramSeries]:
    """Yield arguments, outputs, and what XLA needs at the peak in addition."""
    needed = memory.needed_nbytes
    if needed is None:
        return
    arguments = memory.argument_nbytes or 0
    outputs = max((memory.output_nbytes or 0) - (memory.alias_nbytes or 0), 0)
    free = [min(outputs, max(needed - arguments - nbytes, 0)) for nbytes in live]
    unscheduled = max(needed - arguments - free[peak] - live[peak], 0)
    yield ProgramSeries(kind="arguments", nbytes=(arguments,) * len(live))
    yield ProgramSeries(kind="outputs", nbytes=tuple(free))
    yield ProgramSeries(kind="not in the schedule", nbytes=(unscheduled,) * len(live))


def _of_lines(live: LiveBytes, peak: int, lines: UserLines) -> Iterable[ProgramSeries]:
    """Yield the lines with the most bytes at the peak, then the others together."""
    changes: dict[Origin | None, list[int]] = {}
    places: dict[tuple[str, int, str], Origin] = {}
    for value, ranges in live.values:
        origin = lines.origin(value.frames)
        if origin is not None:  # calls of a line from several places are one line
            origin = places.setdefault((origin.file, origin.line, origin.function), origin)
        of_line = changes.setdefault(origin, [0] * (len(live.points) + 1))
        for first, last in ranges:
            of_line[first] += value.shape.nbytes
            of_line[last + 1] -= value.shape.nbytes
    by_origin = {origin: tuple(accumulate(of_line[:-1])) for origin, of_line in changes.items()}
    without_line = by_origin.pop(None, None)
    large = [
        origin for origin, nbytes in by_origin.items() if max(nbytes) * _LEAST_SHARE >= live.nbytes[peak]
    ]
    large.sort(key=lambda origin: (-by_origin[origin][peak], -max(by_origin[origin])))
    for origin in large[:MAX_SERIES]:
        yield ProgramSeries(kind="line", origin=origin, nbytes=by_origin.pop(origin))
    smaller = [*by_origin.values()]
    smaller += [] if without_line is None else [without_line]
    if smaller:
        yield ProgramSeries(kind="other lines", nbytes=tuple(map(sum, zip(*smaller, strict=True))))


def saved_of(
    stages: Stages,
    arguments: Sequence[ProgramLeaf],
    lines: UserLines,
    device_count: int,
    *,
    explains: bool,
) -> SavedForBackward | None:
    """Return what JAX saves for the backward pass; None without one, or without a trace.

    Args:
        stages: The stages of the program.
        arguments: Its arguments.
        lines: The search for the user's line.
        device_count: Number of its devices.
        explains: Whether Shardy can propagate the shardings of values on several devices.
    """
    if stages.traced is None:
        return None
    try:
        values = saved_values(stages.traced.jaxpr)
    except NestedDerivativesError:
        return SavedForBackward(reason=_NESTED)
    if values is None:
        return None
    sizes = [_known_nbytes(value, device_count) for value in values]
    unknown = {number: value for number, value in enumerate(values) if sizes[number] is None}
    if explains and any(value.manual is None for value in unknown.values()):
        # What JAX cannot trace once more, such as a program of another version, stays unknown.
        with contextlib.suppress(Exception):
            for number, nbytes in _propagated(stages, arguments, unknown).items():
                sizes[number] = nbytes
    on_device, offloaded = (
        _by_line(
            (_line_of_saved(value, lines), (size, value.global_nbytes))
            for value, size in zip(values, sizes, strict=True)
            if value.is_in_host_memory == is_in_host_memory
        )
        for is_in_host_memory in (False, True)
    )
    return SavedForBackward(
        nbytes=known_sum(line.nbytes for line in on_device),
        global_nbytes=known_sum(line.global_nbytes for line in on_device),
        lines=on_device,
        offloaded=offloaded,
    )


def _known_nbytes(value: SavedValue, device_count: int) -> int | None:
    """Return the bytes of a value on a device, as far as the trace tells."""
    if device_count == 1 or (value.manual is not None and value.manual.is_whole):
        return value.part_nbytes
    shard = None if value.sharding is None else shard_shape(value.shape, value.sharding)
    return None if shard is None else packed_nbytes(shard, bits_per_element(value.dtype))


def _propagated(
    stages: Stages,
    arguments: Sequence[ProgramLeaf],
    values: dict[int, SavedValue],
) -> dict[int, int | None]:
    """Return the bytes on a device of values, as Shardy propagates shardings to them, by number.

    The program is traced once more, to return these values too.

    Raises:
        Exception: If it cannot be, or if Shardy gives no answer.
    """
    asked = [leaf.asked for leaf in output_leaves(stages)]
    traced, structs, stacked = with_further_outputs(
        stages.traced, [argument.asked for argument in arguments], asked, values
    )
    lowered = lowered_for_propagation(Stages(traced=traced), structs)[0].lowered
    graph = read_graph(ask(module_bytecode(lowered)))
    nbytes_of: dict[int, int | None] = {}
    for (number, count), result in zip(stacked.items(), results_of(graph, len(stacked)), strict=True):
        value = values[number]
        if result is not None and result.shape is not None and value.manual is None:
            axes = result.axes[count : count + len(value.shape)]
            shard = shard_of([int(length) for length in value.shape], axes, graph.sizes)
            nbytes_of[number] = packed_nbytes(shard, bits_per_element(value.dtype))
    return nbytes_of


def _live_at_backward(
    temporaries: Temporaries,
    module: Module,
    saved: SavedForBackward | None,
    lines: UserLines,
    *,
    is_traced: bool,
) -> LiveAtBackward | None:
    """Return what is live when the backward pass begins; None if there is none.

    Args:
        temporaries: The temporary values of the program.
        module: The program.
        saved: What JAX saves for the backward pass.
        lines: The search for the user's line.
        is_traced: Whether the trace of the program is known.
    """
    if temporaries.at_backward is None and temporaries.tells_passes:
        return None
    if temporaries.at_backward is None:
        named = (
            instruction.op_name
            for computation in module.computations.values()
            for instruction in computation.instructions
        )
        has_backward = saved is not None if is_traced else "backward" in map(pass_of, named)
        return LiveAtBackward(reason=_UNNAMED) if has_backward else None
    in_main = [value for value in temporaries.at_backward if value.shape.memory_space == 0]
    in_vmem = (value for value in temporaries.at_backward if value.shape.memory_space == VMEM)
    sized = [(_line_of(value, lines), (value.shape.nbytes, None)) for value in in_main]
    return LiveAtBackward(
        nbytes=sum(value.shape.nbytes for value in in_main),
        vmem_nbytes=sum(value.shape.nbytes for value in in_vmem),
        lines=_by_line(sized),
    )


def _is_nested(module: Module, saved: SavedForBackward | None, *, is_traced: bool) -> bool:
    """Return whether a program differentiates a derivative: by its trace, else by its scheduled operations.

    Args:
        module: The program.
        saved: What JAX saves for the backward pass.
        is_traced: Whether the trace of the program is known.
    """
    if is_traced:
        return saved is not None and saved.reason is not None
    return any(
        map(is_nested_derivative, {operation.op_name for operation in module.once(schedule_of).operations})
    )


def _line_of(value: LiveValue, lines: UserLines) -> BackwardLine:
    return BackwardLine(nbytes=None, origin=lines.origin(value.frames), is_in_loop=value.is_kept)


def _line_of_saved(value: SavedValue, lines: UserLines) -> BackwardLine:
    frames: list[tuple[str, int, str]] = []
    for equation in value.equations:
        # A function of JAX's that is jitted has frames of JAX alone: its call has the others.
        traceback = traceback_of(equation)
        frames += [] if traceback is None else traceback_lines(traceback)
        if any(lines.owner(file) is Owner.USER for file, _, _ in frames):
            break
    origin = lines.origin(frames)
    return BackwardLine(nbytes=None, origin=origin, checkpoint_name=value.name, is_in_loop=value.is_stacked)


def _by_line(sized: Iterable[tuple[BackwardLine, _Sizes]]) -> tuple[BackwardLine, ...]:
    """Return the values of each line together, the line with the most bytes first.

    Args:
        sized: The line of each value, its bytes on a device, and those on all devices.
    """
    summed = [
        replace(line, count=len(sizes), nbytes=nbytes, global_nbytes=global_nbytes)
        for line, sizes in by_key(sized).items()
        for nbytes, global_nbytes in [map(known_sum, zip(*sizes, strict=True))]
    ]
    return tuple(
        sorted(summed, key=lambda summed_line: -(summed_line.global_nbytes or summed_line.nbytes or 0))
    )
