"""Donated arguments, and the outputs that reuse their memory."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..hlo.dataflow import Dataflow, Value
from ..hlo.module import Module
from ..layouts.dtypes import type_text
from ..reports.array import same_sharding
from ..reports.program import CALL_FAILS, Donation, ProgramValue

UNUSED = "unused: the function does not need it"
"""Reason for an argument that is pruned, or without effect on the outputs."""


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
    reused = {alias.parameter: alias.output - first_output for alias in module.aliases}
    takers: dict[int, ProgramValue] = {}
    numbers: list[int | None] = []
    kept = first
    for argument in arguments:
        numbers.append(None if argument.is_pruned else kept)
        if not argument.is_pruned and kept in reused:
            takers[reused[kept]] = argument
        kept += not argument.is_pruned
    candidates = _Outputs(outputs, takers)
    found = []
    for argument, number, is_donated in zip(arguments, numbers, donated, strict=True):
        if not is_donated:
            continue
        place = reused.get(number) if number is not None else None
        if place is not None and 0 <= place < len(outputs):
            found.append(_donation(argument, output=outputs[place].path))
        elif number is None or (number < len(used) and not used[number]):
            found.append(_donation(argument, reason=UNUSED))
        else:
            found.append(_donation(argument, reason=candidates.reason(argument)))
    return tuple(_without_failing(found, shared or {}))


def _without_failing(
    donations: Sequence[Donation], shared: Mapping[str, Sequence[str]]
) -> Iterator[Donation]:
    """Yield donations, none of them reused if a buffer that is reused is passed twice: then a call fails."""
    reused = {one.path for one in donations if one.output is not None}
    fails = not reused.isdisjoint(shared)
    for one in donations:
        others = tuple(shared.get(one.path, ()))
        if others and not reused.isdisjoint((one.path, *others)):
            reason = f"a call fails: it shares its buffer with {', '.join(others)}"
            yield replace(one, output=None, reason=reason, shares_with=others)
        elif fails and one.output is not None:
            yield replace(one, output=None, reason=CALL_FAILS)
        else:
            yield one


def sharing(arguments: Sequence[ProgramValue], buffers: Sequence[Hashable]) -> Mapping[str, Sequence[str]]:
    """Return the arguments that have buffers of others: the paths of the others, by path.

    Args:
        arguments: Arguments of the program. A pruned one is not passed to it.
        buffers: A key of the buffers of each, as of ``buffer_key``, or None; empty if they are not known.
    """
    groups: dict[Hashable, list[str]] = {}
    for argument, key in zip(arguments, buffers, strict=False):
        if key is not None and not argument.is_pruned:
            groups.setdefault(key, []).append(argument.path)
    return {
        path: [one for one in paths if one != path]
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
    taken = {one.output for one in donations}
    free = _Groups(
        (number, argument, False)
        for number, (argument, is_donated) in enumerate(zip(arguments, donated, strict=True))
        if not (is_donated or argument.is_pruned or argument.got is None or argument.path in (shared or {}))
    )
    found: dict[int, Donation] = {}
    for least, output in itertools.product((1, 0), outputs):
        if output.path in taken or output.got is None:
            continue
        near = _nearest(output.path, free.fitting(output))
        if near is not None and near[0] >= least:
            _, number, group = near
            group.taken.add(number)
            taken.add(output.path)
            found[number] = _donation(arguments[number], output=output.path)
    return tuple(found[number] for number in sorted(found))


def _donation(argument: ProgramValue, *, output: str | None = None, reason: str | None = None) -> Donation:
    return Donation(path=argument.path, nbytes=argument.nbytes or 0, output=output, reason=reason)


def _used_parameters(module: Module) -> list[bool]:
    """Return whether the program uses each parameter. Thousands of them may be the elements of a tuple."""
    users, root = module.once(Dataflow).users, module.computations[module.entry].root
    return [
        one is root or bool(users(Value(module.entry, one.name, element)))
        for one in module.parameters()
        for element in one.groups or (None,)
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
        alike = self._groups.of(argument.dtype, argument.shape)
        if not alike:
            same_shape = self._groups.of(None, argument.shape)
            groups = same_shape or self._groups.of(argument.dtype, None)
            if not groups:
                return f"dtype and shape: no output is {type_}"
            nearest = self._nearest(argument, groups)
            return (
                f"{'dtype' if same_shape else 'shape'}: no output is {type_}; "
                f"{nearest.path} is {type_text(nearest.dtype, nearest.shape)}"
            )
        near = [group for group in alike if _same_memory(argument, group.value)]
        if not near:
            nearest = self._nearest(argument, alike)
            return (
                f"memory kind: no output {type_} is in {argument.memory_kind}; "
                f"{nearest.path} is in {nearest.memory_kind}"
            )
        if len(near) < len(alike):
            type_ = f"{type_} in {argument.memory_kind}"
        fitting = self._groups.fitting(argument)
        if not fitting:
            nearest = self._nearest(argument, near)
            return (
                f"sharding: no output {type_} is {argument.got or 'unknown'}; "
                f"{nearest.path} is {nearest.got or 'unknown'}"
            )
        if not all(group.is_reused for group in fitting):
            nearest = self._nearest(argument, fitting)
            return f"XLA did not reuse it; {nearest.path} has its dtype, shape and sharding"
        first = itertools.islice(heapq.merge(*(group.numbers for group in fitting)), 3)
        taken = [f"{self._outputs[place].path} reuses {self._takers[place].path}" for place in first]
        count = sum(len(group.numbers) for group in fitting) - len(taken)
        more = f" and {count} more" if count else ""
        if not all(group.is_reused for group in near):
            nearest = self._nearest(argument, near)
            type_ = f"{type_} that is {argument.got or 'unknown'}"
            more = f"{more}; {nearest.path} is {nearest.got or 'unknown'}"
        elif not all(group.is_reused for group in alike):
            nearest = self._nearest(argument, alike)
            more = f"{more}; {nearest.path} is in {nearest.memory_kind}"
        return f"taken: no output {type_} is left; {', '.join(taken)}{more}"

    def _nearest(self, argument: ProgramValue, groups: Sequence[_Group]) -> ProgramValue:
        """Return the output whose path is most like an argument's; one that reuses none, if there is one."""
        free = [group for group in groups if not group.is_reused]
        found = _nearest(argument.path, free or groups)
        assert found is not None
        return self._outputs[found[1]]


class _Group:
    """Values of one type, memory kind and sharding, by the ends of their paths."""

    def __init__(self, value: ProgramValue, *, is_reused: bool) -> None:
        self.value = value
        """One of them."""
        self.is_reused = is_reused
        """Whether they reuse the memory of others."""
        self.numbers: list[int] = []
        """Their numbers, ascending."""
        self.taken: set[int] = set()
        """Numbers of those that are no longer found."""
        self._by_end: dict[tuple[str, ...], deque[int]] = {}

    def add(self, number: int, path: str) -> None:
        """Add a value."""
        self.numbers.append(number)
        for end in _ends(path):
            self._by_end.setdefault(end, deque()).append(number)

    def nearest(self, path: str) -> tuple[int, int] | None:
        """Return the keys at the end that most paths have in common with one, and the first such value.

        Returns:
            The number of keys and the number of the value; None if none is left.
        """
        for end in _ends(path):
            numbers = self._by_end.get(end, deque())
            while numbers and numbers[0] in self.taken:
                numbers.popleft()
            if numbers:
                return len(end), numbers[0]
        return None


class _Groups:
    """Values in groups. Thousands of them have few types and shardings.

    Args:
        values: The number of each value, the value, and whether it reuses memory.
    """

    def __init__(self, values: Iterable[tuple[int, ProgramValue, bool]]) -> None:
        groups: dict[Hashable, _Group] = {}
        for number, value, is_reused in values:
            key = is_reused, _kind(value)
            if key not in groups:
                groups[key] = _Group(value, is_reused=is_reused)
            groups[key].add(number, value.path)
        self._fitting: dict[Hashable, list[_Group]] = {}
        self._by_type: dict[tuple[Any, Any], list[_Group]] = {}
        for group in groups.values():
            dtype, shape = group.value.dtype, group.value.shape
            for type_ in ((dtype, shape), (None, shape), (dtype, None)):
                self._by_type.setdefault(type_, []).append(group)

    def of(self, dtype: Any, shape: Any) -> list[_Group]:
        """Return the groups of a dtype and a shape, either of them any if it is None."""
        return self._by_type.get((dtype, shape), [])

    def fitting(self, value: ProgramValue) -> list[_Group]:
        """Return the groups whose values could have the memory of a value."""
        key = _kind(value)
        if key not in self._fitting:
            self._fitting[key] = [
                group
                for group in self.of(value.dtype, value.shape)
                if _same_memory(group.value, value) and _fits(group.value, value)
            ]
        return self._fitting[key]


def _nearest(path: str, groups: Iterable[_Group]) -> tuple[int, int, _Group] | None:
    """Return the value in some groups whose path is most like another one, the first of such values.

    Returns:
        The number of keys that the paths have in common, the number of the value and its group; None if no
        value is left.
    """
    found = [(*near, group) for group in groups if (near := group.nearest(path)) is not None]
    return max(found, key=lambda one: (one[0], -one[1]), default=None)


def _kind(value: ProgramValue) -> Hashable:
    return value.dtype, value.shape, value.memory_kind, value.got


def _ends(path: str) -> Iterator[tuple[str, ...]]:
    """Yield the ends of a path, the longest first, with the empty one."""
    keys = tuple(path.split("/"))
    return (keys[first:] for first in range(len(keys) + 1))


def common_end(path: str, other: str) -> int:
    """Return the number of keys that two paths have in common at their ends."""
    count = 0
    for key, same in zip(reversed(path.split("/")), reversed(other.split("/")), strict=False):
        if key != same:
            break
        count += 1
    return count


def _same_memory(argument: ProgramValue, output: ProgramValue) -> bool:
    """Return whether two values have the same memory kind, as far as known."""
    return None in (argument.memory_kind, output.memory_kind) or argument.memory_kind == output.memory_kind


def _fits(argument: ProgramValue, output: ProgramValue) -> bool:
    """Return whether two values of one shape have equivalent shardings, as far as known."""
    known = [each for each in (argument.got, output.got) if each is not None and each.spec is not None]
    if len({each.mesh for each in known}) > 1:
        # Axes of the same names and sizes may lie over other devices.
        return False
    return same_sharding(argument.got, output.got, len(argument.shape)) is not False
