"""Elements of tuples that are written as ``%while.1#2``, as in the programs that XLA dumps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from .module import Computation, Instruction


def computation_of(name: str, instructions: Iterable[Instruction]) -> Computation:
    """Return a computation in which each element of a tuple that is used has an instruction of its own."""
    instructions = tuple(instructions)
    if "#" in "".join(chain.from_iterable(one.operands for one in instructions)):
        instructions = tuple(_with_elements(instructions))
    return Computation(name, instructions, {one.name: one for one in instructions})


def _with_elements(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Yield instructions, each after the elements that it is the first to use."""
    seen: dict[str, Instruction] = {}
    for instruction in instructions:
        for operand in instruction.operands:
            whole, separator, place = operand.rpartition("#")
            if separator and operand not in seen and whole in seen and place.isdecimal():
                seen[operand] = _element(operand, seen[whole], place)
                yield seen[operand]
        seen[instruction.name] = instruction
        yield instruction


def _element(name: str, whole: Instruction, place: str) -> Instruction:
    """Return the instruction for an element of a tuple."""
    inside = [shape for shape, group in zip(whole.shapes, whole.groups, strict=False) if str(group) == place]
    return whole._replace(
        name=name,
        opcode="get-tuple-element",
        shapes=tuple(inside),
        groups=tuple(range(len(inside))) if len(inside) > 1 else (),
        operands=(whole.name,),
        attributes={"index": place},
        literal="",
        is_root=False,
    )
