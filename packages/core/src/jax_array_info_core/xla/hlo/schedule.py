"""The schedule of a program, and the places in it at which the backward pass begins."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ...base.grouping import by_key
from .buffers import (
    Buffer,
    Buffers,
    Scope,
    Writer,
    elementwise_parameters,
    fused_updates,
    is_elementwise,
    result_places,
    shared_leaves,
)
from .dataflow import Dataflow, Value
from .module import Computation, Instruction, Module, Passing, called, calls_of, operations
from .source import REMATTED, pass_of

_COPIES = operations(Passing.COPY)
_NO_WRITES = operations(Passing.VIEW) | {"tuple", "get-tuple-element"}


class Schedule(NamedTuple):
    """The buffers of a program over its schedule."""

    buffers: list[Buffer]
    """Buffers, with the times at which they are live."""

    operations: list[Instruction]
    """The operation at each time, from 1. The end of a computation is a time of its own."""

    computations: list[str]
    """The computation of each."""


def schedule_of(module: Module) -> Schedule:
    """Return the buffers of a program, with the times of the schedule at which they are live.

    A loop's body is at the loop's place in the schedule, once; so are branches, one after the other. Values
    inside of a fusion have no buffer.
    """
    walk = _Walk(module)
    in_place = {alias.output for alias in module.aliases}
    for output, value in enumerate(walk.run(Scope(module.computations[module.entry]), ())):
        buffer = walk.buffers.of(value)
        buffer.is_output = buffer.is_temporary and output not in in_place
        buffer.is_temporary = False
    return Schedule(walk.buffers.finish(), walk.operations, walk.computations)


class _Walk:
    """State of the walk. The values of an instruction are those of its arrays, nested tuples flattened."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.buffers = Buffers()
        self.operations: list[Instruction] = []
        self.computations: list[str] = []
        self.updated: list[tuple[int, Writer]] = []
        self.copied: list[tuple[int, int]] = []
        self.filled: set[int] = set()

    @property
    def now(self) -> int:
        """The time: number of operations so far."""
        return len(self.operations)

    def run(self, scope: Scope, arguments: Sequence[Sequence[int]]) -> list[int]:
        """Run a computation with the values of its parameters, and return those of its result."""
        values: dict[str, Sequence[int]] = {}
        for instruction in scope.computation.instructions:
            self.operations.append(instruction)
            self.computations.append(scope.computation.name)
            operands = [values[name] for name in instruction.operands]
            if instruction.opcode not in _NO_WRITES:
                for operand in operands:
                    for value in operand:
                        self.buffers.use(value, self.now)
            if instruction.opcode == "parameter" and arguments:
                values[instruction.name] = arguments[instruction.parameter_number]
            elif instruction.opcode in ("parameter", "constant"):
                values[instruction.name] = self._new(instruction, is_temporary=False)
            else:
                values[instruction.name] = self._result(scope, instruction, operands)
        self.operations.append(scope.computation.instructions[-1])
        self.computations.append(scope.computation.name)
        result = values[scope.computation.root.name]
        for value in result:
            self.buffers.use(value, self.now)
        return list(result)

    def _new(self, instruction: Instruction, *, is_temporary: bool = True) -> list[int]:
        """Return new values for the arrays of a result."""
        return [self.buffers.new(shape, self.now, is_temporary=is_temporary) for shape in instruction.shapes]

    def _plain(self, scope: Scope, instruction: Instruction, operands: Sequence[Sequence[int]]) -> list[int]:
        """Return the values of an instruction that runs no other computation in memory."""
        shared = shared_leaves(
            instruction, [scope.computation.by_name[name] for name in instruction.operands]
        )
        if instruction.opcode in ("fusion", "fusion-start") and (
            updates := self._fused(instruction).once(fused_updates)
        ):
            places = result_places(instruction)
            for number, operand_leaf in updates.items():
                if shared[places[number]] is None:
                    shared[places[number]] = operand_leaf
        leaves = []
        for place, (shape, leaf) in enumerate(zip(instruction.shapes, shared, strict=True)):
            if leaf is not None:
                value = operands[leaf[0]][leaf[1]]
                is_view = instruction.opcode in _NO_WRITES or instruction.opcode.endswith("-done")
                if not is_view and place in result_places(instruction):
                    writer = Writer(scope, instruction, place)
                    self.buffers.of(value).writers.append(writer)
                    self.updated.append((value, writer))
            else:
                value = self.buffers.new(shape, self.now)
                self.buffers.of(value).writers.append(Writer(scope, instruction, place))
                self._hand_on(instruction, operands, value, shape.nbytes)
            leaves.append(value)
        return leaves

    def _hand_on(
        self, instruction: Instruction, operands: Sequence[Sequence[int]], result: int, nbytes: int
    ) -> None:
        """Note the operands that a result may be written over."""
        is_fusion = instruction.opcode == "fusion"
        if is_fusion or is_elementwise(instruction):
            for k, operand in enumerate(operands):
                is_same_size = len(operand) == 1 and self.buffers.of(operand[0]).shape.nbytes == nbytes
                if is_same_size and (
                    not is_fusion or k in self._fused(instruction).once(elementwise_parameters)
                ):
                    self.buffers.hand_on(self.now, operand[0], result)
        if instruction.opcode in _COPIES:
            self.copied.append((operands[0][0], result))

    def _result(
        self, scope: Scope, instruction: Instruction, operands: Sequence[Sequence[int]]
    ) -> Sequence[int]:
        """Return the values of an instruction that is neither a parameter nor a constant."""
        if instruction.opcode == "while":
            return self._loop(scope, instruction, operands[0])
        if instruction.opcode == "conditional":
            return self._branches(scope, instruction, operands)
        if instruction.opcode == "call":
            return self._inside(scope, instruction, called(instruction, "callee"), operands)
        if instruction.opcode == "async-start":
            inside = self._inside(scope, instruction, called(instruction, "callee"), operands)
            given = [value for operand in operands for value in operand]
            scratch = instruction.shapes[len(given) + len(inside) :]
            return [*given, *inside, *(self.buffers.new(shape, self.now) for shape in scratch)]
        return self._plain(scope, instruction, operands)

    def _branches(
        self, scope: Scope, instruction: Instruction, operands: Sequence[Sequence[int]]
    ) -> Sequence[int]:
        """Run all branches. Their results have the same buffers."""
        results = [
            self._inside(scope, instruction, call.name, [operand])
            for call, operand in zip(calls_of(instruction), operands[1:], strict=True)
        ]
        merged = self._new(instruction)
        for result in results:
            for value, inner in zip(merged, result, strict=True):
                self.buffers.unite(value, inner)
        return merged

    def _loop(self, scope: Scope, instruction: Instruction, initial: Sequence[int]) -> Sequence[int]:
        """Run a loop once. What it carries has the same buffer before, inside and after it."""
        buffers, first_update, first_copy = self.buffers, len(self.updated), len(self.copied)
        carried = self._new(instruction)
        for before, value in zip(initial, carried, strict=True):
            buffers.unite(before, value)
        self._inside(scope, instruction, called(instruction, "condition"), [carried])
        result = self._inside(scope, instruction, called(instruction, "body"), [carried])
        inside = self.updated[first_update:]
        changed = {buffers.root(value) for value, _ in inside}
        filled = self._filled()
        after = self._new(instruction)
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
        roots = {self.buffers.root(value) for value in self.filled}
        for operand, copy in self.copied if roots else ():
            if self.buffers.root(operand) in roots:
                roots.add(self.buffers.root(copy))
        return roots

    def _inside(
        self, scope: Scope, instruction: Instruction, name: str, arguments: Sequence[Sequence[int]]
    ) -> list[int]:
        """Run a computation that an instruction calls."""
        loops = scope.loops + (instruction.opcode == "while")
        return self.run(Scope(self.module.computations[name], scope, loops), arguments)

    def _fused(self, instruction: Instruction) -> Computation:
        """Return the computation of a fusion."""
        return self.module.computations[called(instruction, "callee")]


_PRODUCTS = frozenset(
    {
        *("cholesky", "convolution", "custom-call", "dot", "fft", "gather", "reduce-window", "scatter"),
        *("sort", "triangular-solve"),
    }
)
"""The main operations of a fusion; without one, its reductions."""
_SEVERAL = frozenset({"call", "conditional", "while"})
_COUNTED = _SEVERAL | _PRODUCTS | {"fusion"}
"""The operations that are counted on both sides of a turn."""
_FORMS = operations(Passing.MOVE) | {"bitcast-convert"}
_UNNAMED_FORMS = _FORMS | {"convert", "reduce-precision"}
_SPREADING = frozenset({"broadcast", "constant", "copy", "fusion", "iota"})
_FILLED = ("broadcast", "constant", "iota", "parameter")
"""Operations whose results are not values of the forward pass: arguments and constants."""
_Pass = str | None
"""``forward``, ``backward`` or, of a loop with operations of each, ``both``; None if its name has none."""


def live_at_turn(schedule: Schedule, dataflow: Dataflow) -> list[Buffer] | None:
    """Return the temporary values that are live where the backward pass begins.

    The turn of a computation is where the fewest operations are on the wrong side: XLA moves some of the
    forward pass behind it. A value that the backward pass computes is none of them, nor is a copy of an
    argument. Of the turns of several computations, that with the most bytes.

    Returns:
        The values, also those outside of the main memory; None if there is no turn.
    """
    turns = _turns(schedule, dataflow.module)
    live: dict[str, list[Buffer]] = {name: [] for name in turns}
    for buffer in schedule.buffers:
        if not (buffer.is_temporary and buffer.writers and buffer.shape.nbytes):
            continue
        scope = buffer.writers[-1].scope
        while scope.computation.name not in turns and scope.outer is not None:
            scope = scope.outer
        turn = turns.get(scope.computation.name)
        is_live = turn is not None and any(start < turn <= end for start, end in buffer.spans)
        if is_live and _is_held(buffer, dataflow):
            live[scope.computation.name].append(buffer)
    return max(live.values(), key=lambda held: sum(buffer.shape.nbytes for buffer in held), default=None)


def _is_held(buffer: Buffer, dataflow: Dataflow) -> bool:
    """Return whether the value of a buffer is computed, and not by the backward pass."""
    maker = _maker(buffer.writers[-1].value, dataflow)
    if maker.opcode in _FILLED or _pass_of(maker) == "backward":
        return False
    return maker.opcode != "custom-call" or bool(maker.op_name)  # memory of an asynchronous operation


def _maker(value: Value, dataflow: Dataflow) -> Instruction:
    """Return the instruction that computes a value, which copies, fusions and loops may pass on."""
    while True:
        instruction = dataflow.instruction(value)
        source = dataflow.same(value, _FORMS if instruction.op_name else _UNNAMED_FORMS)
        if source is None:
            return instruction
        value = source


def _pass_of(instruction: Instruction) -> _Pass:
    """Return the pass of an instruction by its name; None for what ``jax.checkpoint`` computes again.

    XLA may merge that with what the forward pass has computed, such as on CPU up to JAX 0.10.
    """
    return None if REMATTED in (instruction.op_name or "") else pass_of(instruction.op_name)


def _turns(schedule: Schedule, module: Module) -> dict[str, int]:
    """Return the time at which the backward pass begins in each computation that has both passes."""
    main_pass = _main_passes(module)
    marks: dict[str, list[tuple[int, _Pass]]] = {}
    # Computed from constants only, such as the zeros that a loop begins with: XLA puts it anywhere.
    constant: set[tuple[str, str]] = set()
    for time, (instruction, name) in enumerate(
        zip(schedule.operations, schedule.computations, strict=True), 1
    ):
        if instruction.opcode in _SPREADING and all(
            (name, operand) in constant for operand in instruction.operands
        ):
            constant.add((name, instruction.name))
        is_counted = instruction.opcode in _COUNTED and (name, instruction.name) not in constant
        side = main_pass(instruction) if is_counted else None
        marks.setdefault(name, []).append((time, side))
    both = {"forward", "backward"}
    return {name: _turn(sides) for name, sides in marks.items() if both <= {side for _, side in sides}}


def _counted(computation: Computation) -> Mapping[str, Sequence[int]]:
    """Return the places of the instructions that may tell a pass, by their operations."""
    opcodes = _COUNTED | {"reduce"}
    return by_key(
        (instruction.opcode, instruction.place)
        for instruction in computation.instructions
        if instruction.opcode in opcodes
    )


def _main_passes(module: Module) -> Callable[[Instruction], _Pass]:
    """Return a function that returns the pass of an instruction, by its main operations."""

    def inside(instruction: Instruction, opcodes: Collection[str]) -> set[_Pass]:
        computations = (module.computations[call.name] for call in calls_of(instruction))
        parts = (
            computation.instructions[place]
            for computation in computations
            for opcode, places in computation.once(_counted).items()
            for place in (places if opcode in opcodes else ())
        )
        return {main_pass(part) for part in parts} - {None}

    @functools.cache
    def main_pass(instruction: Instruction) -> _Pass:
        if instruction.opcode in _SEVERAL:
            passes = inside(instruction, _COUNTED)
            return "both" if len(passes) > 1 else next(iter(passes), None)
        for opcodes in (_PRODUCTS, {"fusion"}, {"reduce"}):
            if passes := inside(instruction, opcodes):
                return "backward" if passes == {"backward"} else "forward"
        return _pass_of(instruction)

    return main_pass


def _turn(marks: Sequence[tuple[int, _Pass]]) -> int:
    """Return the time of the first operation behind the turn, from the time and the pass of each.

    It is behind some operation of a pass, the first of several such places.
    """
    wrong = sum(side == "forward" for _, side in marks)
    turns = []
    for (_, side), (following, _) in itertools.pairwise(marks):
        wrong += (side == "backward") - (side == "forward")
        if side in ("forward", "backward"):
            turns.append((wrong, following))
    return min(turns)[1]
