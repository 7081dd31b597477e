"""The rules that propose changes: each is a function of what can be changed in a program."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...base.grouping import by_key
from ...base.quantities import counted
from ...facts.reports.left_out import Parts
from ...geometry.layouts.spec import Spec, spec_code
from ..propagation.graph import Graph, Operation, Value
from ..propagation.helper import NoAnswerError
from ..propagation.ways import source_of
from .edits import Axes, Candidate, Edit, Pin
from .pins import Argument, Constrained, Pins, Place, fits, moved, names_in, parts

_WINDOW, _TRANSPOSE = "stablehlo.reduce_window", "stablehlo.transpose"
_FEW = 40
"""Number of values and arguments below which all other shardings of them are proposed, too."""


class Change(NamedTuple):
    """What a rule proposes."""

    because: str
    pins: Sequence[Pin]
    edits: Sequence[Edit]
    weight: float


Rule = Callable[[Pins], Iterator[Change]]


def candidates(pins: Pins, parts: Parts) -> list[Candidate]:
    """Return what the rules propose: the first of each rule, then the second of each, the most bytes first.

    Of equal changes, the one of the first rule is kept.

    Args:
        pins: What can be changed.
        parts: What keeps the rules that fail.
    """
    queues = [*_proposed(pins, RULES, parts)]
    few = len(pins.places) + len(pins.arguments) < _FEW
    rounds = itertools.zip_longest(*queues)
    rows = [row for proposed in rounds for row in proposed if row is not None]
    if few:
        for queue in _proposed(pins, MOVES, parts):
            rows += queue
    kept: dict[tuple[Edit, ...], Candidate] = {}
    for row in rows:
        kept.setdefault(tuple(sorted(row.edits, key=repr)), row)
    return [row for row in kept.values() if row.edits]


def _proposed(pins: Pins, rules: Mapping[str, Rule], parts: Parts) -> Iterator[list[Candidate]]:
    """Yield the candidates of each rule, the most bytes first."""
    for name, rule in rules.items():
        none: list[Change] = []
        changes = parts.made(f"changes to try ({name})", functools.partial(_changes, rule, pins), none)
        rows = [
            Candidate(name, because, tuple(own), tuple(edits), weight, number)
            for number, (because, own, edits, weight) in enumerate(changes)
        ]
        yield sorted(rows, key=lambda row: -row.weight)


def _changes(rule: Rule, pins: Pins) -> list[Change]:
    return [*rule(pins)]


def _code(axes: Axes) -> str:
    return spec_code(Spec(axes))


def _named(names: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(names))


def _saved(pins: Pins, value: Value, before: Axes, after: Axes) -> float:
    """Return the bytes per device that a value no longer takes."""
    return pins.whole_nbytes(value) * (1 / parts(before, pins.sizes) - 1 / parts(after, pins.sizes))


def _free(pins: Pins, edits: Sequence[Edit]) -> Graph | None:
    """Return the program after the propagation with some edits; None if there is no answer."""
    try:
        return pins.ask(edits)
    except NoAnswerError:
        return None


def _operation(graph: Graph, number: int | None) -> Operation | None:
    """Return the first operation of a number."""
    return next((one for one in graph.operations if one.number == number and number is not None), None)


# State: arguments with the outputs that take their places.


def twins(pins: Pins) -> Iterator[Change]:
    """State that is sharded less than other state of its shape is sharded as that is, all of it at once."""
    state = [argument for argument in pins.arguments if argument.output is not None]
    best: dict[tuple[int, ...], Argument] = {}
    for argument in state:
        other = best.setdefault(argument.shape, argument)
        if parts(argument.axes, pins.sizes) > parts(other.axes, pins.sizes):
            best[argument.shape] = argument
    less = [
        argument
        for argument in state
        if parts(argument.axes, pins.sizes) < parts(best[argument.shape].axes, pins.sizes)
    ]
    alike = [argument for argument in less if argument.key == best[argument.shape].key]
    for group in {len(rows): rows for rows in (less, alike) if rows}.values():
        yield _as_others(pins, [(argument, best[argument.shape]) for argument in group])
    by_shape = by_key((argument.shape, argument) for argument in state)
    for rows in by_shape.values():
        keys = {argument.key for argument in rows}
        for one in {argument.axes: argument for argument in rows}.values():
            leads = {argument.key for argument in rows if argument.axes == one.axes}
            others = [
                (argument, one)
                for argument in rows
                if argument.axes != one.axes and (argument.key in leads or len(keys) == 1)
            ]
            if others:
                yield _as_others(pins, others)


def _as_others(pins: Pins, pairs: Sequence[tuple[Argument, Argument]]) -> Change:
    """Return the change that shards each argument as another one of its shape."""
    own: list[Pin] = []
    edits: list[Edit] = []
    weight = 0.0
    for (axes, _), group in by_key(
        ((other.axes, argument.axes), argument) for argument, other in pairs
    ).items():
        more, its = pins.given(group, axes)
        own += more
        edits += its
    for argument, other in pairs:
        value = pins.graph.values[argument.number]
        weight += 2 * _saved(pins, value, argument.axes, other.axes) + argument.nbytes / 100
    first, other = pairs[0]
    count = f" and {len(pairs) - 1} more are" if len(pairs) > 1 else " is"
    because = f"{first.path}{count} sharded as {other.path} is, which has the same shape"
    return Change(because, own, edits, weight)


def freed(pins: Pins) -> Iterator[Change]:
    """Arguments are sharded as the rest of the program uses them: by the propagation without theirs."""
    for group in pins.groups():
        first = group[0]
        _, edits = pins.given(group, None)
        graph = _free(pins, edits)
        if graph is None:
            continue
        wanted = graph.values[first.number].axes
        held = sum(argument.nbytes for argument in group) / parts(first.axes, pins.sizes)
        whole = held * (1 - parts(first.axes, pins.sizes) / parts((tuple(pins.sizes),), pins.sizes))
        paths = first.path if len(group) == 1 else f"{first.path} and {len(group) - 1} more"
        if wanted != first.axes and any(wanted) and _is_valid(pins, first.shape, wanted):
            yield Change(
                f"what uses {paths} is sharded as {_code(wanted)}",
                *pins.given(group, wanted),
                max(whole, held / 10),
            )
        base = wanted if _is_valid(pins, first.shape, wanted) else first.axes
        wider = pins.widened(first.shape, base)
        if wider not in (first.axes, wanted) and whole > 0:
            names = _named(name for name in names_in(wider) if name not in names_in(first.axes))
            yield Change(
                f"{names or 'another dimension'} shards {paths}, too", *pins.given(group, wider), whole / 2
            )


def _is_valid(pins: Pins, shape: Sequence[int], axes: Axes) -> bool:
    return len(axes) == len(shape) and pins.is_simple(axes) and fits(shape, axes, pins.sizes)


def freed_together(pins: Pins) -> Iterator[Change]:
    """A parameter, its moments, its gradient's constraint and its new value are sharded as products use it.

    They keep each other's sharding: it takes the propagation without all of theirs. Mesh axes that it leaves
    out shard further dimensions.
    """
    done = set()
    for group in pins.groups():
        first, tied = group[0], pins.tied(group[0])
        key = tuple(argument.number for argument in tied)
        if first.output is None or not any(first.axes) or key in done:
            continue
        done.add(key)
        gradients = [
            (constrained, operation)
            for constrained in pins.constraints
            for operation in constrained.operations
            if operation.results[0].shape == first.shape
            and operation.results[0].axes == first.axes
            and operation.number not in pins.constraint_of_output.values()
        ]
        _, edits = pins.given(tied, None)
        graph = _free(pins, [*edits, *(Edit("constraint", one.number or 0, None) for _, one in gradients)])
        wanted = () if graph is None else graph.values[first.number].axes
        if not _is_valid(pins, first.shape, wanted):
            continue
        new = wanted
        for name in names_in(first.axes):
            order = sorted(
                range(len(first.shape)),
                key=lambda dim: (bool(new[dim]), not first.axes[dim], -first.shape[dim]),
            )
            if name not in names_in(new):
                further = (moved(new, name, dim) for dim in order)
                new = next((one for one in further if fits(first.shape, one, pins.sizes)), new)
        if new != first.axes:
            own, edits = pins.given(tied, new)
            respecs = {one.pin._replace(axes=new, before=first.axes): None for one, _ in gradients}
            yield Change(
                f"products use {first.path} as {_code(wanted)}",
                [*own, *(pin for pin in respecs if pin not in own)],
                [*edits, *(Edit("constraint", one.number or 0, new) for _, one in gradients)],
                sum(argument.nbytes for argument in group) / parts(first.axes, pins.sizes),
            )


def returned(pins: Pins) -> Iterator[Change]:
    """An output is sharded as the argument whose place it takes."""
    for argument in pins.arguments:
        output = None if argument.output is None else pins.graph.outputs[argument.output]
        if output is not None and output.axes != argument.axes and any(argument.axes):
            path = pins.program.outputs[argument.output or 0].path or "outputs"
            pin = Pin("output", argument.axes, output.axes, (path,))
            edit = Edit("output", argument.output or 0, argument.axes)
            yield Change(
                f"{path} is sharded as {argument.path}, whose place it takes",
                [pin],
                [edit],
                argument.nbytes / parts(output.axes, pins.sizes),
            )


# Constraints that stand in the program.


def _respec(constrained: Constrained, axes: Mapping[int, Axes | None]) -> tuple[list[Pin], list[Edit]]:
    """Return the change of the constraints of a call chain, by their numbers. The largest value is named."""
    largest = max(constrained.operations, key=lambda one: sum(one.results[0].shape or ()))
    pin = constrained.pin._replace(axes=axes[largest.number or 0], before=largest.results[0].axes)
    return [pin], [Edit("constraint", number, new) for number, new in axes.items()]


def restored(pins: Pins) -> Iterator[Change]:
    """A constraint keeps the mesh axes that the values before it have, or is taken away."""
    for constrained in pins.constraints:
        numbers = [one.number or 0 for one in constrained.operations]
        graph = _free(pins, [Edit("constraint", number, None) for number in numbers])
        if graph is None:
            continue
        kept = {one.number or 0: _kept(pins, one, _before(graph, one)) for one in constrained.operations}
        alike: dict[tuple[object, Axes], Axes] = {}
        for one in constrained.operations:
            value = one.results[0]
            if kept[one.number or 0] != value.axes:
                alike.setdefault((value.shape, value.axes), kept[one.number or 0])
        new: dict[int, Axes | None] = {}
        names: list[str] = []
        weight = held = 0.0
        for one in constrained.operations:
            value, axes = one.results[0], kept[one.number or 0]
            if axes == value.axes:  # of a gradient, whose constraint is that of the value
                axes = alike.get((value.shape, value.axes), axes)
            new[one.number or 0] = axes
            names += [name for name in names_in(axes) if name not in names_in(value.axes)]
            weight += _saved(pins, value, value.axes, axes)
            held += pins.whole_nbytes(value) / parts(value.axes, pins.sizes)
        changes = []
        if names:
            because = f"the constraint keeps {_named(names)}, which shards the value before it"
            changes.append(Change(because, *_respec(constrained, new), weight))
        largest = max(constrained.operations, key=lambda one: sum(one.results[0].shape or ()))
        if _before(graph, largest) != largest.results[0].axes:
            because = f"without the constraint, the value is sharded as {_code(_before(graph, largest))}"
            free = _respec(constrained, dict.fromkeys(numbers))
            changes.append(Change(because, *free, 0.9 * weight or held / 100))
        # One spec for values that need several cannot be written.
        yield from reversed(changes) if len({*new.values()}) > 1 else changes


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
    other = _operation(graph, definer.number) if definer is not None else None
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
                weight += max(_saved(pins, value, value.axes, parameter.axes), 0)
        if weight > 0:
            parameter = next(
                best[one.results[0].shape or ()]
                for one in constrained.operations
                if one.results[0].shape in best
            )
            yield Change(
                f"the constraint is the sharding of {parameter.path}", *_respec(constrained, new), weight
            )


# Values without a constraint.


def batch(pins: Pins) -> Iterator[Change]:
    """A value keeps the mesh axes of the batch that its operation loses."""
    for place in pins.places:
        lost = pins.lost(place.value)
        new = pins.with_lost(place.value, place.value.axes) if lost else place.value.axes
        if new == place.value.axes:
            continue
        is_root = not any(pins.lost(operand) for operand in place.operation.operands)
        if not is_root and not place.is_heavy:
            continue
        names = _named(name for _, name in lost if name in names_in(new))
        dim = "the batch" if lost[0][0] == 0 else f"dimension {lost[0][0]}"
        yield _on(
            pins,
            place,
            new,
            f"{dim} stays sharded over {names} after {place.operation.place.op}",
            1 + is_root,
        )


def whole(pins: Pins) -> Iterator[Change]:
    """A value that each device computes or holds as a whole is divided over mesh axes that nothing uses."""
    for place in pins.places:
        shape, axes = place.site.shape, place.value.axes
        data = {dim for dim, _ in pins.lost(place.value)}
        new = pins.widened(shape, axes, sorted(range(len(shape)), key=lambda dim: (dim not in data, dim)))
        if new == axes:
            continue
        nbytes = place.site.nbytes
        is_made = all(pins.whole_nbytes(operand) < nbytes // 16 for operand in place.operation.operands)
        names = _named(name for name in names_in(new) if name not in names_in(axes))
        worth = 4 if is_made else 2 if place.is_heavy else 1
        yield _on(pins, place, new, f"each device computes its part over {names}", worth)


def needed_whole(pins: Pins) -> Iterator[Change]:
    """A dimension that an operation needs whole is not sharded; another one is, or none."""
    for place in pins.places:
        axes, (name, dims) = place.value.axes, _needed_whole(place.operation)
        is_window = place.operation.name == _WINDOW  # over one of them, which is unknown
        for chosen in [*({dim} for dim in dims if is_window and len(dims) > 1), dims]:
            new = tuple(() if dim in chosen else names for dim, names in enumerate(axes))
            others = [dim for dim in range(len(axes)) if dim not in chosen]
            for wanted in dict.fromkeys((pins.widened(place.value.shape or (), new, others), new)):
                if new != axes:
                    yield _on(pins, place, wanted, f"{name} needs the dimension whole", 1)


def _needed_whole(operation: Operation) -> tuple[str, set[int]]:
    """Return the name of an operation, and the dimensions of its result that it needs whole.

    One that is not the last is transposed for an ``fft``, and back.
    """
    rule, name = operation.rule, operation.place.op
    if rule is None:
        return name, set()
    dims = {dim for dim, factors in enumerate(rule.results[0]) if not rule.whole.isdisjoint(factors)}
    if operation.name == _WINDOW:
        dims = {*range(len(rule.results[0]))}
    before = source_of(operation.operands[0]).definer if operation.name == _TRANSPOSE else None
    if before is not None:
        name, inner = _needed_whole(before)
        places = {factors: dim for dim, factors in enumerate(rule.operands[0])}
        dims = {dim for dim, factors in enumerate(rule.results[0]) if places.get(factors) in inner}
    return name, dims


def before_loop(pins: Pins) -> Iterator[Change]:
    """A value that no iteration changes is gathered once, before the loop."""
    places = {source_of(place.value): place for place in pins.places}
    for loop in (one for one in pins.graph.operations if one.name == "stablehlo.while"):
        for value in loop.operands:
            place = places.get(source_of(value))
            if place is None:
                continue
            for name in names_in(place.value.axes):
                new = moved(place.value.axes, name, None)
                yield _on(pins, place, new, f"{name} is gathered once, before the loop", 1)


def _on(pins: Pins, place: Place, axes: Axes, because: str, worth: float) -> Change:
    """Return a constraint on the value of an expression."""
    held = place.site.nbytes / parts(place.value.axes, pins.sizes)
    return Change(because, [place.pin(axes)], place.edited(axes), worth * held)


# All other shardings, in small programs.


def moves_of_state(pins: Pins) -> Iterator[Change]:
    """A mesh axis shards another dimension of arguments, or one that none does."""
    for group in pins.groups():
        first, tied = group[0], pins.tied(group[0])
        weight = sum(argument.nbytes for argument in group) / parts(first.axes, pins.sizes)
        for arguments in {len(rows): rows for rows in (group, tied)}.values():
            same = [argument for argument in arguments if argument.axes == first.axes]
            for new in _moves(pins, first.shape, first.axes):
                gained = set(names_in(new)) - set(names_in(first.axes))
                verb = f"{_named(gained)} shards" if gained else "other dimensions shard"
                names = (
                    first.path
                    if len(same) == 1
                    else f"{first.path} and {counted(len(same) - 1, 'other', 'others')}"
                )
                yield Change(f"{verb} {names}", *pins.given(same, new), weight)


def moves_of_values(pins: Pins) -> Iterator[Change]:
    """A mesh axis shards another dimension of a product."""
    for place in pins.places:
        if place.is_heavy:
            axes = place.value.axes
            for new in (axes, *_moves(pins, place.site.shape, axes)):
                yield _on(pins, place, new, f"{place.operation.place.op} is computed as {_code(new)}", 0.1)


def _moves(pins: Pins, shape: Sequence[int], axes: Axes) -> list[Axes]:
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


RULES: dict[str, Rule] = {
    "twins": twins,
    "restored": restored,
    "as parameter": as_parameter,
    "batch": batch,
    "freed": freed,
    "freed together": freed_together,
    "whole": whole,
    "before the loop": before_loop,
    "needed whole": needed_whole,
    "returned": returned,
}
"""The rules, the most often right first."""
MOVES: dict[str, Rule] = {"moves of state": moves_of_state, "moves of values": moves_of_values}
"""Rules for small programs, after the others."""
