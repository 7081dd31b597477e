"""Rules about the values of expressions, which have no constraint."""

from __future__ import annotations

from collections.abc import Iterator

from ..propagation.graph import Operation
from ..propagation.ways import source_of
from .edits import Axes
from .pins import Pins, Place, moved, names_in, parts, whole_nbytes
from .proposals import Change, code_of, moves, named

_WINDOW, _TRANSPOSE = "stablehlo.reduce_window", "stablehlo.transpose"


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
        names = named(name for _, name in lost if name in names_in(new))
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
        is_made = all(whole_nbytes(operand) < nbytes // 16 for operand in place.operation.operands)
        names = named(name for name in names_in(new) if name not in names_in(axes))
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


def moves_of_values(pins: Pins) -> Iterator[Change]:
    """A mesh axis shards another dimension of a product."""
    for place in pins.places:
        if place.is_heavy:
            axes = place.value.axes
            for new in (axes, *moves(pins, place.site.shape, axes)):
                yield _on(pins, place, new, f"{place.operation.place.op} is computed as {code_of(new)}", 0.1)
