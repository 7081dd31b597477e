"""Outputs that replace arguments in the next call."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..base.grouping import by_key
from ..compat.jaxprs import Update, jaxpr_gradients, jaxpr_updates
from ..compat.stages import ProgramLeaf, places_of_arguments, struct_as_returned
from ..facts.reports.array import ShardingDescription, same_sharding
from ..facts.reports.program_values import (
    Constraint,
    ProgramValue,
)
from ..geometry.layouts.spec import MeshAxes, effective_spec


class Interface(NamedTuple):
    """What goes into a program and comes out of it, as JAX tells."""

    mesh: MeshAxes | None
    """Axes of the mesh; None without a mesh."""

    arguments: Sequence[ProgramValue]
    """Leaves of the arguments, in the order of the function."""

    outputs: Sequence[ProgramValue]
    """Leaves of the outputs."""

    constraints: tuple[Constraint, ...] | None
    """Sharding constraints inside; None if they are unknown."""

    @property
    def device_count(self) -> int:
        """Number of devices of the mesh; 1 without a mesh."""
        return 1 if self.mesh is None else math.prod(self.mesh.sizes)


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

    A step returns whole arguments: see ``_returned`` and ``_donated``. Then each of their leaves is replaced,
    however it is computed.

    Args:
        outputs: Outputs of the program.
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        jaxpr: The jaxpr of the function.
    """
    # An uncommitted array compiles again in any case, and an array without a sharding can have any.
    kinds = by_kind(
        (number, argument) for number, argument in enumerate(arguments) if argument.asked and argument.got
    )
    alike = [alike_arguments(output, kinds, arguments) for output in outputs]
    pairs = zip(outputs, alike, strict=True)
    if not any(is_moved(arguments[number], output) for output, near in pairs for number in near):
        return tuple(outputs)
    program = getattr(jaxpr, "jaxpr", jaxpr)
    if (len(program.invars), len(program.outvars)) != (len(arguments), len(outputs)):
        return tuple(outputs)
    updates = jaxpr_updates(program)
    replaced: dict[int, int] = {}
    for place, near in enumerate(alike):
        by_number = updates[place]
        clear = [
            number
            for number in near
            if number in by_number
            and by_number[number].is_added
            and (donated[number] or (is_named(arguments[number]) and not by_number[number].is_scaled))
        ]
        if len(clear) == 1:
            replaced[place] = clear[0]
    maybe = [*_maybe_returned(outputs, arguments)]
    passed = _donated(maybe, updates, donated, jaxpr_gradients(program))
    for whole in (*_returned(maybe, updates, replaced), *passed):
        for place, argument_number in whole.leaves:
            if arguments[argument_number].asked is not None:
                replaced.setdefault(place, argument_number)
    return tuple(
        replace(output, replaces=arguments[replaced[place]].path)
        if place in replaced and is_moved(arguments[replaced[place]], output)
        else output
        for place, output in enumerate(outputs)
    )


class _Returned(NamedTuple):
    """An argument that may be returned as a whole: an output, or an entry of it, has the same tree."""

    name: str
    """Name of the argument."""

    entry: str | None
    """Key of the entry of the output; None for the whole output."""

    is_own_place: bool
    """Whether the place of the entry in the output is that of the argument in the call."""

    leaves: tuple[tuple[int, int], ...]
    """Place of the output and number of the argument, for each leaf."""


def _maybe_returned(
    outputs: Sequence[ProgramValue], arguments: Sequence[ProgramValue]
) -> Iterator[_Returned]:
    """Yield each argument with each entry of the output that has exactly its keys, shapes and dtypes."""
    given: dict[str, dict[str, int]] = {}
    for number, argument in enumerate(arguments):
        name, _, keys = argument.path.partition("/")
        given.setdefault(name, {})[keys] = number
    entries: dict[str | None, dict[str, int]] = {}
    for place, output in enumerate(outputs):
        path = _keys(output.path)
        entry, _, keys = path.partition("/")
        entries.setdefault(None, {})[path] = place
        entries.setdefault(entry, {})[keys] = place
    for index, (name, leaves) in enumerate(given.items()):
        for key, returned in entries.items():
            if leaves.keys() == returned.keys():
                pairs = tuple((returned[keys], number) for keys, number in leaves.items())
                if all(_type(outputs[place]) == _type(arguments[number]) for place, number in pairs):
                    yield _Returned(name, key, key == str(index), pairs)


def _donated(
    maybe: Iterable[_Returned],
    updates: Sequence[Mapping[int, Update]],
    donated: Sequence[bool],
    gradients: Sequence[bool],
) -> list[_Returned]:
    """Return the donated arguments that a function can return in one place only, such as a cache.

    A copy and a gradient are no new value of an argument.
    """

    def is_new(place: int, number: int) -> bool:
        update = updates[place].get(number)
        return not gradients[place] and (update is None or update.is_added)

    whole = {
        one.leaves: one
        for one in maybe
        if all(donated[number] and is_new(place, number) for place, number in one.leaves)
    }
    places = Counter(place for leaves in whole for place, _ in leaves)
    names = Counter(one.name for one in whole.values())
    return [
        one
        for leaves, one in whole.items()
        if names[one.name] == 1 and all(places[place] == 1 for place, _ in leaves)
    ]


def _type(value: ProgramValue) -> tuple[Any, ...]:
    return value.shape, value.dtype


def _returned(
    maybe: Iterable[_Returned], updates: Sequence[Mapping[int, Update]], replaced: Mapping[int, int]
) -> list[_Returned]:
    """Return the arguments that a function returns as a whole, as a step does.

    - One leaf is clearly replaced there, as the count of an optimizer's state;
    - or at least two arguments are updated at their own places, as by ``return p + a, m + b``;
    - or there is such an argument, and a leaf of another one is updated in one entry only, as a momentum.

    Args:
        maybe: Arguments that may be returned.
        updates: The arguments that each output updates, by number.
        replaced: Number of the argument that an output clearly replaces, by the place of the output.
    """
    maybe = list(maybe)

    def is_updated(whole: _Returned, *, is_scaled: bool) -> bool:
        changes = (updates[place].get(number) for place, number in whole.leaves)
        return any(update.is_added and (is_scaled or not update.is_scaled) for update in changes if update)

    returned = [
        whole for whole in maybe if any(replaced.get(place) == number for place, number in whole.leaves)
    ]
    at_own_places = [whole for whole in maybe if whole.is_own_place and is_updated(whole, is_scaled=False)]
    if len(at_own_places) > 1:
        returned += at_own_places
    if returned:
        names, entries = {whole.name for whole in returned}, {whole.entry for whole in returned}
        others = [
            whole
            for whole in maybe
            if whole.name not in names and whole.entry not in entries and is_updated(whole, is_scaled=True)
        ]
        count = Counter(whole.name for whole in others)
        returned += [whole for whole in others if count[whole.name] == 1]
    return returned


def _keys(path: str) -> str:
    """Return the keys of an argument, without its name."""
    return path.partition("/")[2]


def by_kind(arguments: Iterable[tuple[int, ProgramValue]]) -> dict[Any, list[int]]:
    """Return the numbers of arguments by shape, dtype and keys."""
    return by_key(
        ((argument.shape, argument.dtype, _keys(argument.path)), number) for number, argument in arguments
    )


def alike_arguments(
    output: ProgramValue, kinds: Mapping[Any, Sequence[int]], arguments: Sequence[ProgramValue]
) -> list[int]:
    """Return the arguments of the shape, dtype and keys of an output.

    The keys of an output can be below the argument's name, as of a dict, or below the index in a tuple.
    """
    path = _keys(output.path)
    first, _, keys = path.partition("/")
    exact = [
        number
        for number in kinds.get((output.shape, output.dtype, keys), ())
        if arguments[number].path == path
    ]
    numbers = list(kinds.get((output.shape, output.dtype, path), ()))
    if first.isdecimal():
        numbers += kinds.get((output.shape, output.dtype, keys), ())
    return exact or list(dict.fromkeys(numbers))


def is_named(argument: ProgramValue) -> bool:
    """Return whether an argument has keys below its own name, and not only an index."""
    keys = _keys(argument.path)
    return bool(keys) and not keys.isdecimal()


def is_moved(argument: ProgramValue, output: ProgramValue) -> bool:
    """Return whether an output is known to have another sharding than an argument, on the same mesh."""
    sharding, other = argument.got, output.got
    on_one_mesh = (
        sharding is not None
        and other is not None
        and sharding.mesh is not None
        and sharding.mesh == other.mesh
    )
    return on_one_mesh and same_sharding(sharding, other) is False


def sharded_over(sharding: ShardingDescription | None) -> set[str] | None:
    """Return the mesh axes over which a value is sharded; None if they are unknown."""
    if sharding is None or sharding.spec is None or sharding.mesh is None:
        return None
    return {name for names in effective_spec(sharding.spec, sharding.mesh.shape).axes for name in names}


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
    output is a gradient; else for the one whose mesh axes it lacks.

    Args:
        outputs: Outputs of the program.
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        jaxpr: The jaxpr of the function.

    Returns:
        Place of the output by the number of the argument.
    """
    kinds = by_kind((number, argument) for number, argument in enumerate(arguments) if argument.got)
    near = [alike_arguments(output, kinds, arguments) for output in outputs]
    moved = {
        place: [number for number in alike if is_moved(arguments[number], outputs[place])]
        for place, alike in enumerate(near)
    }
    if not any(moved.values()):
        return {}
    program = getattr(jaxpr, "jaxpr", jaxpr)
    is_whole = (len(program.invars), len(program.outvars)) == (len(arguments), len(outputs))
    updates = jaxpr_updates(program) if is_whole else [{}] * len(outputs)
    gradients = jaxpr_gradients(program) if is_whole else [False] * len(outputs)
    numbers = {argument.path: number for number, argument in enumerate(arguments)}
    passed: dict[int, int] = {}
    for place, output in enumerate(outputs):
        if not moved[place]:
            continue
        if output.replaces is not None:
            likely = [numbers[output.replaces]]
        else:
            likely = [
                number
                for number in near[place]
                if number in updates[place] and updates[place][number].is_added
            ]
            likely = likely or [
                number for number in near[place] if donated[number] or is_named(arguments[number])
            ]
            likely = likely or (near[place] if gradients[place] else [])
            likely = likely or [number for number in near[place] if arguments[number].path == output.like]
        if len(likely) == 1 and likely[0] in moved[place]:
            passed.setdefault(likely[0], place)
    return passed


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
    unflattened: Arguments = jax.tree.unflatten(jax.tree.structure(arguments), leaves)
    return unflattened
