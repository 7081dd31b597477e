"""Arrays that collectives move between devices, and the bytes that a device sends."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataflow import Dataflow, Value
from .messages import ArrayShape
from .module import Computation, Instruction, Module
from .replica_groups import (
    DEVICE_LISTS,
    ProgramSlices,
    has_devices,
    is_between_slices,
    kind_between_slices,
    longest_chain,
    pairs_of,
    read_pairs,
    replica_groups,
    target_ids,
)

_GROUPED = frozenset(
    {
        *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "ragged-all-to-all"),
        "reduce-scatter",
    }
)
"""Collectives among groups of devices."""

_OF_REPLICAS = frozenset({"all-gather", "all-reduce", "reduce-scatter"})
"""Collectives whose groups list replicas of the program, unless they list device ids."""

_PAIRED = frozenset({"collective-permute", "send"})
"""Collectives between pairs of devices."""

COLLECTIVES = _GROUPED | _PAIRED
"""Names of the operations that move data between devices."""

_FIRST_OPERAND_ONLY = frozenset({"ragged-all-to-all", "send"})
"""Collectives whose further operands are offsets, sizes, tokens and the buffer of the result."""

_SEND_PAIRS = "_xla_send_recv_source_target_pairs"
_COMMUNICATES = re.compile(r'"has_communication": ?true')
_LONGEST = 300
"""Characters of an instruction that is not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """An array that a collective moves. A collective of several arrays has one movement for each."""

    kind: str
    """Operation, such as ``all-gather``; of TPU's all-reduce-scatter fusions, ``reduce-scatter``."""

    value: Value
    """The result."""

    instruction: Instruction
    """The collective. Inside a fusion, it has no line of its own on some platforms."""

    operand: Value
    """The operand."""

    before: ArrayShape
    """Type of the operand on a device."""

    shape: ArrayShape
    """Type of the result on a device; of a ragged-all-to-all, of the operand. An all-to-all of one array for
    each device has them stacked."""

    sent_nbytes: int
    """Bytes that the device which sends the most sends in one execution, a part of a byte as a whole one."""

    excess: int
    """Parts of a byte, one for each device of a group, by which ``sent_nbytes`` is more than what is sent."""

    depends_on_data: bool
    """Whether ``sent_nbytes`` is only a bound."""

    groups: NDArray[np.int64] | None
    """Devices that exchange data, as from ``replica_groups``; None for pairs, and if they are not known."""

    pairs: NDArray[np.int64] | None
    """Pairs (source, target), as from ``pairs_of``; None for groups, and if they are not known."""

    group_size: int
    """Number of devices that exchange data with each other."""

    is_async: bool
    """Whether it starts and ends in separate instructions."""


def movements(dataflow: Dataflow, slices: ProgramSlices | None = None) -> tuple[list[Movement], list[str]]:
    """Return the arrays that the collectives of a program move, and the instructions that are not understood.

    TPU's asynchronous fusions contain a collective several times, once in each fusion that continues it. It
    counts where it starts. A collective between slices is a send and a recv, and counts once, too.

    Args:
        dataflow: The connections between the values of the program.
        slices: Devices of a program for several slices; None for one slice, and if they are not known.
    """
    return dataflow.module.once(_of_one_slice) if slices is None else _movements(dataflow, slices)


def _of_one_slice(module: Module) -> tuple[list[Movement], list[str]]:
    return _movements(module.once(Dataflow), None)


def _movements(dataflow: Dataflow, slices: ProgramSlices | None) -> tuple[list[Movement], list[str]]:
    reader = _Reader(dataflow, slices)
    moved: list[Movement] = []
    unread: list[str] = []
    for computation in dataflow.module.computations.values():
        for instruction in computation.where(_moving):
            kind = instruction.opcode.removesuffix("-start")
            if kind not in COLLECTIVES:
                if _is_unknown_collective(instruction):
                    unread.append(instruction_text(instruction))
            elif is_between_slices(instruction):
                try:
                    moved.append(reader.read_between_slices(computation, instruction))
                except ValueError:
                    unread.append(instruction_text(instruction))
            elif not instruction.op.is_host_transfer and not reader.is_continued(computation, instruction):
                try:
                    moved += reader.read(kind, computation, instruction)
                except ValueError:
                    unread.append(instruction_text(instruction))
    return moved, unread


def sent_nbytes(kind: str, operand_nbytes: int, result_nbytes: int, group_size: int) -> int:
    """Return the bytes that the device which sends the most sends, with an algorithm that sends the fewest.

    Of a ragged-all-to-all, whose sizes are data, the most: those of a device that sends its whole operand to
    each of the others.

    Args:
        kind: Operation, such as ``all-gather``.
        operand_nbytes: Bytes of the operand on a device.
        result_nbytes: Bytes of the result on a device.
        group_size: Number of devices that exchange data with each other.

    >>> sent_nbytes("all-reduce", 1024, 1024, 4)
    1536
    """
    return sent_parts(kind, operand_nbytes, result_nbytes, group_size)[0]


def sent_parts(kind: str, operand_nbytes: int, result_nbytes: int, group_size: int) -> tuple[int, int]:
    """Return ``sent_nbytes``, and the parts of a byte, one for each device, by which this is rounded up.

    >>> sent_parts("all-reduce", 1, 1, 8)  # 1.75 bytes
    (2, 2)
    """
    if group_size < 2:
        return 0, 0
    if kind == "ragged-all-to-all":
        return operand_nbytes * (group_size - 1), 0
    # All of this but the part of one device.
    whole = {
        "all-gather": result_nbytes,
        "all-reduce": 2 * operand_nbytes,
        "all-to-all": operand_nbytes,
        "reduce-scatter": operand_nbytes,
    }
    if kind not in whole:
        return operand_nbytes, 0
    part, excess = divmod(whole[kind], group_size)
    return whole[kind] - part, excess


def _is_unknown_collective(instruction: Instruction) -> bool:
    """Return whether an instruction moves data in a way that is not known here.

    The configuration of a Pallas kernel tells whether it copies to other devices, but not the bytes.
    """
    if instruction.opcode == "custom-call" and _COMMUNICATES.search(instruction.backend_config):
        return True
    return (
        has_devices(instruction.op)
        and not instruction.opcode.endswith(("-done", "-update"))
        and instruction.opcode != "async-start"
    )


def may_send(instruction: Instruction) -> bool:
    """Return whether an instruction may send bytes: a collective, or a kernel that may have one."""
    kind = instruction.opcode.removesuffix("-start")
    return kind in COLLECTIVES or kind in ("recv", "custom-call") or has_devices(instruction.op)


def _moving(computation: Computation) -> tuple[int, ...]:
    """Return the places of the instructions that move data between devices, or start it."""
    return tuple(
        place
        for place, instruction in enumerate(computation.instructions)
        if instruction.opcode.removesuffix("-start") in COLLECTIVES
        or "AsyncCollectiveStart" in instruction.custom_call_target
        or _is_unknown_collective(instruction)
    )


def instruction_text(instruction: Instruction) -> str:
    """Return the text of an instruction, as far as it says what moves."""
    target = instruction.custom_call_target
    named = f', custom_call_target="{target}"' if target else ""
    return f"{instruction}{named}"[:_LONGEST]


class _Reader:
    """Reader of the collectives of a program."""

    def __init__(self, dataflow: Dataflow, slices: ProgramSlices | None) -> None:
        self.dataflow = dataflow
        self.slices = slices
        self.device_count = dataflow.module.device_count
        self.listed: dict[tuple[bytes, ...], NDArray[np.int64]] = {}
        self.groups: dict[tuple[tuple[int, ...], bytes], NDArray[np.int64]] = {}
        """Groups. Few of them differ: equal ones are one array."""
        self.started: dict[tuple[str, str], tuple[Any, ...]] = {}
        """Collectives that TPU's asynchronous fusions start, by computation and name, as of ``_identity``."""
        for computation in dataflow.module.computations.values():
            for instruction in computation.where(_moving):
                if "AsyncCollectiveStart" in instruction.custom_call_target:
                    for name in instruction.operands:
                        self.started[computation.name, name] = _identity(computation.by_name[name])

    def is_continued(self, computation: Computation, instruction: Instruction) -> bool:
        """Return whether a collective is one that another asynchronous fusion starts."""
        return (
            instruction.op.channel_id > 0
            and _identity(instruction) in self.started.values()
            and (computation.name, instruction.name) not in self.started
            and "fusion" in self._callers(computation)
        )

    def _callers(self, computation: Computation) -> set[str]:
        """Return the operations that run a computation."""
        return {site.instruction.opcode for site in self.dataflow.sites[computation.name]}

    def read(self, kind: str, computation: Computation, instruction: Instruction) -> list[Movement]:
        """Return the arrays that a collective moves.

        Raises:
            ValueError: If the collective is not understood.
        """
        groups, pairs = self._devices(kind, instruction)
        if groups is not None:
            size = groups.shape[1]
        else:
            assert pairs is not None
            size = longest_chain(pairs)
        is_async = (
            instruction.opcode.endswith("-start")
            or (computation.name, instruction.name) in self.started
            or "async-start" in self._callers(computation)
        )
        moved: list[Movement] = []
        arrays = _arrays(kind, computation, instruction)
        for index, (name, operand, result) in enumerate(arrays):
            value = Value(computation.name, instruction.name, index if len(arrays) > 1 else None)
            part = self._scattered(value, operand, size) if kind == "all-reduce" else None
            this_kind, this_result = ("reduce-scatter", part) if part is not None else (kind, result)
            sent, excess = sent_parts(this_kind, operand.nbytes, this_result.nbytes, size)
            moved.append(
                Movement(
                    kind=this_kind,
                    value=value,
                    instruction=instruction,
                    operand=Value(computation.name, name),
                    before=operand,
                    shape=this_result,
                    sent_nbytes=sent,
                    excess=excess,
                    depends_on_data=kind == "ragged-all-to-all",
                    groups=groups,
                    pairs=pairs,
                    group_size=size,
                    is_async=is_async,
                )
            )
        return _stacked(moved) if kind == "all-to-all" else moved

    def _devices(
        self, kind: str, instruction: Instruction
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """Return the groups or the pairs of devices.

        Raises:
            ValueError: If they are not understood.
        """
        op = instruction.op
        if kind == "send":
            return None, read_pairs(instruction.frontend_attributes.get(_SEND_PAIRS, ""), self.device_count)
        if kind == "collective-permute":
            pairs_of_slice = pairs_of(op, self.device_count)
            return None, pairs_of_slice if self.slices is None else self.slices.everywhere(pairs_of_slice)
        groups = self._groups(op)
        is_of_replicas = kind in _OF_REPLICAS and not op.use_global_device_ids
        if groups.shape == (1, 1) and not groups.any() and is_of_replicas and op.channel_id > 0:
            # JAX's programs have one replica, with all devices.
            groups = np.arange(self.device_count)[None]
        groups = groups if self.slices is None else self.slices.everywhere(groups)
        return self.groups.setdefault((groups.shape, groups.tobytes()), groups), None

    def _groups(self, op: Any) -> NDArray[np.int64]:
        """Return the groups that the message of a collective lists. Most list them alike."""
        key = tuple(getattr(op, name).SerializeToString() for name in DEVICE_LISTS)
        if not any(key):
            return replica_groups(op, self.device_count)
        if key not in self.listed:
            self.listed[key] = replica_groups(op, self.device_count)
        return self.listed[key]

    def read_between_slices(self, computation: Computation, send: Instruction) -> Movement:
        """Return the array that a collective between slices moves.

        Raises:
            ValueError: If the collective is not understood.
        """
        kind, recv = kind_between_slices(send), self.dataflow.ends.get((computation.name, send.name))
        [(name, operand, _)] = _arrays("send", computation, send)
        if kind not in COLLECTIVES or recv is None or not recv.shapes:
            raise ValueError(f"no known collective: {kind}")
        ids = target_ids(send)
        groups = pairs = None
        size = longest_chain(ids) if kind in _PAIRED else ids.shape[1]
        if self.slices is not None:
            at = self.slices.positions(ids)
            groups, pairs = (None, at) if kind in _PAIRED else (at, None)
        result = recv.shapes[0]
        sent, excess = sent_parts(kind, operand.nbytes, result.nbytes, size)
        return Movement(
            kind=kind,
            value=Value(computation.name, recv.name, 0),
            instruction=send,
            operand=Value(computation.name, name),
            before=operand,
            shape=result,
            sent_nbytes=sent,
            excess=excess,
            depends_on_data=False,
            groups=groups,
            pairs=pairs,
            group_size=size,
            is_async=True,
        )

    def _scattered(self, value: Value, operand: ArrayShape, group_size: int) -> ArrayShape | None:
        """Return the part that TPU's all-reduce-scatter fusion takes of an all-reduce; None for others."""
        computation = self.dataflow.module.computations[value.computation]
        if "fusion" not in self._callers(computation):
            return None
        for instruction in self.dataflow.consumers(value):
            if computation.by_name.get(instruction.name) is not instruction:
                return None
            if instruction.opcode == "dynamic-slice" and len(instruction.shapes) == 1:
                part = instruction.shapes[0]
                return part if math.prod(part.dims) * group_size == math.prod(operand.dims) else None
        return None


def _identity(instruction: Instruction) -> tuple[Any, ...]:
    """Return what the parts of a collective have in common. Others can have its channel, too."""
    return instruction.op.channel_id, instruction.opcode, *(shape.dims for shape in instruction.shapes)


def _arrays(
    kind: str, computation: Computation, instruction: Instruction
) -> list[tuple[str, ArrayShape, ArrayShape]]:
    """Return the name and the type of each operand, and the type of its result.

    Raises:
        ValueError: If they are not understood.
    """
    names = instruction.operands[:1] if kind in _FIRST_OPERAND_ONLY else instruction.operands
    operands = [computation.by_name[name].shapes[0] for name in names]
    results: Sequence[ArrayShape] = operands
    if kind in ("all-gather", "reduce-scatter"):
        results = instruction.shapes
        if instruction.opcode.endswith("-start"):
            # A start returns its operands, too: ((operands), results).
            pairs = zip(instruction.shapes, instruction.groups, strict=False)
            results = [shape for shape, element in pairs if element == 1]
    if len(results) != len(operands) or instruction.op.dynamic_slice_sizes:
        raise ValueError(f"{len(operands)} operands, {len(results)} results")
    return list(zip(names, operands, results, strict=True))


def _stacked(arrays: list[Movement]) -> list[Movement]:
    """Return an all-to-all of one array for each device of a group as one movement."""
    first = arrays[0]
    shape, size = first.shape, len(arrays)
    if size == 1 or size != first.group_size or {movement.shape[:2] for movement in arrays} != {shape[:2]}:
        return arrays
    stack = shape._replace(dims=(size, *shape.dims), nbytes=size * shape.nbytes)
    sent, excess = sent_parts(first.kind, stack.nbytes, stack.nbytes, size)
    value = first.value._replace(element=None)
    return [replace(first, value=value, shape=stack, sent_nbytes=sent, excess=excess)]
