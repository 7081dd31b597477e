"""Donated arguments, and the outputs that reuse their memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..hlo.module import ArrayShape, Instruction, Module
from ..layouts.dtypes import type_text
from ..layouts.spec import effective_axes
from ..reports.array import ShardingDescription
from ..reports.program import Donation, ProgramValue

UNUSED = "the function does not use it"
"""Reason for an argument that is pruned, or without effect on the outputs."""


def donations_of(
    arguments: Sequence[ProgramValue],
    donated: Sequence[bool],
    outputs: Sequence[ProgramValue],
    module: Module,
) -> tuple[Donation, ...]:
    """Return the donated arguments, each with the output that reuses its memory or the reason why none does.

    Args:
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        outputs: Outputs of the program.
        module: The compiled program.
    """
    parameters = _Parameters(module)
    # Tokens of ordered effects are the first parameters, and the first outputs.
    first = max(len(parameters) - sum(not argument.is_pruned for argument in arguments), 0)
    first_output = max(len(_result(module)) - len(outputs), 0)
    reused = {alias.parameter: alias.output - first_output for alias in module.aliases}
    takers: dict[int, ProgramValue] = {}
    numbers: list[int | None] = []
    kept = first
    for argument in arguments:
        numbers.append(None if argument.is_pruned else kept)
        if not argument.is_pruned and kept in reused:
            takers[reused[kept]] = argument
        kept += not argument.is_pruned
    found = []
    for argument, number, is_donated in zip(arguments, numbers, donated, strict=True):
        if not is_donated:
            continue
        place = reused.get(number) if number is not None else None
        if place is not None and 0 <= place < len(outputs):
            found.append(_donation(argument, output=outputs[place].path))
        elif number is None or not parameters.is_used(number):
            found.append(_donation(argument, reason=UNUSED))
        else:
            found.append(_donation(argument, reason=_reason(argument, outputs, takers)))
    return tuple(found)


def _donation(argument: ProgramValue, *, output: str | None = None, reason: str | None = None) -> Donation:
    return Donation(path=argument.path, nbytes=argument.nbytes or 0, output=output, reason=reason)


class _Parameters:
    """Parameters of a program. Thousands of arguments may be the elements of one parameter."""

    def __init__(self, module: Module) -> None:
        parameters = list(module.parameters())
        entry = module.computations.get(module.entry)
        instructions = () if entry is None else entry.instructions
        self._used: list[bool] = []
        for parameter in parameters:
            users = [one for one in instructions if parameter.name in one.operands]
            if len(parameter.shapes) == 1:
                self._used.append(bool(users) or parameter.is_root)
            else:
                elements = {_element(one) for one in users}
                self._used += (
                    None in elements or group in elements or parameter.is_root for group in parameter.groups
                )

    def __len__(self) -> int:
        return len(self._used)

    def is_used(self, number: int) -> bool:
        """Return whether the program uses a parameter. True if it could not be read."""
        return number >= len(self._used) or self._used[number]


def _element(one: Instruction) -> int | None:
    """Return the element of a tuple that an instruction takes; None if it uses all of it."""
    index = one.attributes.get("index", "")
    return int(index) if one.opcode == "get-tuple-element" and index.isdecimal() else None


def _result(module: Module) -> tuple[ArrayShape, ...]:
    """Return the types of the program's outputs."""
    entry = module.computations.get(module.entry)
    return () if entry is None or entry.root is None else entry.root.shapes


def _reason(
    argument: ProgramValue, outputs: Sequence[ProgramValue], takers: dict[int, ProgramValue]
) -> str:
    """Return why no output reuses the memory of an argument that the program uses."""
    type_ = type_text(argument.dtype, argument.shape)
    if not outputs:
        return "the function has no outputs"
    places = range(len(outputs))
    alike = [place for place in places if _same_type(argument, outputs[place])]
    if not alike:
        near = _nearest(argument, (outputs[place] for place in places if place not in takers))
        near = near or _nearest(argument, outputs)
        if near is None:
            return f"no output is {type_}"
        return f"no output is {type_}; {near.path} is {type_text(near.dtype, near.shape)}"
    fitting = [place for place in alike if _same_sharding(argument.got, outputs[place].got, len(argument.shape))]
    if not fitting:
        near = _nearest(argument, (outputs[place] for place in alike)) or outputs[alike[0]]
        return f"its sharding is {_text(argument.got)}; that of {near.path} is {_text(near.got)}"
    free = [outputs[place] for place in fitting if place not in takers]
    if free:
        near = _nearest(argument, free) or free[0]
        return f"XLA did not reuse it, although {near.path} has its dtype, shape and sharding"
    taken = [f"{outputs[place].path} reuses {takers[place].path}" for place in fitting[:3]]
    more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
    return f"no output of {type_} is left: {', '.join(taken)}{more}"


def _nearest(argument: ProgramValue, outputs: Iterable[ProgramValue]) -> ProgramValue | None:
    """Return the output with the same shape or dtype whose path is most alike; None if there is none."""
    found = [one for one in outputs if one.shape == argument.shape or one.dtype == argument.dtype]

    def likeness(one: ProgramValue) -> tuple[bool, int]:
        return one.shape == argument.shape, _common_end(argument.path, one.path)

    return max(found, key=likeness, default=None)


def _common_end(path: str, other: str) -> int:
    """Return the number of keys that two paths have in common at their ends."""
    count = 0
    for key, same in zip(reversed(path.split("/")), reversed(other.split("/")), strict=False):
        if key != same:
            break
        count += 1
    return count


def _same_type(one: ProgramValue, other: ProgramValue) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape)


def _same_sharding(one: ShardingDescription | None, other: ShardingDescription | None, ndim: int) -> bool:
    """Return whether two shardings are equivalent, as far as known."""
    if one is None or other is None or one == other:
        return True
    if one.spec is None or other.spec is None or one.mesh is None or other.mesh is None:
        # Without specs, texts of different classes of shardings say nothing.
        return one.type != other.type or one.text == other.text
    axes = effective_axes(one.spec, one.mesh.shape, ndim), effective_axes(other.spec, other.mesh.shape, ndim)
    return axes[0] == axes[1] and one.mesh == other.mesh


def _text(sharding: ShardingDescription | None) -> str:
    """Return a sharding as text."""
    if sharding is None:
        return "unknown"
    return str(sharding.spec) if sharding.spec is not None else sharding.text or sharding.type
