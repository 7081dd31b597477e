"""Live buffers over the schedule of a program, and those at its peak."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from .buffers import (
    Buffer,
    Buffers,
    Scope,
    Writer,
    elementwise_parameters,
    fused_updates,
    is_elementwise,
    result_places,
    root_parts,
    shared_leaves,
    updates_in_place,
)
from .collectives import COLLECTIVES
from .dataflow import Dataflow, Value
from .frames import pass_of
from .module import ArrayShape, Computation, Frame, Instruction, Module, Passing, called, names_in, operations

# XLA gives each loop and branch a computation of its own. Text that calls one from many places is not
# followed into it more often than this, so that nonsense ends.
_MOST_CALLS = 16
_DEEPEST = 100
_COPIES = operations(Passing.COPY)
_NO_WRITES = operations(Passing.VIEW) | {"tuple", "get-tuple-element"}
# These compute nothing themselves. Their lines are those of what contains the value, such as a scan.
_CONTAINERS = ("tuple", "get-tuple-element", "parameter", "constant", "fusion", "call", "while")
_RUNS = ("async-start", "call", "conditional", "while")
MOST_ELSEWHERE = 50
"""Number of values in ``Temporaries.elsewhere``: the line of each is searched."""
_MOVES = operations(Passing.MOVE).union(_CONTAINERS)


def buffers_of(module: Module) -> list[Buffer]:
    """Return the buffers of a program, with the times of the schedule at which they are live.

    A loop's body is at the loop's place in the schedule, once; so are branches, one after the other. Values
    inside of a fusion have no buffer.
    """
    entry = module.computations.get(module.entry)
    if entry is None:
        return []
    schedule = _Schedule(module)
    in_place = {alias.output for alias in module.aliases}
    for output, value in enumerate(schedule.run(Scope(entry), ())):
        buffer = schedule.buffers.of(value)
        buffer.is_output = buffer.is_temporary and output not in in_place
        buffer.is_temporary = False
    return schedule.buffers.finish()


class _Fusion:
    """Facts on the computation of a fusion, which few of its callers need."""

    def __init__(self, computation: Computation | None) -> None:
        self._computation = computation

    @cached_property
    def updates(self) -> Mapping[int, tuple[int, int]]:
        """Arrays of the result that are updated in place, each with the operand and the array in it."""
        return {} if self._computation is None else fused_updates(self._computation)

    @cached_property
    def overwritten(self) -> frozenset[int]:
        """Operands that a result of the same size can be written over."""
        return frozenset() if self._computation is None else elementwise_parameters(self._computation)

    @cached_property
    def read_backward(self) -> frozenset[str]:
        """Parameters that operations of the backward pass are computed from, by number."""
        instructions = () if self._computation is None else self._computation.instructions
        read: set[str] = set()
        for one in reversed(instructions):
            if one.name in read or pass_of(one.op_name) == "backward":
                read.update(one.operands)
        return frozenset(
            one.literal for one in instructions if one.opcode == "parameter" and one.name in read
        )


class _Schedule:
    """State of the walk. The values of an instruction are those of its arrays, nested tuples flattened."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.buffers = Buffers()
        self.now = 0
        self.depth = 0
        self.calls: dict[str, int] = {}
        self.updated: list[tuple[int, Writer]] = []
        self.copied: list[tuple[int, int]] = []
        self.filled: set[int] = set()
        self.fusions: dict[str, _Fusion] = {}

    def run(self, scope: Scope, arguments: Sequence[Sequence[int]]) -> list[int]:
        """Run a computation with the values of its parameters, and return those of its result."""
        values: dict[str, Sequence[int]] = {}
        result: Sequence[int] = ()
        for one in scope.computation.instructions:
            self.now += 1
            operands = [values.get(name, ()) for name in one.operands]
            if one.opcode not in _NO_WRITES:
                for number, operand in enumerate(operands):
                    for value in operand:
                        self.buffers.use(value, self.now)
                        self.buffers.of(value).read_in.add(self._pass_of_use(one, number))
            leaves = self._called(scope, one, operands)
            if leaves is None and one.opcode == "parameter":
                leaves = self._parameter(one, arguments)
            values[one.name] = self._plain(scope, one, operands) if leaves is None else leaves
            if one.is_root:
                result = values[one.name]
        self.now += 1
        for value in result:
            self.buffers.use(value, self.now)
        return list(result)

    def _pass_of_use(self, one: Instruction, operand: int) -> str | None:
        """Return the pass that reads an operand; that of a loop's body is the pass of its instructions."""
        if one.opcode in ("fusion", "fusion-start") and str(operand) in self._fusion(one).read_backward:
            return "backward"
        return None if one.opcode in _RUNS else pass_of(one.op_name)

    def _new(self, one: Instruction, *, is_temporary: bool = True) -> list[int]:
        """Return new values for the arrays of a result."""
        return [self.buffers.new(shape, self.now, is_temporary=is_temporary) for shape in one.shapes]

    def _parameter(self, one: Instruction, arguments: Sequence[Sequence[int]]) -> list[int]:
        """Return the values of a parameter."""
        number = int(one.literal) if one.literal.isdecimal() else -1
        if 0 <= number < len(arguments) and len(arguments[number]) == len(one.shapes):
            return list(arguments[number])
        return self._new(one, is_temporary=False)

    def _plain(self, scope: Scope, one: Instruction, operands: Sequence[Sequence[int]]) -> list[int]:
        """Return the values of an instruction that runs no other computation in memory."""
        if one.opcode == "constant":
            return self._new(one, is_temporary=False)
        shared = shared_leaves(one, [scope.computation.by_name.get(name) for name in one.operands])
        if shared is None:
            return self._new(one, is_temporary=False)
        if one.opcode in ("fusion", "fusion-start") and (updates := self._fusion(one).updates):
            places = result_places(one)
            for number, operand_leaf in updates.items():
                if number < len(places) and shared[places[number]] is None:
                    shared[places[number]] = operand_leaf
        leaves = []
        for place, (shape, leaf) in enumerate(zip(one.shapes, shared, strict=True)):
            operand = operands[leaf[0]] if leaf is not None and leaf[0] < len(operands) else ()
            if leaf is not None and leaf[1] < len(operand):
                value = operand[leaf[1]]
                is_view = one.opcode in _NO_WRITES or one.opcode.endswith("-done")
                if not is_view and place in result_places(one):
                    writer = Writer(scope, one, place)
                    self.buffers.of(value).writers.append(writer)
                    self.updated.append((value, writer))
            else:
                value = self.buffers.new(shape, self.now)
                self.buffers.of(value).writers.append(Writer(scope, one, place))
                self._hand_on(one, operands, value, shape.nbytes)
            leaves.append(value)
        return leaves

    def _hand_on(self, one: Instruction, operands: Sequence[Sequence[int]], result: int, nbytes: int) -> None:
        """Note the operands that a result may be written over."""
        is_fusion = one.opcode == "fusion"
        if is_fusion or is_elementwise(one):
            for k, operand in enumerate(operands):
                is_same_size = len(operand) == 1 and self.buffers.of(operand[0]).shape.nbytes == nbytes
                if is_same_size and (not is_fusion or k in self._fusion(one).overwritten):
                    self.buffers.hand_on(self.now, operand[0], result)
        if one.opcode in _COPIES and operands and operands[0]:
            self.copied.append((operands[0][0], result))

    def _called(self, scope: Scope, one: Instruction, operands: Sequence[Sequence[int]]) -> list[int] | None:
        """Return the values of a loop, a branch or a call; None for other instructions."""
        result = None
        if one.opcode == "while" and operands:
            result = self._loop(scope, one, operands[0])
        elif one.opcode == "conditional":
            result = self._branches(scope, one, operands)
        elif one.opcode == "call":
            result = self._inside(scope, one, called(one, "to_apply"), operands)
        elif one.opcode == "async-start":
            inside = self._inside(scope, one, called(one, "calls"), operands)
            if inside is not None:
                result = [*(value for operand in operands for value in operand), *inside]
                rest = one.shapes[len(result) :]
                result += (self.buffers.new(shape, self.now) for shape in rest)
        return result if result is not None and len(result) == len(one.shapes) else None

    def _branches(
        self, scope: Scope, one: Instruction, operands: Sequence[Sequence[int]]
    ) -> list[int] | None:
        """Run all branches. Their results have the same buffers."""
        text = one.attributes.get("branch_computations") or ",".join(
            one.attributes.get(name, "") for name in ("true_computation", "false_computation")
        )
        results = [
            self._inside(scope, one, name, [operand])
            for name, operand in zip(names_in(text), operands[1:], strict=False)
        ]
        known = [result for result in results if result is not None and len(result) == len(one.shapes)]
        if not known:
            return None
        found = self._new(one)
        for result in known:
            for value, same in zip(found, result, strict=True):
                self.buffers.unite(value, same)
        return found

    def _loop(self, scope: Scope, one: Instruction, initial: Sequence[int]) -> list[int] | None:
        """Run a loop once. What it carries has the same buffer before, inside and after it."""
        if len(initial) != len(one.shapes):
            return None
        buffers, first_update, first_copy = self.buffers, len(self.updated), len(self.copied)
        carried = self._new(one)
        for before, value in zip(initial, carried, strict=True):
            buffers.unite(before, value)
        self._inside(scope, one, called(one, "condition"), [carried])
        result = self._inside(scope, one, called(one, "body"), [carried])
        if result is None or len(result) != len(carried):
            return None
        inside = self.updated[first_update:]
        changed = {buffers.root(value) for value, _ in inside}
        filled = self._filled()
        after = self._new(one)
        for value, last, end in zip(carried, result, after, strict=True):
            root = buffers.root(value)
            if root == buffers.root(last) and root not in changed and root in filled:
                buffers.of(value).is_read_by_loop = True
            buffers.unite(value, last)
            buffers.unite(value, end)
        roots = {buffers.root(value) for value in carried}
        # On TPU, a loop may update a value in faster memory, and carry a copy of the result.
        copies = {
            buffers.root(operand): copy
            for operand, copy in self.copied[first_copy:]
            if buffers.root(copy) in roots
        }
        for value, writer in inside:
            carrier = value if buffers.root(value) in roots else copies.get(buffers.root(value))
            if carrier is not None and writer not in buffers.of(carrier).updates:
                self.filled.add(carrier)
                buffers.of(carrier).updates.append(writer)
        return after

    def _filled(self) -> set[int]:
        """Return the buffers that a loop has updated part by part, and those of copies."""
        found = {self.buffers.root(value) for value in self.filled}
        for operand, copy in self.copied if found else ():
            if self.buffers.root(operand) in found:
                found.add(self.buffers.root(copy))
        return found

    def _inside(
        self, scope: Scope, one: Instruction, name: str | None, arguments: Sequence[Sequence[int]]
    ) -> list[int] | None:
        """Run a computation that an instruction calls; None if there is none, or it is called too often."""
        computation = self.module.computations.get(name or "")
        if computation is None or self.depth >= _DEEPEST:
            return None
        self.calls[computation.name] = self.calls.get(computation.name, 0) + 1
        if self.calls[computation.name] > _MOST_CALLS:
            return None
        self.depth += 1
        result = self.run(Scope(computation, one, scope, scope.loops + (one.opcode == "while")), arguments)
        self.depth -= 1
        return result

    def _fusion(self, one: Instruction) -> _Fusion:
        """Return the facts on the computation of a fusion."""
        text = one.attributes.get("calls", "")
        if text not in self.fusions:
            self.fusions[text] = _Fusion(self.module.computations.get(called(one, "calls") or ""))
        return self.fusions[text]


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

    is_for_backward: bool
    """Whether the forward pass computes it, or reads it first, and the backward pass reads it."""


class Temporaries(NamedTuple):
    """Temporary values of a program."""

    highest: tuple[LiveValue, ...]
    """Those that are live where the schedule needs the most bytes for them."""

    kept: tuple[LiveValue, ...]
    """Those that are kept for the backward pass, wherever they are live."""

    elsewhere: tuple[LiveValue, ...]
    """The largest that are not live there."""


def temporaries_of(
    module: Module, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> Temporaries:
    """Return the temporary values at the highest point of the schedule, and those for the backward pass.

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
    dataflow = Dataflow(module)
    has_backward = _has_backward_pass(module)
    highest: list[LiveValue] = []
    kept: list[LiveValue] = []
    elsewhere: list[LiveValue] = []
    for buffer in sorted(buffers, key=lambda buffer: -buffer.shape.nbytes):
        is_highest = any(start <= time <= end for start, end in buffer.spans)
        is_large = len(elsewhere) < MOST_ELSEWHERE
        if is_highest or is_large or buffer.is_read_by_loop or "backward" in buffer.read_in:
            value = _live_value(buffer, dataflow, nearest)
            highest += [value] * is_highest
            elsewhere += [value] * (is_large and not is_highest)
            # Up to JAX 0.6, the names of most operations do not contain the pass.
            is_stacked = value.is_kept and ("backward" in buffer.read_in or has_backward)
            kept += [value] * (value.is_for_backward or is_stacked)
    return Temporaries(tuple(highest), tuple(kept), tuple(elsewhere))


def _has_backward_pass(module: Module) -> bool:
    """Return whether some operation of a program belongs to the backward pass."""
    return any(
        pass_of(one.op_name) == "backward"
        for computation in module.computations.values()
        for one in computation.instructions
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
    buffer: Buffer, dataflow: Dataflow, nearest: Callable[[Iterable[Instruction]], Instruction | None]
) -> LiveValue:
    """Return the value of a buffer, with the line of the instruction that computes it."""
    stacking = [writer for writer in buffer.updates if _is_at_loop_index(writer, dataflow)]
    # A buffer that a loop carries has its first value from outside, and the others from the body.
    deepest = max(writer.scope.loops for writer in buffer.writers)
    writer = (
        stacking[-1] if stacking else next(w for w in reversed(buffer.writers) if w.scope.loops == deepest)
    )
    found = nearest(_stored(writer, dataflow) if stacking else _around(writer, dataflow))
    return LiveValue(
        shape=buffer.shape,
        frames=() if found is None else found.frames,
        op_name=None if found is None else found.op_name,
        is_kept=bool(stacking) and buffer.is_read_by_loop,
        is_for_backward="backward" in buffer.read_in and _is_forward(buffer, writer, dataflow),
    )


def _is_forward(buffer: Buffer, writer: Writer, dataflow: Dataflow) -> bool:
    """Return whether the forward pass computes a value, or uses a gathered argument.

    What the backward pass slices out of stacked values, or copies, is not kept for it: those values are.
    """
    if pass_of(writer.instruction.op_name) == "backward":
        return False
    passes = (pass_of(one.op_name) for one in _computing(_written(writer), dataflow))
    own = next(filter(None, passes), None)
    return own == "forward" or (own is None and "forward" in buffer.read_in)


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
        if len(update.operands) > 1:
            value = 2 if update.opcode == "scatter" and len(update.operands) > 2 else 1
            yield from _computing(Value(within, update.operands[value]), dataflow)
        yield update
    yield writer.instruction


def _update(writer: Writer, dataflow: Dataflow) -> tuple[str, Instruction | None]:
    """Return the update that an instruction is, or that its fusion ends with, and its computation."""
    computation, part = writer.scope.computation, writer.instruction
    if part.opcode in ("fusion", "fusion-start"):
        inside = dataflow.module.computations.get(called(part, "calls") or "")
        parts = dict(zip(result_places(part), root_parts(inside) if inside else (), strict=False))
        found = parts.get(writer.leaf)
        if inside is None or found is None:
            return "", None
        computation, part = inside, found
    return computation.name, updates_in_place(computation, part)


def _around(writer: Writer, dataflow: Dataflow) -> Iterator[Instruction]:
    """Yield the instruction that writes a value, and then others whose line may stand for it."""
    within, one = writer.scope.computation.name, writer.instruction
    if len(one.groups) > 1 and one.opcode.removesuffix("-start") in COLLECTIVES:
        # A combined collective has the line of one of its arrays; each has its own where it is taken out.
        taken = dataflow.consumers(_written(writer), is_end=lambda user: user.opcode == "get-tuple-element")
        yield from itertools.islice(taken, 1)
    yield one
    before = _computing(_written(writer), dataflow)
    after = dataflow.consumers(Value(within, one.name), is_end=lambda user: not _is_move(user))
    yield from itertools.chain(before, after) if _is_move(one) else itertools.chain(after, before)


def _written(writer: Writer) -> Value:
    """Return the value that an instruction writes."""
    one = writer.instruction
    element = one.groups[writer.leaf] if one.groups else None
    return Value(writer.scope.computation.name, one.name, element)


def _computing(value: Value, dataflow: Dataflow) -> Iterator[Instruction]:
    """Yield the instructions that compute a value, the nearest first.

    Those that only move or contain a value, such as copies and fusions, come last.
    """
    moves = []
    for _, one in dataflow.walk(value):
        if _is_move(one):
            moves.append(one)
        else:
            yield one
    yield from moves


def _is_move(one: Instruction) -> bool:
    return one.opcode in _MOVES or one.opcode.endswith(("-start", "-done"))
