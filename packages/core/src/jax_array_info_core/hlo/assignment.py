"""XLA's assignment of values to memory, in the record of a program that it refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .liveness import lines_of_values
from .messages import TUPLE
from .module import Instruction, Module
from .oom_logs import ListedBuffer
from .shapes import ArrayShape

_MAIN_MEMORY = 0
"""XLA's color of the main memory of a device."""


class Assignment(NamedTuple):
    """XLA's assignment of values to the main memory of a device."""

    nbytes: int
    """Bytes of all allocations."""

    buffers: tuple[ListedBuffer, ...]
    """Arrays that are live at the peak of each allocation, the most bytes first."""


def read_assignment(
    message: Any, module: Module, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> Assignment:
    """Return the allocations in the main memory, with the arrays at their peaks.

    Where XLA does not name those of an allocation, as in JAX 0.4, they are the largest that do not overlap in
    memory.

    Args:
        message: A ``BufferAssignmentProto``.
        module: The program.
        nearest: A function that returns the first instruction whose line is worth showing.
    """
    counted = [
        one for one in message.buffer_allocations if one.color == _MAIN_MEMORY and not one.is_thread_local
    ]
    peaks = {one.index: one.logical_buffer_ids for one in message.peak_buffers}
    numbers = [number for one in counted for number in peaks.get(one.index) or _disjoint(one.assigned)]
    values = {one.id: one for one in message.logical_buffers}
    found = _described([values[number] for number in numbers if number in values], module, nearest)
    return Assignment(
        sum(one.size for one in counted), tuple(sorted(found, key=lambda buffer: -buffer.nbytes))
    )


def _disjoint(assigned: Iterable[Any]) -> list[int]:
    """Return the largest values of an allocation that do not overlap."""
    taken: dict[tuple[int, int], int] = {}
    for one in sorted(assigned, key=lambda one: -one.size):
        start, end = one.offset, one.offset + one.size
        if one.size and all(start >= last or end <= first for first, last in taken):
            taken[start, end] = one.logical_buffer_id
    return [*taken.values()]


def _described(
    values: Iterable[Any], module: Module, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> Iterator[ListedBuffer]:
    """Yield the arrays among some values, without the tuples, which hold only addresses."""
    instructions = {
        message.id: (computation.by_name[message.name], message.shape)
        for computation in module.computations.values()
        for message in computation.message.instructions
    }
    facts = lines_of_values(module, nearest)
    for value in values:
        one, shape = instructions.get(value.defined_at.instruction_id, (None, None))
        place = None if one is None else _leaf(module, shape, value.defined_at.shape_index)
        if one is not None and place is not None:
            leaf, array = place
            op, frames = facts(one, leaf)
            yield ListedBuffer(value.size, array, op, frames)


def _leaf(module: Module, shape: Any, index: Sequence[int]) -> tuple[int, ArrayShape] | None:
    """Return the place of an array in a type, nested tuples flattened, and its type; None for a tuple."""
    before = 0
    for number in index:
        before += sum(len(module.types.of(part).shapes) for part in shape.tuple_shapes[:number])
        shape = shape.tuple_shapes[number]
    return None if shape.element_type == TUPLE else (before, module.types.of(shape).shapes[0])
