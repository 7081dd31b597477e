"""A compiled program as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Frame(NamedTuple):
    """A line of source code in the program's tables."""

    file: str
    line: int
    function: str
    """Qualified name; empty where XLA keeps the file and the line only (JAX up to 0.6)."""


class ArrayShape(NamedTuple):
    """Type of an array on one device."""

    dtype: str
    """Name in JAX, such as ``float32``; the name in XLA for types that JAX lacks, such as ``token``."""

    dims: tuple[int, ...]
    """Shape."""

    nbytes: int
    """Bytes, packed below 8 bits; 0 for tokens and other types without data."""

    memory_space: int = 0
    """XLA's memory space: 0 for the default, such as HBM; others, such as 1 for VMEM on TPU."""


class Instruction(NamedTuple):
    """One instruction."""

    name: str
    """Name without the ``%``."""

    opcode: str
    """Name of the operation, such as ``all-gather-start``."""

    shapes: tuple[ArrayShape, ...]
    """Types of the result; those of a tuple in order, nested ones flattened."""

    groups: tuple[int, ...]
    """Index of the outermost tuple element of each of ``shapes``; empty if the result is not a tuple."""

    operands: tuple[str, ...]
    """Names of the operands; for ``parameter`` and ``constant`` empty."""

    attributes: Mapping[str, str]
    """Attributes after the operands by name, as text: ``replica_groups``, ``calls``, ``body``, ``condition``,
    ``to_apply``, ``branch_computations``, ``dimensions``, ``channel_id``, ``lhs_contracting_dims``,
    ``known_trip_count`` (the number, from ``backend_config``), … without ``metadata``. Names of computations
    have their ``%``."""

    op_name: str | None
    """``op_name`` of the metadata: the path of an argument, or the stack of transformations."""

    frames: tuple[Frame, ...]
    """Source lines, innermost first; empty if there are none."""

    literal: str
    """Text in the parentheses of a ``parameter`` (its number) or a ``constant`` (its value); else empty."""

    is_root: bool
    """Whether it is the result of its computation."""


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation: the entry, a loop's body or condition, a branch, a fusion or a reducer."""

    name: str
    """Name without the ``%``."""

    instructions: tuple[Instruction, ...]
    """Instructions, in the order of the schedule."""

    by_name: Mapping[str, Instruction]
    """Instructions by name."""

    @property
    def root(self) -> Instruction | None:
        """The instruction that is the result; None if it could not be read."""
        return next((one for one in reversed(self.instructions) if one.is_root), None)


class Alias(NamedTuple):
    """An output that reuses the memory of an argument, from ``input_output_alias`` of the header."""

    output: int
    """Index of the flat output."""

    parameter: int
    """Number of the parameter of the entry computation."""


def _no_frames(_: int) -> tuple[Frame, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled program."""

    name: str
    """Name, such as ``jit_step``."""

    entry: str
    """Name of the entry computation; empty if there is none."""

    computations: Mapping[str, Computation]
    """Computations by name, in the order of the text: called ones before their callers."""

    aliases: tuple[Alias, ...] = ()
    """Outputs that reuse the memory of an argument."""

    buffer_donors: tuple[int, ...] = ()
    """Numbers of the parameters that are donated without a fixed output."""

    device_count: int = 1
    """``num_partitions`` times ``replica_count``."""

    unread: tuple[str, ...] = field(default=())
    """Lines that could not be read."""

    stack: Callable[[int], tuple[Frame, ...]] = field(default=_no_frames, compare=False, repr=False)
    """Function from a ``stack_frame_id``, as in XLA's warnings, to the source lines, innermost first."""

    def parameters(self) -> Iterator[Instruction]:
        """Yield the parameters of the entry computation, in order of their numbers."""
        if self.entry in self.computations:
            found = [one for one in self.computations[self.entry].instructions if one.opcode == "parameter"]
            yield from sorted(found, key=lambda one: int(one.literal))


Role = Literal["body", "condition", "branch", "callee", "unknown"]
"""Part of a computation in the instruction that calls it:

- ``body`` and ``condition`` of a loop;
- ``branch`` of a conditional;
- ``callee``: it runs once in each execution of the instruction, such as the computation of a fusion;
- ``unknown``: a computation of a custom call.
"""

_NAME = re.compile(r"%([^\s,{}]+)")
_ROLES: dict[str, Role] = {
    "body": "body",
    "condition": "condition",
    "branch_computations": "branch",
    "true_computation": "branch",
    "false_computation": "branch",
    "calls": "callee",
    "called_computations": "callee",
}
_ATTRIBUTES = frozenset(("to_apply", *_ROLES))


class Call(NamedTuple):
    """A computation that an instruction executes."""

    name: str
    """Name of the computation."""

    role: Role
    """Its part in the instruction."""


def calls_of(instruction: Instruction) -> Sequence[Call]:
    """Return the computations that an instruction executes.

    Computations of single elements are left out, such as the ``to_apply`` of a reduce or an all-reduce.
    """
    # Most instructions execute none.
    if not instruction.attributes or _ATTRIBUTES.isdisjoint(instruction.attributes):
        return ()
    opcode = instruction.opcode
    if opcode.endswith(("-update", "-done")):
        return ()  # They repeat the computation of their start.
    found: list[Call] = []
    for attribute, text in instruction.attributes.items():
        role = _ROLES.get(attribute)
        if attribute == "to_apply" and opcode == "call":
            role = "callee"
        if role is not None:
            for name in names_in(text):
                found.append(Call(name, "unknown" if opcode == "custom-call" else role))
    return found


def called(instruction: Instruction, attribute: str) -> str | None:
    """Return the name of the computation in an attribute; None if there is none."""
    return next(iter(names_in(instruction.attributes.get(attribute, ""))), None)


def names_in(text: str) -> list[str]:
    """Return the names of the computations in the text of an attribute."""
    return _NAME.findall(text)
