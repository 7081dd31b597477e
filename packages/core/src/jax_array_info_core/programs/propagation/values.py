"""Values of a propagated program, each with the reason for its sharding."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Hashable
from typing import Any

from ...facts.reports.propagation import Loss, PropagatedValue, ReplicatedValue
from ...geometry.layouts.spec import MIN_SHARD_ELEMENTS, MeshAxes, Spec, advised_axes
from .axis_origins import Propagated, line_of, origins_of
from .conflicts import losses_of, most_first, where
from .graph import Axes, Graph, Operation, Value, has_axis, nbytes, remembered, shard_of
from .ways import MOST_STEPS, batch_axes, is_returned


def propagated_values(program: Propagated) -> tuple[PropagatedValue, ...]:
    """Return what the operations compute, the most bytes first."""
    alike = [_fields(program, value) for value in _results(program.graph)]
    rows = {id(fields): PropagatedValue(**fields) for fields in program.fields.values()}
    return most_first(rows[id(fields)] for fields in alike)


def opaque(program: Propagated) -> tuple[str, ...]:
    """Return the operations on sharded values that have no rule, each with its line."""
    operations = filter(_is_opaque, program.graph.computing)
    return tuple(dict.fromkeys(_named_line(program, operation) for operation in operations))


def kernels(program: Propagated) -> tuple[str, ...]:
    """Return the kernels, callbacks and other calls inside of a ``shard_map``, each with its line."""
    calls = (call for call in program.graph.computing if call.name == "stablehlo.custom_call")
    return tuple(dict.fromkeys(_named_line(program, call) for call in calls if call.is_manual))


def _named_line(program: Propagated, operation: Operation) -> str:
    line = line_of(program, operation.place) or "an unknown line"
    return f"{operation.place.op or operation.name} of {line}"


def replicated(program: Propagated) -> tuple[ReplicatedValue, ...]:
    """Return the values that could be sharded over more mesh axes, the most avoidable bytes first."""
    graph = program.graph
    known: dict[Hashable, ReplicatedValue] = {}
    rows = []
    arguments = filter(program.path, graph.values[: graph.argument_count])
    for value in (*arguments, *_results(graph)):
        size, path = nbytes(graph, value), program.path(value)
        is_manual = value.definer is not None and value.definer.is_manual
        if not size or value.shape is None or is_manual or (path and any(value.axes)):
            continue
        batch = batch_axes(graph, value) if path else frozenset[str]()
        names, count = _finer(graph, value.shape, value.axes, batch)
        loss = _explaining(program, value, names) if names and not path else None
        if names and (path or _is_named(graph, value, names, loss)):
            fields = _fields(program, value)
            key = path or id(fields), id(loss)
            if key not in known:
                known[key] = ReplicatedValue(
                    **{**fields, "op": "argument" if path else fields["op"]},
                    mesh_axes=names,
                    avoidable_nbytes=size - size // count,
                    loss=loss,
                    path=path,
                )
            rows.append(known[key])
    return tuple(sorted(most_first(rows), key=lambda row: -row.avoidable_nbytes * row.count))


def _is_named(graph: Graph, value: Value, names: Collection[str], loss: Loss | None) -> bool:
    """Return whether a replicated value is more than a consequence of a choice that is named elsewhere.

    A form of an argument is its consequence, and so is what operations compute of replicated values, the
    sums over the devices of a sharded dimension, and what follows a constraint. Named is what an
    operation without a rule makes of sharded values; what one makes of nothing, unless a replicated
    argument has its shape, as for its gradients; what loses a mesh axis otherwise; and the gradient that
    is returned without a mesh axis of its argument.
    """
    arguments = graph.values[: graph.argument_count]
    alike = [argument.axes for argument in arguments if argument.shape == value.shape]
    if loss is None:
        if value.definer is not None and _is_opaque(value.definer):
            return True
        operands = () if value.definer is None else value.definer.operands
        is_made = all(math.prod(operand.shape or ()) < MIN_SHARD_ELEMENTS for operand in operands)
        return is_made and not any(value.axes) and all(map(any, alike))
    if loss.reason != "contracted":
        return loss.reason != "constraint"
    has = (has_axis(graph, axes, name) for axes in alike for name in names)
    return is_returned(graph, value) and any(has)


@remembered
def _finer(
    graph: Graph, shape: tuple[int, ...], axes: Axes, batch: frozenset[str]
) -> tuple[tuple[str, ...], int]:
    """Return the mesh axes that should shard a value further, and the number of their devices."""
    unused = tuple(
        (name, size)
        for name, size in graph.sizes.items()
        if not (name in batch or has_axis(graph, axes, name))
    )
    further = advised_axes(shard_of(shape, axes, graph.sizes), unused)
    names = tuple(name for dim in further for name in dim)
    return names, math.prod(graph.sizes[name] for name in names)


def _explaining(program: Propagated, value: Value, names: Collection[str]) -> Loss | None:
    """Return the nearest loss of some mesh axes before a value."""
    waiting, seen = deque([value]), {value}
    while waiting and len(seen) < MOST_STEPS:
        value = waiting.popleft()
        before = [value.outer] if value.outer is not None else []
        if value.definer is not None:
            for loss in losses_of(program, value.definer):
                if program.graph.part(loss.mesh_axis).name in names:
                    return loss
            before += [] if before else value.definer.operands
        waiting += [earlier for earlier in before if earlier not in seen]
        seen.update(before)
    return None


def _fields(program: Propagated, value: Value) -> dict[str, Any]:
    """Return the fields of a value that an operation computes. Those of equal ones are one object."""
    place, definer, axes = where(program, value.place), value.definer, origins_of(program, value)
    manual = () if definer is None else definer.manual_here
    key = (
        *(value.shape, value.dtype, value.axes, value.place.op, *map(id, axes), manual, value.varying),
        *(id(place["origin"]), place["columns"], place["phase"]),
    )
    if key not in program.fields:
        sizes = program.graph.sizes
        program.fields[key] = {
            "shape": value.shape,
            "dtype": value.dtype,
            "spec": Spec(value.axes),
            "nbytes": nbytes(program.graph, value),
            "op": value.place.op,
            "axes": axes,
            "in_shard_map": definer is not None and definer.is_manual,
            "manual_axes": MeshAxes(manual, tuple(map(sizes.__getitem__, manual))) if manual else None,
            "invariant_axes": None
            if value.varying is None
            else tuple(name for name in manual if name not in value.varying),
            **place,
        }
    return program.fields[key]


@remembered
def _results(graph: Graph) -> list[Value]:
    """Return what the operations of the user compute: of those into which JAX divides one, the last."""
    values: list[Value] = []
    for operation in graph.computing:
        users = [user for result in operation.results for user in graph.users(result)]
        inside = [
            user
            for user in users
            # Equal operations of one line in a row have one place, too.
            if user.place is operation.place
            and user.name != operation.name
            and not user.name.startswith("sdy.")
        ]
        if not users or len(inside) < len(users):
            values += (result for result in operation.results if result.shape is not None)
    return values


def is_uneven(graph: Graph, value: Value) -> bool:
    """Return whether a sharded dimension is empty, does not divide, or has a part of a mesh axis."""
    counts = [math.prod(graph.part(name).size for name in names) for names in value.axes]
    has_parts = any(name not in graph.sizes for names in value.axes for name in names)
    shards = zip(value.shape or (), counts, strict=False)
    return has_parts or any(dim % count or (not dim and count > 1) for dim, count in shards)


def _is_opaque(operation: Operation) -> bool:
    """Return whether sharded values go into an operation without a rule, and none comes out."""
    given, made = (
        any(any(value.axes) for value in values) for values in (operation.operands, operation.results)
    )
    return operation.rule is None and given and not made
