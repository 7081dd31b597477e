"""Rules about state and data: arguments, with the outputs that take their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...base.grouping import by_key
from ...base.quantities import counted
from .edits import Edit, Pin
from .pins import Argument, Pins, fits, moved, names_in, parts
from .proposals import Change, code_of, freed_graph, is_valid, moves, named, saved


def twins(pins: Pins) -> Iterator[Change]:
    """State that is sharded less than other state of its shape is sharded as that is, all of it at once."""
    state = [argument for argument in pins.arguments if argument.output is not None]
    by_shape = by_key((argument.shape, argument) for argument in state)
    best = {
        shape: max(rows, key=lambda argument: parts(argument.axes, pins.sizes))
        for shape, rows in by_shape.items()
    }
    less = [
        argument
        for argument in state
        if parts(argument.axes, pins.sizes) < parts(best[argument.shape].axes, pins.sizes)
    ]
    alike = [argument for argument in less if argument.key == best[argument.shape].key]
    for group in {len(rows): rows for rows in (less, alike) if rows}.values():
        yield _as_others(pins, [(argument, best[argument.shape]) for argument in group])
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
        weight += 2 * saved(pins, value, argument.axes, other.axes) + argument.nbytes / 100
    first, other = pairs[0]
    count = f" and {len(pairs) - 1} more are" if len(pairs) > 1 else " is"
    because = f"{first.path}{count} sharded as {other.path} is, which has the same shape"
    return Change(because, own, edits, weight)


def freed(pins: Pins) -> Iterator[Change]:
    """Arguments are sharded as the rest of the program uses them: by the propagation without theirs."""
    for group in pins.groups():
        first = group[0]
        _, edits = pins.given(group, None)
        graph = freed_graph(pins, edits)
        if graph is None:
            continue
        wanted = graph.values[first.number].axes
        held = sum(argument.nbytes for argument in group) / parts(first.axes, pins.sizes)
        whole = held * (1 - parts(first.axes, pins.sizes) / parts((tuple(pins.sizes),), pins.sizes))
        paths = first.path if len(group) == 1 else f"{first.path} and {len(group) - 1} more"
        if wanted != first.axes and any(wanted) and is_valid(pins, first.shape, wanted):
            yield Change(
                f"what uses {paths} is sharded as {code_of(wanted)}",
                *pins.given(group, wanted),
                max(whole, held / 10),
            )
        base = wanted if is_valid(pins, first.shape, wanted) else first.axes
        wider = pins.widened(first.shape, base)
        if wider not in (first.axes, wanted) and whole > 0:
            names = named(name for name in names_in(wider) if name not in names_in(first.axes))
            yield Change(
                f"{names or 'another dimension'} shards {paths}, too", *pins.given(group, wider), whole / 2
            )


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
        graph = freed_graph(
            pins, [*edits, *(Edit("constraint", one.number or 0, None) for _, one in gradients)]
        )
        wanted = () if graph is None else graph.values[first.number].axes
        if not is_valid(pins, first.shape, wanted):
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
                f"products use {first.path} as {code_of(wanted)}",
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


def moves_of_state(pins: Pins) -> Iterator[Change]:
    """A mesh axis shards another dimension of arguments, or one that none does."""
    for group in pins.groups():
        first, tied = group[0], pins.tied(group[0])
        weight = sum(argument.nbytes for argument in group) / parts(first.axes, pins.sizes)
        for arguments in {len(rows): rows for rows in (group, tied)}.values():
            same = [argument for argument in arguments if argument.axes == first.axes]
            for new in moves(pins, first.shape, first.axes):
                gained = set(names_in(new)) - set(names_in(first.axes))
                verb = f"{named(gained)} shards" if gained else "other dimensions shard"
                names = (
                    first.path
                    if len(same) == 1
                    else f"{first.path} and {counted(len(same) - 1, 'other', 'others')}"
                )
                yield Change(f"{verb} {names}", *pins.given(same, new), weight)
