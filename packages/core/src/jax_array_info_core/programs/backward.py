"""Values for the backward pass: those that JAX saves, and those that are live in the schedule of XLA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..arrays.stage_leaves import shard_shape
from ..compat.arrays import traceback_lines
from ..compat.jaxprs import traceback_of
from ..compat.lowering import lowered_for_propagation
from ..compat.programs import module_bytecode
from ..compat.residuals import NestedDerivativesError, SavedValue, saved_values, with_further_outputs
from ..compat.stages import ProgramLeaf, Stages, output_leaves
from ..hlo.liveness import LiveValue, Temporaries
from ..hlo.module import Module
from ..hlo.schedule import schedule_of
from ..hlo.source import is_nested_derivative, pass_of
from ..layouts.dtypes import bits_per_element, packed_nbytes
from ..origins.origins import Owner, UserLines
from ..propagation.graph import Graph, shard_of
from ..propagation.helper import ask
from ..propagation.propagation_report import results_of
from ..quantities import known_sum
from ..reports.backward import BackwardLine, LiveAtBackward, SavedForBackward
from .caveats import VMEM

_Sizes = tuple[int | None, int | None]
_NESTED = "nested derivatives"
_UNNAMED = "up to JAX 0.6, only operations in a jax.named_scope tell their pass"


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
    left = {number: value for number, value in enumerate(values) if sizes[number] is None}
    if explains and any(value.manual is None for value in left.values()):
        # What JAX cannot trace once more, such as a program of another version, stays unknown.
        with contextlib.suppress(Exception):
            for number, nbytes in _propagated(stages, arguments, left).items():
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
        nbytes=known_sum(one.nbytes for one in on_device),
        global_nbytes=known_sum(one.global_nbytes for one in on_device),
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
    asked = [one.asked for one in output_leaves(stages)]
    traced, structs, stacked = with_further_outputs(
        stages.traced, [one.asked for one in arguments], asked, values
    )
    lowered = lowered_for_propagation(Stages(traced=traced), structs)[0].lowered
    graph = Graph(ask(module_bytecode(lowered)))
    found: dict[int, int | None] = {}
    for (number, count), result in zip(stacked.items(), results_of(graph, len(stacked)), strict=True):
        value = values[number]
        if result is not None and result.shape is not None and value.manual is None:
            axes = result.axes[count : count + len(value.shape)]
            shard = shard_of([int(one) for one in value.shape], axes, graph.sizes)
            found[number] = packed_nbytes(shard, bits_per_element(value.dtype))
    return found


def live_at_backward(
    found: Temporaries,
    module: Module,
    saved: SavedForBackward | None,
    lines: UserLines,
    *,
    is_traced: bool,
) -> LiveAtBackward | None:
    """Return what is live when the backward pass begins; None if there is none.

    Args:
        found: The temporary values of the program.
        module: The program.
        saved: What JAX saves for the backward pass.
        lines: The search for the user's line.
        is_traced: Whether the trace of the program is known.
    """
    if is_nested(module, saved, is_traced=is_traced):
        return LiveAtBackward(reason=_NESTED)
    if found.at_backward is None:
        has_backward = saved is not None if is_traced else _has_backward(module)
        return LiveAtBackward(reason=_UNNAMED) if has_backward and not found.tells_passes else None
    in_main = [one for one in found.at_backward if one.shape.memory_space == 0]
    in_vmem = (one for one in found.at_backward if one.shape.memory_space == VMEM)
    sized = [(_line_of(one, lines), (one.shape.nbytes, None)) for one in in_main]
    return LiveAtBackward(
        nbytes=sum(one.shape.nbytes for one in in_main),
        vmem_nbytes=sum(one.shape.nbytes for one in in_vmem),
        lines=_by_line(sized),
    )


def is_nested(module: Module, saved: SavedForBackward | None, *, is_traced: bool) -> bool:
    """Return whether a program differentiates a derivative: by its trace, else by its scheduled operations.

    Args:
        module: The program.
        saved: What JAX saves for the backward pass.
        is_traced: Whether the trace of the program is known.
    """
    if is_traced:
        return saved is not None and saved.reason is not None
    return any(is_nested_derivative(one.op_name) for one in module.once(schedule_of).operations)


def _has_backward(module: Module) -> bool:
    """Return whether the names of some operations tell that they belong to the backward pass."""
    computations = module.computations.values()
    return any(pass_of(one.op_name) == "backward" for each in computations for one in each.instructions)


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
    found: dict[BackwardLine, list[_Sizes]] = {}
    for line, sizes in sized:
        found.setdefault(line, []).append(sizes)
    summed = [
        replace(line, count=len(sizes), nbytes=nbytes, global_nbytes=global_nbytes)
        for line, sizes in found.items()
        for nbytes, global_nbytes in [map(known_sum, zip(*sizes, strict=True))]
    ]
    return tuple(sorted(summed, key=lambda one: -(one.global_nbytes or one.nbytes or 0)))
