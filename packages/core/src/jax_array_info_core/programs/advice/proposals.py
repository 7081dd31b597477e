"""Proposals of rules, and what several rules need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ...geometry.layouts.spec import Spec, spec_code
from ..propagation.graph import Graph, Operation, Value
from ..propagation.helper import NoAnswerError
from .edits import Axes, Edit, Pin
from .pins import Pins, fits, moved, parts, whole_nbytes


class Change(NamedTuple):
    """What a rule proposes."""

    because: str
    pins: Sequence[Pin]
    edits: Sequence[Edit]
    weight: float


Rule = Callable[[Pins], Iterator[Change]]


def code_of(axes: Axes) -> str:
    """Return the spec of a sharding as code."""
    return spec_code(Spec(axes))


def named(names: Iterable[str]) -> str:
    """Return names in words."""
    return " and ".join(dict.fromkeys(names))


def saved(pins: Pins, value: Value, before: Axes, after: Axes) -> float:
    """Return the bytes per device that a value no longer takes."""
    return whole_nbytes(value) * (1 / parts(before, pins.sizes) - 1 / parts(after, pins.sizes))


def freed_graph(pins: Pins, edits: Sequence[Edit]) -> Graph | None:
    """Return the program after the propagation with some edits; None if there is no answer."""
    try:
        return pins.ask(edits)
    except NoAnswerError:
        return None


def numbered(graph: Graph, number: int | None) -> Operation | None:
    """Return the first operation of a number."""
    return next((one for one in graph.operations if one.number == number and number is not None), None)


def is_valid(pins: Pins, shape: Sequence[int], axes: Axes) -> bool:
    """Return whether a sharding is one of whole mesh axes that divides a shape evenly."""
    return len(axes) == len(shape) and pins.is_simple(axes) and fits(shape, axes, pins.sizes)


def moves(pins: Pins, shape: Sequence[int], axes: Axes) -> list[Axes]:
    """Return the shardings with one mesh axis, or all of a dimension, or all of the mesh, on another one."""
    found: dict[Axes, None] = {}
    dims = range(len(shape))
    for dim in dims:
        for name in pins.sizes:
            found[moved(axes, name, dim)] = None
        for names in axes:
            new = axes
            for name in names:
                new = moved(new, name, dim)
            found[new] = None
        found[tuple(tuple(pins.sizes) if other == dim else () for other in dims)] = None
    return [new for new in found if new != axes and fits(shape, new, pins.sizes)]
