"""The next call of a step: its arguments as the step returns them, and what it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..compat.given_programs import places_of_arguments, struct_as_returned
from ..compat.jaxprs import jaxpr_gradients, jaxpr_updates
from ..compat.stages import ProgramLeaf
from ..reports.program import ProgramReport, ProgramValue
from .updates import alike_arguments, by_kind, is_moved, is_named

MOST_CALLS = 4
"""Number of calls after which no call is expected to compile again."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments and keyword arguments."""


def passed_on(
    outputs: Sequence[ProgramValue],
    arguments: Sequence[ProgramValue],
    donated: Sequence[bool],
    jaxpr: Any,
) -> dict[int, int]:
    """Return the arguments that return with another sharding, as far as the next call may get them so.

    An output stands for an argument that it replaces; else for the only one of its shape, dtype and keys that
    is donated, has a name among its keys, or is updated by the output; else for the only one at all, if the
    output is a gradient.

    Args:
        outputs: Outputs of the program.
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        jaxpr: The jaxpr of the function.

    Returns:
        Place of the output by the number of the argument.
    """
    kinds = by_kind((number, one) for number, one in enumerate(arguments) if one.got)
    near = [alike_arguments(output, kinds, arguments) for output in outputs]
    moved = {
        place: [one for one in alike if is_moved(arguments[one], outputs[place])]
        for place, alike in enumerate(near)
    }
    if not any(moved.values()):
        return {}
    program = getattr(jaxpr, "jaxpr", jaxpr)
    is_whole = (len(program.invars), len(program.outvars)) == (len(arguments), len(outputs))
    updates = jaxpr_updates(program) if is_whole else [{}] * len(outputs)
    gradients = jaxpr_gradients(program) if is_whole else [False] * len(outputs)
    numbers = {argument.path: number for number, argument in enumerate(arguments)}
    found: dict[int, int] = {}
    for place, output in enumerate(outputs):
        if not moved[place]:
            continue
        if output.replaces is not None:
            likely = [numbers[output.replaces]]
        else:
            likely = [one for one in near[place] if one in updates[place] and updates[place][one].is_added]
            likely = likely or [one for one in near[place] if donated[one] or is_named(arguments[one])]
            likely = likely or (near[place] if gradients[place] else [])
        if len(likely) == 1 and likely[0] in moved[place]:
            found.setdefault(likely[0], place)
    return found


def next_arguments(
    arguments: Arguments,
    values: Sequence[Any],
    given: Sequence[ProgramLeaf],
    returned: Sequence[ProgramLeaf],
    passed: Mapping[int, int],
) -> Arguments | None:
    """Return the arguments of the next call; None if there are no others, or they are not known.

    Args:
        arguments: The arguments of the call.
        values: Their leaves.
        given: The arguments of the program.
        returned: Its outputs.
        passed: Place of the output by the number of the argument, as of ``passed_on``.
    """
    import jax

    places = places_of_arguments(values, given)
    if places is None or not passed:
        return None
    leaves = list(values)
    for number, place in passed.items():
        struct = struct_as_returned(leaves[places[number]], given[number], returned[place])
        if struct is None:
            return None
        leaves[places[number]] = struct
    found: Arguments = jax.tree.unflatten(jax.tree.structure(arguments), leaves)
    return found


def steady_nbytes(report: ProgramReport) -> int | None:
    """Return the bytes that a device sends per call if no call compiles again; None if they are unknown."""
    return None if report.passed_on else report.sent_nbytes
