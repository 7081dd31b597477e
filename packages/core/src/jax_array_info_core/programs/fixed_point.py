"""Outputs that replace an argument with another sharding, so that the next call compiles again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..compat.jaxprs import Update, jaxpr_updates
from ..layouts.spec import effective_axes
from ..reports.program import ProgramValue


def with_replaced(
    outputs: Sequence[ProgramValue],
    arguments: Sequence[ProgramValue],
    donated: Sequence[bool],
    jaxpr: Any,
) -> tuple[ProgramValue, ...]:
    """Return the outputs, each with the argument that it replaces with another sharding.

    An output replaces an argument with its shape, dtype and keys if it is a sum of the argument and something
    else. If the argument is multiplied on the way, as in a moving average, or has no keys, it must be donated
    too. A copy replaces nothing, and neither does an output with several such arguments.

    Args:
        outputs: Outputs of the program.
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        jaxpr: The jaxpr of the function.
    """
    kinds: dict[Any, list[int]] = {}
    for number, argument in enumerate(arguments):
        # An uncommitted array compiles again in any case, and an array without a sharding can have any.
        if argument.asked is not None and argument.got is not None:
            kinds.setdefault((argument.shape, argument.dtype, _keys(argument.path)), []).append(number)
    alike = [_alike(output, kinds, arguments) for output in outputs]
    pairs = zip(outputs, alike, strict=True)
    if not any(_moved(arguments[one], output) for output, near in pairs for one in near):
        return tuple(outputs)
    program = getattr(jaxpr, "jaxpr", jaxpr)
    if (len(program.invars), len(program.outvars)) != (len(arguments), len(outputs)):
        return tuple(outputs)
    found = []
    for output, near, updates in zip(outputs, alike, jaxpr_updates(program), strict=True):
        replaced = [
            one
            for one in near
            if one in updates and _is_update(updates[one], arguments[one], is_donated=donated[one])
        ]
        if len(replaced) == 1 and _moved(arguments[replaced[0]], output):
            output = replace(output, replaces=arguments[replaced[0]].path)
        found.append(output)
    return tuple(found)


def _keys(path: str) -> str:
    """Return the keys of an argument, without its name."""
    return path.partition("/")[2]


def _alike(output: ProgramValue, kinds: dict[Any, list[int]], arguments: Sequence[ProgramValue]) -> list[int]:
    """Return the arguments of the shape, dtype and keys of an output.

    The keys of an output can be below the argument's name, as of a dict, or below the index in a tuple.
    """
    rest = _keys(output.path)
    first, _, keys = rest.partition("/")
    exact = [one for one in kinds.get((output.shape, output.dtype, keys), ()) if arguments[one].path == rest]
    found = list(kinds.get((output.shape, output.dtype, rest), ()))
    if first.isdecimal():
        found += kinds.get((output.shape, output.dtype, keys), ())
    return exact or list(dict.fromkeys(found))


def _is_update(update: Update, argument: ProgramValue, *, is_donated: bool) -> bool:
    keys = _keys(argument.path)
    is_named = bool(keys) and not keys.isdecimal()
    return update.is_added and (is_donated or (is_named and not update.is_scaled))


def _moved(argument: ProgramValue, output: ProgramValue) -> bool:
    """Return whether an output is known to have another sharding than an argument, on the same mesh."""
    one, other = argument.got, output.got
    if one is None or other is None or one.spec is None or other.spec is None:
        return False
    if one.mesh is None or one.mesh != other.mesh:
        return False
    sizes, ndim = one.mesh.shape, len(argument.shape)
    return effective_axes(one.spec, sizes, ndim) != effective_axes(other.spec, sizes, ndim)
