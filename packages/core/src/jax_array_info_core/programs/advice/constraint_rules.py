"""Rules about the constraints that stand in the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..propagation.graph import Graph, Operation
from .edits import Axes, Edit, Pin
from .pins import Constrained, Pins, fits, moved, names_in, parts, whole_nbytes
from .proposals import Change, code_of, freed_graph, named, numbered, saved

_PART = 0.05
"""Part of the bytes that the largest of several changes saves, below which one is left out."""


def _respec(constrained: Constrained, axes: Mapping[int, Axes | None]) -> tuple[list[Pin], list[Edit]]:
    """Return the change of the constraints of a call chain, by their numbers. The largest value is named."""
    largest = constrained.largest
    pin = constrained.pin._replace(axes=axes[largest.number or 0], before=largest.results[0].axes)
    return [pin], [Edit("constraint", number, new) for number, new in axes.items()]


def restored(pins: Pins) -> Iterator[Change]:
    """A constraint keeps the mesh axes that the values before it have, or is taken away."""
    for constrained in pins.constraints:
        numbers = [one.number or 0 for one in constrained.operations]
        graph = freed_graph(pins, [Edit("constraint", number, None) for number in numbers])
        if graph is None:
            continue
        new: dict[int, Axes | None] = {**_restored(pins, constrained, graph)}
        names: list[str] = []
        weight = held = 0.0
        for one in constrained.operations:
            value, axes = one.results[0], new[one.number or 0] or ()
            names += [name for name in names_in(axes) if name not in names_in(value.axes)]
            weight += saved(pins, value, value.axes, axes)
            held += whole_nbytes(value) / parts(value.axes, pins.sizes)
        changes = []
        if names:
            because = f"the constraint keeps {named(names)}, which shards the value before it"
            changes.append(Change(because, *_respec(constrained, new), weight))
        largest = constrained.largest
        if _before(graph, largest) != largest.results[0].axes:
            because = f"without the constraint, the value is sharded as {code_of(_before(graph, largest))}"
            free = _respec(constrained, dict.fromkeys(numbers))
            changes.append(Change(because, *free, 0.9 * weight or held / 100))
        # One spec for values that need several cannot be written.
        yield from reversed(changes) if len({*new.values()}) > 1 else changes


def restored_together(pins: Pins) -> Iterator[Change]:
    """Constraints that drop one mesh axis, one after another, all keep it."""
    numbers = [one.number or 0 for constrained in pins.constraints for one in constrained.operations]
    graph = freed_graph(pins, [Edit("constraint", number, None) for number in numbers])
    if graph is None or len(pins.constraints) < 2:
        return
    rows = [(constrained, _restored(pins, constrained, graph)) for constrained in pins.constraints]
    for name in pins.sizes:
        changes = []
        for constrained, kept in rows:
            values = {one.number or 0: one.results[0] for one in constrained.operations}
            new: dict[int, Axes | None] = {number: value.axes for number, value in values.items()}
            weight = 0.0
            for number, value in values.items():
                if name in names_in(kept[number]) and name not in names_in(value.axes):
                    new[number] = kept[number]
                    weight += saved(pins, value, value.axes, kept[number])
            changes.append((weight, *_respec(constrained, new)))
        least = _PART * max(weight for weight, _, _ in changes)
        large = [change for change in changes if change[0] > 0 and change[0] >= least]
        if len(large) > 1:
            own = [pin for _, pins_of_chain, _ in large for pin in pins_of_chain]
            edits = [edit for _, _, edits_of_chain in large for edit in edits_of_chain]
            weight = sum(weight for weight, _, _ in large)
            yield Change(f"{len(large)} constraints keep {name}", own, edits, weight)


def _restored(pins: Pins, constrained: Constrained, graph: Graph) -> dict[int, Axes]:
    """Return the sharding of each constraint of a call chain with the mesh axes that the values before have.

    Args:
        pins: The program.
        constrained: The constraints.
        graph: The program without them.
    """
    kept = {one.number or 0: _kept(pins, one, _before(graph, one)) for one in constrained.operations}
    alike: dict[tuple[object, Axes], Axes] = {}
    for one in constrained.operations:
        value = one.results[0]
        if kept[one.number or 0] != value.axes:
            alike.setdefault((value.shape, value.axes), kept[one.number or 0])
    for one in constrained.operations:
        value = one.results[0]
        if kept[one.number or 0] == value.axes:  # of a gradient, whose constraint is that of the value
            kept[one.number or 0] = alike.get((value.shape, value.axes), value.axes)
    return kept


def _kept(pins: Pins, constraint: Operation, before: Axes) -> Axes:
    """Return the sharding of a constraint with the mesh axes that the value before it has."""
    axes, shape = constraint.results[0].axes, constraint.results[0].shape or ()
    for dim, names in enumerate(pins.with_lost(constraint.operands[0], before)):
        for name in names:
            further = moved(axes, name, dim) if name in pins.sizes else axes
            if name not in names_in(axes) and fits(shape, further, pins.sizes):
                axes = further
    return axes


def _before(graph: Graph, constraint: Operation) -> Axes:
    """Return the sharding of what a constraint is on, in the program without it."""
    value, rank = constraint.operands[0], len(constraint.results[0].axes)
    while value.outer is not None and (value.definer is None or value.definer.number is None):
        value = value.outer
    if value.argument is not None:
        return graph.values[value.argument].axes
    definer = value.definer
    other = numbered(graph, definer.number) if definer is not None else None
    if definer is None or other is None:
        return ((),) * rank
    place = definer.results.index(value)
    axes = other.results[place].axes if place < len(other.results) else ()
    return axes if len(axes) == rank else ((),) * rank


def as_parameter(pins: Pins) -> Iterator[Change]:
    """A constraint on a parameter, or on its gradient, is the sharding of the parameter."""
    best = {argument.shape: argument for argument in pins.arguments if argument.output is not None}
    for argument in pins.arguments:
        known = best.get(argument.shape)
        if known is not None and parts(argument.axes, pins.sizes) > parts(known.axes, pins.sizes):
            best[argument.shape] = argument
    for constrained in pins.constraints:
        new: dict[int, Axes | None] = {}
        weight = 0.0
        for one in constrained.operations:
            value = one.results[0]
            parameter = best.get(value.shape or ())
            new[one.number or 0] = value.axes if parameter is None else parameter.axes
            if parameter is not None:
                weight += max(saved(pins, value, value.axes, parameter.axes), 0)
        if weight > 0:
            parameter = next(
                best[one.results[0].shape or ()]
                for one in constrained.operations
                if one.results[0].shape in best
            )
            yield Change(
                f"the constraint is the sharding of {parameter.path}", *_respec(constrained, new), weight
            )
