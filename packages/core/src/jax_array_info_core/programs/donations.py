"""Donated arguments, and the outputs that reuse their memory."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..base.grouping import by_key
from ..facts.reports.array import ShardingDescription, same_sharding
from ..facts.reports.program_values import (
    CALL_FAILS,
    Donation,
    ProgramValue,
)
from ..geometry.layouts.dtypes import type_text
from ..xla.hlo.dataflow import Dataflow, Value
from ..xla.hlo.module import Module

UNUSED = "unused: the function does not need it"
"""Reason for an argument that is pruned, or without effect on the outputs."""
_PRUNED = -1
"""Number of an argument without a parameter in the program."""


def donations_of(
    arguments: Sequence[ProgramValue],
    donated: Sequence[bool],
    outputs: Sequence[ProgramValue],
    module: Module,
    shared: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Donation, ...]:
    """Return the donated arguments, each with the output that reuses its memory or the reason why none does.

    If one would reuse the memory of an array that is passed twice, donated both times or not, a call fails.

    Args:
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        outputs: Outputs of the program.
        module: The compiled program.
        shared: The arguments that share their buffers, as of ``sharing``.
    """
    used = _used_parameters(module)
    # Tokens of ordered effects are the first parameters, and the first outputs.
    first = max(len(used) - sum(not argument.is_pruned for argument in arguments), 0)
    first_output = max(len(module.computations[module.entry].root.shapes) - len(outputs), 0)
    kept = itertools.count(first)
    numbers = [_PRUNED if argument.is_pruned else next(kept) for argument in arguments]
    reused = {alias.parameter: alias.output - first_output for alias in module.aliases}
    places = [reused.get(number) for number in numbers]
    takers = {place: taker for place, taker in zip(places, arguments, strict=True) if place is not None}
    candidates = _Outputs(outputs, takers)
    rows = []
    for argument, number, place, is_donated in zip(arguments, numbers, places, donated, strict=True):
        if not is_donated:
            continue
        if place is not None and 0 <= place < len(outputs):
            rows.append(_donation(argument, output=outputs[place].path))
        elif number == _PRUNED or not all(used[number : number + 1]):
            rows.append(_donation(argument, reason=UNUSED))
        else:
            rows.append(_donation(argument, reason=candidates.reason(argument)))
    return tuple(_without_failing(rows, shared or {}))


def _without_failing(
    donations: Sequence[Donation], shared: Mapping[str, Sequence[str]]
) -> Iterator[Donation]:
    """Yield donations, none of them reused if a buffer that is reused is passed twice: then a call fails."""
    reused = {donation.path for donation in donations if donation.output is not None}
    fails = not reused.isdisjoint(shared)
    for donation in donations:
        others = tuple(shared.get(donation.path, ()))
        if others and not reused.isdisjoint((donation.path, *others)):
            reason = f"a call fails: it shares its buffer with {', '.join(others)}"
            yield replace(donation, output=None, reason=reason, shares_with=others)
        elif fails and donation.output is not None:
            yield replace(donation, output=None, reason=CALL_FAILS)
        else:
            yield donation


def sharing(arguments: Sequence[ProgramValue], buffers: Sequence[Hashable]) -> Mapping[str, Sequence[str]]:
    """Return the arguments that have buffers of others: the paths of the others, by path.

    Args:
        arguments: Arguments of the program. A pruned one is not passed to it.
        buffers: A key of the buffers of each, as of ``buffer_key``, or None; empty if they are not known.
    """
    groups = by_key(
        (key, argument.path)
        for argument, key in zip(arguments, buffers, strict=False)
        if key is not None and not argument.is_pruned
    )
    return {
        path: [other for other in paths if other != path]
        for paths in groups.values()
        for path in paths
        if paths[1:]
    }


def donatable(
    arguments: Sequence[ProgramValue],
    donated: Sequence[bool],
    outputs: Sequence[ProgramValue],
    donations: Sequence[Donation],
    shared: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Donation, ...]:
    """Return the arguments that are not donated, and whose memory an output could reuse, with that output.

    Each output stands for one argument at most: that with the most similar path. Outputs whose path ends as
    that of an argument choose first.

    Args:
        arguments: Arguments of the program, in the order of the function.
        donated: Whether each of them is donated.
        outputs: Outputs of the program.
        donations: The donated arguments.
        shared: The arguments that share their buffers, which no call can donate.
    """
    taken = {donation.output for donation in donations}
    free = _Groups(
        (number, argument, False)
        for number, (argument, is_donated) in enumerate(zip(arguments, donated, strict=True))
        if not (is_donated or argument.is_pruned or argument.got is None or argument.path in (shared or {}))
    )
    reusable: dict[int, Donation] = {}
    for least, output in itertools.product((1, 0), outputs):
        if output.path in taken or output.got is None:
            continue
        near = _nearest(output.path, free.fitting(output), reusable)
        if near is not None and near[0] >= least:
            _, number = near
            taken.add(output.path)
            reusable[number] = _donation(arguments[number], output=output.path)
    return tuple(reusable[number] for number in sorted(reusable))


def _donation(argument: ProgramValue, *, output: str | None = None, reason: str | None = None) -> Donation:
    return Donation(path=argument.path, nbytes=argument.nbytes or 0, output=output, reason=reason)


def _used_parameters(module: Module) -> list[bool]:
    """Return whether the program uses each parameter. Thousands of them may be the elements of a tuple."""
    users, root = module.once(Dataflow).users, module.computations[module.entry].root
    return [
        parameter is root or bool(users(Value(module.entry, parameter.name, element)))
        for parameter in module.parameters()
        for element in parameter.groups or (None,)
    ]


class _Outputs:
    """Outputs of a program, and the arguments whose memory they reuse."""

    def __init__(self, outputs: Sequence[ProgramValue], takers: Mapping[int, ProgramValue]) -> None:
        self._outputs = outputs
        self._takers = takers
        self._groups = _Groups((place, output, place in takers) for place, output in enumerate(outputs))

    def reason(self, argument: ProgramValue) -> str:
        """Return why no output reuses the memory of an argument that the program uses."""
        type_ = type_text(argument.dtype, argument.shape)
        same_shape = self._groups.of(None, argument.shape)
        similar = same_shape or self._groups.of(argument.dtype, None)
        alike = self._groups.of(argument.dtype, argument.shape)
        near = [group for group in alike if _same_memory(argument, group.value)]
        fitting = self._groups.fitting(argument)
        placed = type_ if len(near) == len(alike) else f"{type_} in {argument.memory_kind}"
        for groups, others, words, fact in (
            (alike, similar, f"{'dtype' if same_shape else 'shape'}: no output", _type_words),
            (near, alike, f"memory kind: no output {type_}", _memory_words),
            (fitting, near, f"sharding: no output {placed}", _sharding_words),
        ):
            if others and not groups:
                nearest = self._nearest(argument, others)
                return f"{words} {fact(argument)}; {nearest.path} {fact(nearest)}"
        if not fitting:
            return f"dtype and shape: no output is {type_}"
        if not all(group.is_reused for group in fitting):
            nearest = self._nearest(argument, fitting)
            return f"XLA did not reuse it; {nearest.path} has its dtype, shape and sharding"
        first = itertools.islice(heapq.merge(*(group.numbers[()] for group in fitting)), 3)
        taken = [f"{self._outputs[place].path} reuses {self._takers[place].path}" for place in first]
        count = sum(len(group.numbers[()]) for group in fitting) - len(taken)
        more = f" and {count} more" if count else ""
        if not all(group.is_reused for group in near):
            nearest = self._nearest(argument, near)
            placed = f"{placed} that {_sharding_words(argument)}"
            more = f"{more}; {nearest.path} {_sharding_words(nearest)}"
        elif not all(group.is_reused for group in alike):
            nearest = self._nearest(argument, alike)
            more = f"{more}; {nearest.path} {_memory_words(nearest)}"
        return f"taken: no output {placed} is left; {', '.join(taken)}{more}"

    def _nearest(self, argument: ProgramValue, groups: Sequence[_Group]) -> ProgramValue:
        """Return the output whose path is most like an argument's; one that reuses none, if there is one."""
        free = [group for group in groups if not group.is_reused]
        nearest = _nearest(argument.path, free or groups)
        assert nearest is not None
        return self._outputs[nearest[1]]


def _type_words(value: ProgramValue) -> str:
    return f"is {type_text(value.dtype, value.shape)}"


def _memory_words(value: ProgramValue) -> str:
    return f"is in {value.memory_kind}"


def _sharding_words(value: ProgramValue) -> str:
    return f"is {value.got or 'unknown'}"


class _Group(NamedTuple):
    """Values of one type, memory kind and sharding."""

    value: ProgramValue
    """One of them."""

    is_reused: bool
    """Whether they reuse the memory of others."""

    numbers: dict[tuple[str, ...], deque[int]]
    """Their numbers, ascending, by each end of their paths: by the empty one, all."""


class _Groups:
    """Values in groups. Thousands of them have few types and shardings.

    Args:
        values: The number of each value, the value, and whether it reuses memory.
    """

    def __init__(self, values: Iterable[tuple[int, ProgramValue, bool]]) -> None:
        groups: dict[Hashable, _Group] = {}
        for number, value, is_reused in values:
            kind = is_reused, value.dtype, value.shape, value.memory_kind, value.got
            group = groups.setdefault(kind, _Group(value, is_reused, {}))
            for end in _ends(value.path):
                group.numbers.setdefault(end, deque()).append(number)
        self._by_type = by_key(
            (type_, group)
            for group in groups.values()
            for dtype, shape in [(group.value.dtype, group.value.shape)]
            for type_ in ((dtype, shape), (None, shape), (dtype, None))
        )

    def of(self, dtype: Any, shape: Any) -> list[_Group]:
        """Return the groups of a dtype and a shape, either of them any if it is None."""
        return self._by_type.get((dtype, shape), [])

    def fitting(self, value: ProgramValue) -> list[_Group]:
        """Return the groups whose values could have the memory of a value."""
        alike = self.of(value.dtype, value.shape)
        return [group for group in alike if _same_memory(group.value, value) and _fits(group.value, value)]


def _nearest(path: str, groups: Sequence[_Group], taken: Collection[int] = ()) -> tuple[int, int] | None:
    """Return the value in some groups whose path is most like another one, the first of such values.

    Args:
        path: The other path.
        groups: The groups. Numbers that are taken are removed from them.
        taken: Numbers of values that are not to be found.

    Returns:
        The number of keys that the paths have in common at their ends, and the number of the value; None if
        no value is left.
    """
    for end in _ends(path):
        queues = [group.numbers[end] for group in groups if end in group.numbers]
        for numbers in queues:
            while numbers and numbers[0] in taken:
                numbers.popleft()
        if any(queues):
            return len(end), min(numbers[0] for numbers in queues if numbers)
    return None


def _ends(path: str) -> Iterator[tuple[str, ...]]:
    """Yield the ends of a path, the longest first, with the empty one."""
    keys = tuple(path.split("/"))
    return (keys[first:] for first in range(len(keys) + 1))


def common_end(path: str, other: str) -> int:
    """Return the number of keys that two paths have in common at their ends."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _same_memory(argument: ProgramValue, output: ProgramValue) -> bool:
    """Return whether two values have the same memory kind, as far as known."""
    return None in (argument.memory_kind, output.memory_kind) or argument.memory_kind == output.memory_kind


def _fits(argument: ProgramValue, output: ProgramValue) -> bool:
    """Return whether two values of one shape have equivalent shardings, as far as known."""
    return _are_equivalent(argument.got, output.got)


@functools.lru_cache(maxsize=1024)
def _are_equivalent(sharding: ShardingDescription | None, other: ShardingDescription | None) -> bool:
    """Return whether two shardings are equivalent, as far as known. Thousands of values have few of them."""
    known = [
        description
        for description in (sharding, other)
        if description is not None and description.spec is not None
    ]
    if len({description.mesh for description in known}) > 1:
        # Axes of the same names and sizes may lie over other devices.
        return False
    return same_sharding(sharding, other) is not False
