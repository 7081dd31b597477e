"""Bodies of shard_maps in a lowered program, and the mesh axes over which their values vary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .collectives import COLLECTIVES
from .module import Computation, Instruction, Module
from .replica_groups import pair_axes, pairs_of, replica_groups
from .replication import GATHERING, Held, Replication, State

_ENTRY, _EXIT = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
_OF_GSPMD = "SPMDFullToShardShape"
_NAME = re.compile(r'"([^"]+)"')
_SHARDING = re.compile(r"<@[^,>]*, \[(.*?)\]")


class UnknownAxesError(ValueError):
    """The axes over which the values of a shard_map vary are not known."""


def copies(
    module: Module, record: bytes, mesh: Mapping[str, int] | None
) -> Mapping[tuple[str, str], set[int]]:
    """Return how often the devices together compute an instruction of a lowered program, where not once.

    In the body of a ``shard_map``, that is the number of devices along the manual axes over which the result
    varies. An instruction of a function with several call sites has the numbers of all.

    Args:
        module: The lowered program.
        record: What it is read from.
        mesh: Size of each mesh axis by name; None if it is not known.

    Raises:
        UnknownAxesError: If they are not known.
    """
    if _OF_GSPMD.encode() in record:
        raise UnknownAxesError("GSPMD keeps no axes of a shard_map")
    if _EXIT.encode() not in record:
        return {}
    if mesh is None:
        raise UnknownAxesError("the mesh of a shard_map is not known")
    return _Manual(module, mesh).copies()


class _Manual(Replication):
    """An interpretation of a lowered program by the manual axes over which values vary."""

    def __init__(self, module: Module, mesh: Mapping[str, int]) -> None:
        super().__init__(module, (), mesh, ())
        self._mesh = mesh
        self._manual = 0
        """Manual axes around the instruction."""
        self._spans: dict[tuple[str, str], int] = {}
        """Axes of each collective."""
        self._groups: list[NDArray[np.int64]] = []
        """Their groups, which ``Axes`` knows by their identity."""
        self._copies: dict[tuple[str, str], dict[tuple[str, ...], int]] = {}

    def copies(self) -> Mapping[tuple[str, str], set[int]]:
        """Return the numbers of the instructions, by computation and name."""
        entry = self._module.computations[self._module.entry]
        self._run(entry, [Held(0)] * len(entry.parameters), (), is_fused=False)
        return {key: {*by_path.values()} for key, by_path in self._copies.items()}

    def _state(
        self,
        computation: Computation,
        instruction: Instruction,
        operands: Sequence[State],
        path: tuple[str, ...],
    ) -> State:
        target = instruction.custom_call_target
        if target in (_ENTRY, _EXIT):
            return self._crossed(instruction, operands, is_entry=target == _ENTRY)
        if instruction.opcode in COLLECTIVES:
            state: State = self._exchanged(computation, instruction, operands)
        else:
            state = super()._state(computation, instruction, operands, path)
        count = self._axes.count(self._joined(state).varies & self._manual)
        self._copies.setdefault((computation.name, instruction.name), {})[path] = count
        return state

    def _crossed(self, instruction: Instruction, operands: Sequence[State], *, is_entry: bool) -> State:
        """Return the operands of a shard_map inside of it, or its results outside."""
        attributes = instruction.frontend_attributes
        names = _names(attributes.get("xla.sdy.manual_axes", ""))
        if not names <= self._mesh.keys():
            raise UnknownAxesError("the mesh of a shard_map is another one")
        manual = self._axes.of(names)
        shardings = _SHARDING.findall(_plain(attributes.get("xla.sdy.in_shardings", "")))
        self._manual = self._manual | manual if is_entry else self._manual & ~manual
        states: list[State] = []
        for place, operand in enumerate(operands):
            varies = self._joined(operand).varies & ~manual
            if is_entry:
                is_told = place < len(shardings)
                varies |= self._axes.of(_names(shardings[place])) & manual if is_told else manual
            states.append(Held(varies))
        return states if instruction.groups else states[0]

    def _exchanged(
        self, computation: Computation, instruction: Instruction, operands: Sequence[State]
    ) -> State:
        """Return the result of a collective."""
        key = computation.name, instruction.name
        if key not in self._spans:
            self._spans[key] = self._span(instruction)
        arrays = [self._joined(operand).varies for operand in operands]
        gathers = instruction.opcode in GATHERING
        states: list[State] = [
            Held(varies & ~self._spans[key] if gathers else varies | self._spans[key]) for varies in arrays
        ]
        return states if instruction.groups else states[0]

    def _span(self, instruction: Instruction) -> int:
        """Return the axes along which a collective exchanges."""
        count = self._axes.count(self._axes.all)
        try:
            if instruction.opcode == "collective-permute":
                return self._axes.of(pair_axes(pairs_of(instruction.op, count), self._mesh) or ())
            groups = replica_groups(instruction.op, count)
        except ValueError as error:
            raise UnknownAxesError(f"the groups of a collective are not known ({error})") from error
        self._groups.append(groups)
        is_gathering = instruction.opcode in GATHERING
        return self._axes.spanned(groups) if is_gathering else self._axes.exchanged(groups)


def _plain(text: str) -> str:
    """Return an attribute without the escapes of some versions."""
    return text.replace('\\"', '"')


def _names(text: str) -> set[str]:
    """Return the mesh axes in an attribute."""
    return set(_NAME.findall(_plain(text)))
