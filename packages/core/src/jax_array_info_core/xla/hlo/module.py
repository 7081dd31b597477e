"""A compiled program, read from XLA's record of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Flag, auto
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .messages import PRIMITIVES, ArrayShape, Type, Types, bind_operands, hlo_classes
from .source import Frame, StackFrames

Role = Literal["body", "condition", "branch", "callee", "element", "unknown"]
"""Part of a computation in the instruction that calls it:

- ``body`` and ``condition`` of a loop;
- ``branch`` of a conditional;
- ``callee``: it runs once in each execution of the instruction, such as the computation of a fusion;
- ``element``: a computation of single elements, such as that of a reduce or an all-reduce;
- ``unknown``: a computation of a custom call.
"""

_ROLES: Mapping[str, Sequence[Role]] = {
    "while": ("body", "condition"),
    "conditional": ("branch",),
    **dict.fromkeys(("call", "fusion", "async-start", "async-update", "async-done"), ("callee",)),
    "custom-call": ("unknown",),
}
"""Roles of the computations that an operation calls, the last also of those after it."""


class Call(NamedTuple):
    """A computation that an instruction executes."""

    name: str
    """Name of the computation."""

    role: Role
    """Its part in the instruction."""


_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d{1,18})"')


class Instruction:
    """One instruction. ``op`` is XLA's message, with the attributes that few readers need.

    The operation that an asynchronous one starts, in a computation of its own, is shown as that of the start,
    such as ``slice-start``. Then ``op`` is that of what is started.
    """

    __slots__ = ("_calls", "_computation", "_operands", "_outer", "_type", "name", "op", "opcode", "place")

    def __init__(self, computation: Computation, message: Any, started: Any) -> None:
        """Describe a message.

        Args:
            computation: The computation.
            message: The ``HloInstructionProto``.
            started: The message of the operation that an asynchronous one starts; None for others.
        """
        self.name: str = message.name
        """Name."""
        self.opcode: str = message.opcode
        """Name of the operation, such as ``all-gather-start``."""
        if started is not None:
            self.opcode = started.opcode + self.opcode.removeprefix("async")
        self.op: Any = message if started is None else started
        self.place = -1
        """Its place in the order of its computation."""
        self._outer, self._computation = message, computation
        # Decoded where they are asked for: most instructions are in fusions, and few of these are looked at.
        self._type: Type | None = None
        self._operands: tuple[str, ...] | None = None
        self._calls: tuple[Call, ...] | None = None

    def __repr__(self) -> str:
        return f"%{self.name} = {self.opcode}({', '.join(f'%{name}' for name in self.operands)})"

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands."""
        if self._operands is None:
            by_id = self._computation.by_id
            self._operands = tuple([by_id[number].name for number in self._outer.operand_ids])
        return self._operands

    @property
    def calls(self) -> tuple[Call, ...]:
        """The computations that it names, in XLA's order; an update or a done has none."""
        if self._calls is None:
            is_end = self.opcode.endswith(("-update", "-done"))
            numbers = () if is_end else self.op.called_computation_ids
            self._calls = self._calls_by_id(numbers) if numbers else ()
        return self._calls

    def _calls_by_id(self, numbers: Sequence[int]) -> tuple[Call, ...]:
        names, roles = self._computation.module.names, _ROLES.get(self.op.opcode, ("element",))
        last = len(roles) - 1
        return tuple(Call(names[number], roles[min(place, last)]) for place, number in enumerate(numbers))

    @property
    def _of_result(self) -> Type:
        if self._type is None:
            self._type = self._computation.module.types.of(self._outer.shape)
        return self._type

    @property
    def shapes(self) -> tuple[ArrayShape, ...]:
        """Types of the result; those of a tuple in order, nested ones flattened."""
        return (self._type or self._of_result).shapes

    @property
    def groups(self) -> tuple[int, ...]:
        """Index of the outermost tuple element of each of ``shapes``; empty if the result is not a tuple."""
        return self._of_result.groups

    @property
    def op_name(self) -> str | None:
        """The path of an argument, or the stack of transformations; None if it is not known."""
        return self._outer.metadata.op_name or None

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Source lines, innermost first; empty if there are none."""
        metadata = self._outer.metadata
        frames = self._computation.module.stacks.of(metadata.stack_frame_id)
        line = metadata.source_file, metadata.source_line
        # JAX 0.7 has both, and the numbers of another table in partitioned programs.
        return (Frame(*line, ""),) if line[0] and (not frames or frames[0][:2] != line) else frames

    @property
    def column(self) -> int:
        """Column of the innermost source line at which it begins, from 0; 0 also if it is unknown."""
        frames = self.frames
        return (
            self._computation.module.stacks.column(self._outer.metadata.stack_frame_id)
            if frames and frames[0].function
            else 0
        )

    @property
    def parameter_number(self) -> int:
        """Number of a parameter."""
        return int(self.op.parameter_number)

    @property
    def element(self) -> int | None:
        """Index of the element that a get-tuple-element takes; None for others."""
        return int(self.op.tuple_index) if self.opcode == "get-tuple-element" else None

    @property
    def integers(self) -> NDArray[np.int64] | None:
        """The integers of a constant, flat; None for other types."""
        literal = self.op.literal
        name = PRIMITIVES[literal.shape.element_type]
        values = getattr(literal, f"{name}s", None) if name[:1] in ("s", "u") else None
        if values is None:
            return None
        dtype = np.dtype(f"<{'i' if name[0] == 's' else 'u'}{int(name[1:]) // 8}")
        integers = np.frombuffer(values, dtype) if isinstance(values, bytes) else np.array(values, dtype)
        return integers.astype(np.int64)

    @property
    def integer(self) -> int | None:
        """The value of a constant that is one integer; None for others."""
        integers = self.integers
        return int(integers[0]) if integers is not None and len(integers) == 1 else None

    @property
    def custom_call_target(self) -> str:
        """Name of the function of a custom call; empty for others."""
        return str(self.op.custom_call_target)

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """Attributes that JAX or an earlier pass of XLA has added, by name."""
        return {entry.key: entry.value for entry in self._outer.frontend_attributes.map}

    @property
    def backend_config(self) -> str:
        """What only the backend understands, mostly as JSON; empty if there is nothing."""
        payload = self._outer.backend_config_payload
        data, payloads = self._outer.backend_config or payload.value, self._computation.module.payloads
        if not data and 0 < payload.id <= len(payloads):
            data = payloads[payload.id - 1]
        return bytes(data).decode("utf-8", "replace")

    @property
    def trip_count(self) -> int | None:
        """Number of turns of a loop, as far as the backend notes it."""
        match = _TRIP_COUNT.search(self.backend_config)
        return int(match[1]) if match else None


def calls_of(instruction: Instruction) -> Sequence[Call]:
    """Return the computations that an instruction executes.

    Computations of single elements are left out, such as that of a reduce or an all-reduce.
    """
    calls = instruction.calls  # most instructions execute none
    return [call for call in calls if call.role != "element"] if calls else calls


def called(instruction: Instruction, role: Role) -> str:
    """Return the name of the only computation that has a role in an instruction."""
    return next(call.name for call in instruction.calls if call.role == role)


_Of = TypeVar("_Of")
_Made = TypeVar("_Made")


def _once(made: dict[Any, Any], make: Callable[[_Of], _Made], subject: _Of) -> _Made:
    if make not in made:
        made[make] = make(subject)
    result: _Made = made[make]
    return result


def _parameters(computation: Computation) -> list[int]:
    """Return the places of the parameters, in order of their numbers."""
    parameters = [
        instruction for instruction in computation.instructions if instruction.opcode == "parameter"
    ]
    return [
        parameter.place for parameter in sorted(parameters, key=lambda parameter: parameter.parameter_number)
    ]


def calling(computation: Computation) -> tuple[int, ...]:
    """Return the places of the instructions that name computations."""
    return tuple(place for place, instruction in enumerate(computation.instructions) if instruction.calls)


class Computation:
    """A computation: the entry, a loop's body or condition, a branch, a fusion or a reducer."""

    def __init__(self, module: Module, message: Any, order: Sequence[int] | None) -> None:
        """Describe a message.

        Args:
            module: The program.
            message: The ``HloComputationProto``.
            order: Ids of the instructions in the order of the schedule; None if it is not scheduled.
        """
        self.name: str = message.name
        """Name."""
        self.message = message
        """XLA's message."""
        self.module = module
        """The program."""
        self._order = order

    @cached_property
    def by_id(self) -> Mapping[int, Instruction]:
        """Instructions by the ids of their messages, operands before their users."""
        starts: dict[int, Any] = {}
        made: dict[int, Instruction] = {}
        for message in self.message.instructions:
            number, started = message.id, None
            if message.opcode.startswith("async-"):
                # Newer versions name the computation in the start only.
                started = self.module.started.get(number) or starts.get((*message.operand_ids, 0)[0])
                starts[number] = started
            made[number] = Instruction(self, message, started)
        return made

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Instructions, in the order of the schedule."""
        by_id = self.by_id
        ordered = by_id.values() if self._order is None else [by_id[number] for number in self._order]
        for place, instruction in enumerate(ordered):
            instruction.place = place
        return tuple(ordered)

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """Instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @property
    def root(self) -> Instruction:
        """The instruction that is the result."""
        return self.by_id[self.message.root_id]

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameters, in order of their numbers."""
        return tuple(self.where(_parameters))

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {} if self.is_scheduled else self.module.made.setdefault(_content(self.message), {})

    def once(self, make: Callable[[Computation], _Made]) -> _Made:
        """Return what a function makes of the computation.

        Of fused computations that differ in names, ids and metadata only, it is called for one. What it makes
        has none of these: it refers to an instruction by its place.
        """
        return _once(self._made, make, self)

    def where(self, find: Callable[[Computation], Iterable[int]]) -> list[Instruction]:
        """Return the instructions at the places that a function finds, once as in ``once``."""
        return [self.instructions[place] for place in self.once(find)]

    @property
    def is_scheduled(self) -> bool:
        """Whether its instructions run one after the other, each with its result in memory."""
        return self._order is not None


def _content(message: Any) -> tuple[bytes, tuple[int, ...]]:
    """Return the known fields of an ``HloComputationProto`` without names, ids and metadata.

    The operands, which are ids, are the places of their instructions, and -1 behind those of each.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    instructions = [*copy.instructions]  # each access to one makes an object
    places = {instruction.id: place for place, instruction in enumerate(instructions)} | {0: -1}
    operands = [places[number] for instruction in instructions for number in (*instruction.operand_ids, 0)]
    for instruction in instructions:
        for name in ("name", "metadata", "id", "operand_ids"):
            instruction.ClearField(name)
    copy.ClearField("name")
    copy.ClearField("id")
    copy.root_id = places.get(copy.root_id, 0)  # a text may leave out a computation
    return bytes(copy.SerializeToString(deterministic=True)), tuple(operands)


class Alias(NamedTuple):
    """An output that reuses the memory of an argument, as its donation declares."""

    output: int
    """Index of the flat output."""

    parameter: int
    """Number of the parameter of the entry computation."""


class Module:
    """A compiled program."""

    def __init__(self, message: Any, stacks: StackFrames) -> None:
        """Describe a message.

        Args:
            message: The ``HloModuleProto``.
            stacks: Source lines of its instructions.
        """
        self.name: str = message.name
        """Name, such as ``jit_step``."""
        self.entry: str = message.entry_computation_name
        """Name of the entry computation."""
        bind_operands(message)
        bodies = {computation.id: computation for computation in message.computations}
        self.names: Mapping[int, str] = {number: computation.name for number, computation in bodies.items()}
        """Names of the computations by id."""
        self.payloads: Sequence[bytes] = message.payloads
        """Values that several instructions have in common."""
        self.types, self.stacks = Types(), stacks
        devices = message.device_assignment
        self.replica_count: int = max(devices.replica_count, 1)
        """Number of devices that each run the whole program, as in ``jax.pmap``."""
        self.device_count: int = self.replica_count * max(devices.computation_count, 1)
        """Number of devices that run the program."""
        self.aliases = tuple(
            # On TPU, JAX passes thousands of arguments as one tuple: then it is the place in this tuple.
            Alias(
                (*alias.output_shape_index, 0)[0], (*alias.parameter_shape_index, alias.parameter_number)[0]
            )
            for alias in message.input_output_alias.entries
        )
        """Outputs that reuse the memory of an argument."""
        order = {sequence.key: sequence.value.instruction_ids for sequence in message.schedule.sequences}
        starts = [
            (instruction.id, bodies[instruction.called_computation_ids[0]])
            for number, computation in bodies.items()
            if number in order or not order
            for instruction in computation.instructions
            if instruction.opcode == "async-start"
        ]
        self.started: Mapping[int, Any] = {
            number: operation for number, body in starts if (operation := _only_operation(body)) is not None
        }
        """Messages of the operations that asynchronous ones start, by the id of the start."""
        hidden = {body.id for number, body in starts if number in self.started}
        self.computations: Mapping[str, Computation] = {
            computation.name: Computation(self, computation, order.get(number))
            for number, computation in bodies.items()
            if number not in hidden
        }
        """Computations by name, called ones before their callers."""
        self.made: dict[Any, Any] = {}
        """What ``once`` has made of the program, and of each content of a fused computation."""

    def once(self, make: Callable[[Module], _Made]) -> _Made:
        """Return what a function makes of the program. It is called the first time only."""
        return _once(self.made, make, self)

    def parameters(self) -> Sequence[Instruction]:
        """Return the parameters of the program, in order of their numbers."""
        return self.computations[self.entry].parameters

    @cached_property
    def unknown_types(self) -> tuple[Instruction, ...]:
        """Instructions whose result has a type whose size is not known."""
        return tuple(
            instruction
            for computation in self.computations.values()
            if computation.is_scheduled
            for instruction in computation.instructions
            if any(shape.is_unknown for shape in instruction.shapes)
        )


def _only_operation(computation: Any) -> Any:
    """Return the message of the only operation of a computation; None if it has several."""
    candidates = [
        instruction
        for instruction in computation.instructions
        if instruction.opcode != "parameter" or instruction.id == computation.root_id
    ]
    return candidates[0] if len(candidates) == 1 else None


class Passing(Flag):
    """What an operation that passes values on does with those of its first operand."""

    SAME = auto()
    """The result has them at the same places, or is the same tuple."""

    NUMBER = auto()
    """If they are one integer, the result is the same number."""

    VIEW = auto()
    """The result is in their memory."""

    COPY = auto()
    """The result has all of them in memory of its own, converted or in another order."""

    MOVE = auto()
    """Nothing is computed: the result has them as they are, some or all, in some order."""


_SAME = Passing.SAME | Passing.NUMBER | Passing.MOVE
PASSING = {
    **dict.fromkeys(("add-dependency", "async-update", "bitcast", "domain"), _SAME | Passing.VIEW),
    **dict.fromkeys(("opt-barrier", "optimization-barrier"), _SAME | Passing.VIEW),
    **dict.fromkeys(("copy", "copy-start"), _SAME | Passing.COPY),
    "copy-done": _SAME,
    **dict.fromkeys(("reshape", "transpose"), Passing.NUMBER | Passing.MOVE | Passing.COPY),
    "convert": Passing.NUMBER | Passing.COPY,
    **dict.fromkeys(("dynamic-slice", "slice"), Passing.MOVE),
    **dict.fromkeys(
        ("bitcast-convert", "pad", "ragged-all-to-all", "reduce-precision", "reverse"), Passing(0)
    ),
}
"""The operations whose result has values of their first operand: all or some, in any order, converted."""


def operations(kind: Passing) -> frozenset[str]:
    """Return the operations that pass on values of their first operand in a way.

    >>> sorted(operations(Passing.COPY))
    ['convert', 'copy', 'copy-start', 'reshape', 'transpose']
    """
    return frozenset(opcode for opcode, passing in PASSING.items() if kind in passing)


def read_module(data: bytes, mlir: str | None = None) -> Module:
    """Return the program in a serialized ``HloModuleProto``, of any version of JAX since 0.4.38.

    Args:
        data: What ``HloModule.as_serialized_hlo_module_proto()`` returns.
        mlir: Text of the lowered program, by which the numbers of stack frames are corrected; empty if it is
            not known. None if they are right.

    Raises:
        google.protobuf.message.DecodeError: If the data is not such a message.
    """
    message = hlo_classes()["HloModuleProto"].FromString(data)
    stacks = StackFrames(message.stack_frame_index)
    if mlir is not None and message.device_assignment.computation_count > 1:
        used = {
            (instruction.metadata.op_name, instruction.metadata.stack_frame_id)
            for computation in message.computations
            for instruction in computation.instructions
            if instruction.metadata.op_name and instruction.metadata.stack_frame_id
        }
        stacks.renumber(mlir, used)
    return Module(message, stacks)
