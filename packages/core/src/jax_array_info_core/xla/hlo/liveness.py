"""Live bytes over the schedule of a program, and the temporary values at its peak."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.grouping import sums_by_key
from .buffers import Buffer, Writer, result_places, root_parts, updates_in_place
from .collectives import COLLECTIVES
from .dataflow import Dataflow, Value
from .messages import TUPLE, ArrayShape
from .module import Instruction, Module, Passing, called, operations
from .oom_logs import ListedBuffer
from .schedule import Schedule, live_at_turn, schedule_of
from .source import Frame

# These compute nothing themselves. Their lines are those of what contains the value, such as a scan.
_CONTAINERS = ("tuple", "get-tuple-element", "parameter", "constant", "fusion", "call", "while")
MOST_ELSEWHERE = 50
"""Number of values in ``Temporaries.elsewhere``: the line of each is searched."""
_MOVES = operations(Passing.MOVE).union(_CONTAINERS)


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

    is_for_backward: bool = False
    """Whether it is among ``Temporaries.at_backward``."""


Range = tuple[int, int]
"""First and last of numbers."""


class LiveBytes(NamedTuple):
    """Bytes of the temporary values at points of the schedule."""

    operation_count: int
    """Number of operations in the schedule."""

    points: tuple[int, ...]
    """Operations of the points, counted from 1, ascending."""

    operations: tuple[Instruction, ...]
    """These operations."""

    nbytes: tuple[int, ...]
    """Bytes of all temporary values that are live at each point."""

    values: tuple[tuple[LiveValue, tuple[Range, ...]], ...]
    """Values that are live at some point, the largest first, each with the ranges of its points."""


class Temporaries(NamedTuple):
    """Temporary values of a program."""

    highest: tuple[LiveValue, ...]
    """Those that are live where the schedule needs the most bytes for them."""

    at_backward: tuple[LiveValue, ...] | None
    """Those that are live when the backward pass begins, and that it does not compute, also those outside of
    the main memory; None if the passes are not told apart, or if there is none."""

    elsewhere: tuple[LiveValue, ...]
    """The largest that are not live there."""

    tells_passes: bool
    """Whether the passes are told apart."""


def temporaries_of(
    module: Module,
    nearest: Callable[[Iterable[Instruction]], Instruction | None],
    *,
    tells_passes: bool = True,
) -> Temporaries:
    """Return the temporary values at the highest point of the schedule, and those for the backward pass.

    Arguments, outputs, constants and values outside of the device's main memory are not among them. A
    buffer that a loop carries is one value.

    Args:
        module: A scheduled program.
        nearest: A function that returns the first instruction whose line is worth showing.
        tells_passes: Whether the names of all operations of a derivative contain its transformations.
    """
    schedule, dataflow = module.once(schedule_of), module.once(Dataflow)
    buffers = sorted(_temporary_buffers(schedule), key=_by_size)
    time = _highest_time(buffers)
    held = live_at_turn(schedule, dataflow) if tells_passes else None
    is_for_backward = {*map(id, held or ())}.__contains__
    known: dict[int, LiveValue] = {}

    def values(some: Sequence[Buffer]) -> tuple[LiveValue, ...]:
        for buffer in some:
            if id(buffer) not in known:
                value = _live_value(buffer, dataflow, nearest)
                known[id(buffer)] = value._replace(is_for_backward=is_for_backward(id(buffer)))
        return tuple(known[id(buffer)] for buffer in some)

    is_highest = [any(start <= time <= end for start, end in buffer.spans) for buffer in buffers]
    others = [buffer for buffer, is_high in zip(buffers, is_highest, strict=True) if not is_high]
    return Temporaries(
        highest=values(list(itertools.compress(buffers, is_highest))),
        at_backward=None if held is None else values(sorted(held, key=_by_size)),
        elsewhere=values(others[:MOST_ELSEWHERE]),
        tells_passes=tells_passes,
    )


def highest_buffers(module: Module) -> list[Buffer]:
    """Return the buffers of the temporary values where the schedule needs the most bytes for them."""
    buffers = _temporary_buffers(module.once(schedule_of))
    time = _highest_time(buffers)
    return [buffer for buffer in buffers if any(start <= time <= end for start, end in buffer.spans)]


def live_bytes_of(
    module: Module, nearest: Callable[[Iterable[Instruction]], Instruction | None], most_points: int
) -> LiveBytes:
    """Return the bytes of the temporary values of ``temporaries_of`` along the schedule.

    Each point is the operation with the most live bytes in its part of the schedule; parts have equal
    lengths. So the highest point of ``temporaries_of`` is one of the points: the first with the most bytes.

    Args:
        module: A scheduled program.
        nearest: A function that returns the first instruction whose line is worth showing.
        most_points: Maximum number of points.
    """
    schedule = module.once(schedule_of)
    buffers = _temporary_buffers(schedule)
    count = len(schedule.operations)
    changes = _changes(buffers)
    totals = [*itertools.accumulate(changes.get(time, 0) for time in range(count + 1))]
    parts = min(count, most_points)
    edges = [1 + count * part // parts for part in range(parts + 1)]
    points = [max(range(*edge), key=totals.__getitem__) for edge in itertools.pairwise(edges)]
    dataflow = module.once(Dataflow)
    values = []
    for buffer in sorted(buffers, key=_by_size):
        ranges = [
            (bisect_left(points, start), bisect_right(points, end) - 1) for start, end in _live_ranges(buffer)
        ]
        if seen := tuple((first, last) for first, last in ranges if first <= last):
            values.append((_live_value(buffer, dataflow, nearest), seen))
    return LiveBytes(
        operation_count=count,
        points=tuple(points),
        operations=tuple(schedule.operations[point - 1] for point in points),
        nbytes=tuple(totals[point] for point in points),
        values=tuple(values),
    )


def most_live_nbytes(module: Module, memory_space: int) -> int:
    """Return the most bytes that temporary values have at one time in one of XLA's memory spaces."""
    changes = sorted(_changes(_temporary_buffers(module.once(schedule_of), memory_space)).items())
    return max(itertools.accumulate((change for _, change in changes), initial=0))


def _by_size(buffer: Buffer) -> int:
    return -buffer.shape.nbytes


def lines_of_values(
    module: Module, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> Callable[[Instruction, int], tuple[str | None, tuple[Frame, ...]]]:
    """Return a function that finds the operation and the source lines of an array.

    It takes the instruction that makes the array, and the place of the array in its result. A value that a
    loop stacks has the lines inside of the loop, as in ``temporaries_of``.

    Args:
        module: A scheduled program.
        nearest: A function that returns the first instruction whose line is worth showing.
    """
    dataflow = module.once(Dataflow)
    writers = {
        (writer.instruction.name, writer.leaf): (writer, buffer)
        for buffer in module.once(schedule_of).buffers
        for writer in buffer.writers
    }

    def lines_of(instruction: Instruction, leaf: int) -> tuple[str | None, tuple[Frame, ...]]:
        writer, buffer = writers.get((instruction.name, leaf), (None, None))
        known: Instruction | LiveValue | None = instruction
        if writer is not None and buffer is not None:
            is_carried = any(other.scope.loops > writer.scope.loops for other in buffer.writers)
            known = (
                _live_value(buffer, dataflow, nearest) if is_carried else nearest(_around(writer, dataflow))
            )
        known = known if known is not None and known.frames else instruction
        return known.op_name, known.frames

    return lines_of


def _temporary_buffers(schedule: Schedule, memory_space: int = 0) -> list[Buffer]:
    """Return the buffers of temporary values in a memory, by default the main one of the device."""
    return [
        buffer
        for buffer in schedule.buffers
        if buffer.is_temporary
        and buffer.shape.memory_space == memory_space
        and buffer.shape.nbytes
        and buffer.writers
    ]


def _live_ranges(buffer: Buffer) -> Iterator[Range]:
    """Yield the times at which a buffer is live. Its spans may overlap; these ranges do not."""
    reached = 0
    for start, end in sorted(buffer.spans):
        start = max(start, reached)
        if end >= start:
            yield start, end
            reached = end + 1


def _changes(buffers: Iterable[Buffer]) -> Mapping[int, int]:
    """Return by how many bytes the live buffers change at each time."""
    ranges = [(buffer.shape.nbytes, *times) for buffer in buffers for times in _live_ranges(buffer)]
    begun, ended = ((start, size) for size, start, _ in ranges), ((end + 1, -size) for size, _, end in ranges)
    return sums_by_key(itertools.chain(begun, ended))


def _highest_time(buffers: Iterable[Buffer]) -> int:
    """Return the first time at which the live buffers have the most bytes."""
    changes = sorted(_changes(buffers).items())
    totals = [*itertools.accumulate((change for _, change in changes), initial=0)]
    return [0, *(time for time, _ in changes)][totals.index(max(totals))]


def _live_value(
    buffer: Buffer, dataflow: Dataflow, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> LiveValue:
    """Return the value of a buffer, with the line of the instruction that computes it."""
    stacking = [writer for writer in buffer.updates if _is_at_loop_index(writer, dataflow)]
    # A buffer that a loop carries has its first value from outside, and the others from the body.
    deepest = max(writer.scope.loops for writer in buffer.writers)
    writer = (
        stacking[-1] if stacking else next(w for w in reversed(buffer.writers) if w.scope.loops == deepest)
    )
    instruction = nearest(_stored(writer, dataflow) if stacking else _around(writer, dataflow))
    return LiveValue(
        shape=buffer.shape,
        frames=() if instruction is None else instruction.frames,
        op_name=None if instruction is None else instruction.op_name,
        is_kept=bool(stacking) and buffer.is_read_by_loop,
    )


def _is_at_loop_index(writer: Writer, dataflow: Dataflow) -> bool:
    """Return whether an update writes at an index that the loop changes, such as its counter."""
    within, update = _update(writer, dataflow)
    if update is None or update.opcode != "dynamic-update-slice":
        return False
    return any(dataflow.changes_in_turns(Value(within, name)) for name in update.operands[2:])


def _stored(writer: Writer, dataflow: Dataflow) -> Iterator[Instruction]:
    """Yield the instructions that compute what an update in place stores, the nearest first."""
    within, update = _update(writer, dataflow)
    if update is not None:
        value = 2 if update.opcode == "scatter" else 1
        yield from _computing(Value(within, update.operands[value]), dataflow)
        yield update
    yield writer.instruction


def _update(writer: Writer, dataflow: Dataflow) -> tuple[str, Instruction | None]:
    """Return the update that an instruction is, or that its fusion ends with, and its computation."""
    computation, part = writer.scope.computation, writer.instruction
    if part.opcode in ("fusion", "fusion-start"):
        computation = dataflow.module.computations[called(part, "callee")]
        parts = dict(zip(result_places(part), root_parts(computation), strict=False))
        if writer.leaf not in parts:
            return computation.name, None
        part = parts[writer.leaf]
    return computation.name, updates_in_place(computation, part)


def _around(writer: Writer, dataflow: Dataflow) -> Iterator[Instruction]:
    """Yield the instruction that writes a value, and then others whose line may stand for it."""
    within, instruction = writer.scope.computation.name, writer.instruction
    if len(instruction.groups) > 1 and instruction.opcode.removesuffix("-start") in COLLECTIVES:
        # A combined collective has the line of one of its arrays; each has its own where it is taken out.
        taken = dataflow.consumers(writer.value, is_end=lambda user: user.opcode == "get-tuple-element")
        yield from itertools.islice(taken, 1)
    yield instruction
    before = _computing(writer.value, dataflow)
    after = dataflow.consumers(Value(within, instruction.name), is_end=lambda user: not _is_move(user))
    yield from itertools.chain(before, after) if _is_move(instruction) else itertools.chain(after, before)


def _computing(value: Value, dataflow: Dataflow) -> Iterator[Instruction]:
    """Yield the instructions that compute a value, the nearest first.

    Those that only move or contain a value, such as copies and fusions, come last.
    """
    moves = []
    for _, instruction in dataflow.walk(value):
        if _is_move(instruction):
            moves.append(instruction)
        else:
            yield instruction
    yield from moves


def _is_move(instruction: Instruction) -> bool:
    return instruction.opcode in _MOVES or instruction.opcode.endswith(("-start", "-done"))


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
        allocation
        for allocation in message.buffer_allocations
        if allocation.color == _MAIN_MEMORY and not allocation.is_thread_local
    ]
    peaks = {peak.index: peak.logical_buffer_ids for peak in message.peak_buffers}
    numbers = [
        number
        for allocation in counted
        for number in peaks.get(allocation.index) or _disjoint(allocation.assigned)
    ]
    values = {value.id: value for value in message.logical_buffers}
    listed = _described([values[number] for number in numbers if number in values], module, nearest)
    return Assignment(
        sum(allocation.size for allocation in counted),
        tuple(sorted(listed, key=lambda buffer: -buffer.nbytes)),
    )


class AllocatedBytes(NamedTuple):
    """Bytes of the allocations of a program, as ``CompiledMemoryStats`` has them."""

    arguments: int
    outputs: int
    """With those in the memory of arguments."""
    aliases: int
    """Bytes of the outputs in the memory of arguments."""
    temporaries: int


def allocated_nbytes(message: Any) -> AllocatedBytes:
    """Return the bytes of the allocations of a program.

    Args:
        message: A ``BufferAssignmentProto``.
    """
    arguments = outputs = aliases = temporaries = 0
    for allocation in message.buffer_allocations:
        is_argument, is_output = allocation.is_entry_computation_parameter, allocation.maybe_live_out
        arguments += allocation.size * is_argument
        outputs += allocation.size * is_output
        aliases += allocation.size * (is_argument and is_output)
        is_other = is_argument or is_output or allocation.is_thread_local or allocation.is_constant
        temporaries += allocation.size * (not is_other)
    return AllocatedBytes(arguments, outputs, aliases, temporaries)


def _disjoint(assigned: Iterable[Any]) -> list[int]:
    """Return the largest values of an allocation that do not overlap."""
    taken: dict[tuple[int, int], int] = {}
    for value in sorted(assigned, key=lambda value: -value.size):
        start, end = value.offset, value.offset + value.size
        if value.size and all(start >= last or end <= first for first, last in taken):
            taken[start, end] = value.logical_buffer_id
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
        instruction, shape = instructions.get(value.defined_at.instruction_id, (None, None))
        place = None if instruction is None else _leaf(module, shape, value.defined_at.shape_index)
        if instruction is not None and place is not None:
            leaf, array = place
            op, frames = facts(instruction, leaf)
            yield ListedBuffer(value.size, array, op, frames)


def _leaf(module: Module, shape: Any, index: Sequence[int]) -> tuple[int, ArrayShape] | None:
    """Return the place of an array in a type, nested tuples flattened, and its type; None for a tuple."""
    before = 0
    for number in index:
        before += sum(len(module.types.of(part).shapes) for part in shape.tuple_shapes[:number])
        shape = shape.tuple_shapes[number]
    return None if shape.element_type == TUPLE else (before, module.types.of(shape).shapes[0])
