"""Temporary values at the highest point of a program's schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .buffers import Buffer, Writer
from .liveness import buffers_of
from .module import ArrayShape, Frame, Instruction, Module
from .sources import Sources, is_move


class LiveValue(NamedTuple):
    """A temporary value."""

    shape: ArrayShape
    """Type on a device."""

    frames: tuple[Frame, ...]
    """Source lines of the operation that computes it, innermost first; empty if there are none."""

    op_name: str | None
    """Name of this operation."""

    is_kept: bool
    """Whether a loop stacks it over its iterations, for a later loop."""


def highest_point(
    module: Module, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> tuple[LiveValue, ...]:
    """Return the temporary values that are live where the schedule needs the most bytes for them.

    Arguments, outputs, constants and values outside of the device's main memory are not among them. A
    buffer that a loop carries is one value.

    Args:
        module: A scheduled program.
        nearest: A function that returns the first instruction whose line is worth showing.
    """
    buffers = [
        buffer
        for buffer in buffers_of(module)
        if buffer.is_temporary and buffer.shape.memory_space == 0 and buffer.shape.nbytes and buffer.writers
    ]
    time = _highest_time(buffers)
    sources = Sources(module)
    return tuple(
        _live_value(buffer, sources, nearest)
        for buffer in buffers
        if any(start <= time <= end for start, end in buffer.spans)
    )


def _highest_time(buffers: Iterable[Buffer]) -> int:
    """Return the first time at which the live buffers have the most bytes."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        reached = 0
        for start, end in sorted(buffer.spans):
            # Spans of the same buffer may overlap; it counts once.
            start = max(start, reached)
            if end >= start:
                changes[start] = changes.get(start, 0) + buffer.shape.nbytes
                changes[end + 1] = changes.get(end + 1, 0) - buffer.shape.nbytes
                reached = end + 1
    live, most, found = 0, 0, 0
    for time in sorted(changes):
        live += changes[time]
        if live > most:
            most, found = live, time
    return found


def _live_value(
    buffer: Buffer, sources: Sources, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> LiveValue:
    """Return the value of a buffer, with the line of the instruction that computes it."""
    stacking = [writer for writer in buffer.updates if sources.is_at_loop_index(writer)]
    # A buffer that a loop carries has its first value from outside, and the others from the body.
    deepest = max(writer.scope.loops for writer in buffer.writers)
    writer = (
        stacking[-1] if stacking else next(w for w in reversed(buffer.writers) if w.scope.loops == deepest)
    )
    found = nearest(sources.stored(writer) if stacking else _around(writer, sources))
    return LiveValue(
        shape=buffer.shape,
        frames=() if found is None else found.frames,
        op_name=None if found is None else found.op_name,
        is_kept=bool(stacking) and buffer.is_read_by_loop,
    )


def _around(writer: Writer, sources: Sources) -> Iterator[Instruction]:
    """Yield the instruction that writes a value, and then others whose line may stand for it."""
    scope, one, leaf = writer
    yield one
    before = (scope, one.name, leaf)
    if is_move(one):
        yield from sources.computing(before)
        yield from sources.consumers(scope, one.name)
    else:
        yield from sources.consumers(scope, one.name)
        yield from sources.computing(before)
