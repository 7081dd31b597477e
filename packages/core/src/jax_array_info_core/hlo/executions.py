"""Number of executions of each computation in one call of a program."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from .calls import calls_of, names_in
from .module import Module
from .trip_counts import TripCounts

_OF_ELEMENTS = frozenset(("to_apply", "select", "scatter"))


class Executions(NamedTuple):
    """Number of executions in one call of the program, on one device."""

    times: int | None
    """Exact number; None if it is not known: below a loop of unknown length, or a conditional."""

    at_most: int | None
    """Largest number, where only that is known: in a branch of a conditional. Else None."""


class _Range(NamedTuple):
    """Smallest and largest number of executions."""

    least: int
    most: int | None


def executions(module: Module) -> Mapping[str, Executions]:
    """Return the number of executions of each computation by name.

    The body of a loop runs as often as the loop turns, its condition once more. A branch of a conditional may
    run each time, or never. Computations of single elements, such as the ``to_apply`` of a reduce, count as
    not executed. Those that nothing names are unknown: the line of their caller could not be read.
    """
    callers: dict[str, dict[str, _Range]] = {name: {} for name in module.computations}
    elementwise: set[str] = set()
    trips = TripCounts(module)
    for name, computation in module.computations.items():
        for instruction in computation.instructions:
            if not instruction.attributes:
                continue
            if not _OF_ELEMENTS.isdisjoint(instruction.attributes):
                for attribute in _OF_ELEMENTS & instruction.attributes.keys():
                    elementwise.update(names_in(instruction.attributes[attribute]))
            for call in calls_of(instruction):
                if call.name not in callers:
                    continue
                once = _Range(1, 1)
                if call.role in ("body", "condition"):
                    turns = trips.of(name, instruction)
                    extra = call.role == "condition"
                    once = _Range(0, None) if turns is None else _Range(turns + extra, turns + extra)
                elif call.role == "branch":
                    once = _Range(0, 1)
                elif call.role == "unknown":
                    once = _Range(0, None)
                callers[call.name][name] = _sum(callers[call.name].get(name, _Range(0, 0)), once)
    try:
        order = tuple(TopologicalSorter(callers).static_order())
    except CycleError:
        # No program of XLA calls itself: the text is damaged.
        return dict.fromkeys(module.computations, Executions(None, None))
    ranges: dict[str, _Range] = {}
    for name in order:
        total = _Range(1, 1) if name == module.entry else _Range(0, 0)
        if not callers[name] and name != module.entry and name not in elementwise:
            total = _Range(0, None)
        for caller, each in callers[name].items():
            total = _sum(total, _product(ranges[caller], each))
        ranges[name] = total
    return {name: _executions(ranges[name]) for name in module.computations}


def _sum(left: _Range, right: _Range) -> _Range:
    most = None if left.most is None or right.most is None else left.most + right.most
    return _Range(left.least + right.least, most)


def _product(outer: _Range, inner: _Range) -> _Range:
    if 0 in (outer.most, inner.most):
        return _Range(0, 0)
    most = None if outer.most is None or inner.most is None else outer.most * inner.most
    return _Range(outer.least * inner.least, most)


def _executions(range_: _Range) -> Executions:
    is_exact = range_.least == range_.most
    return Executions(range_.least if is_exact else None, None if is_exact else range_.most)
