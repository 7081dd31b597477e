"""The ways of elements through a program: the values that only pass them on, and what uses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from .graph import Graph, Key, Operation, Value, has_axis
from .letters import kept_factors, letters_of, operand_letters

PASSING = (
    *("sdy.sharding_constraint", "stablehlo.convert", "stablehlo.dynamic_slice", "stablehlo.reshape"),
    *("stablehlo.optimization_barrier", "stablehlo.pad", "stablehlo.slice", "stablehlo.transpose"),
)
"""Names of operations that compute nothing: each result has values of one operand."""
_REPEATING = "stablehlo.broadcast_in_dim"
_BORDERS = (".return", ".data_flow_edge", ".named_computation")
"""Ends of the names of operations at which a value enters or leaves a region."""
MOST_STEPS = 10_000


def source_of(value: Value) -> Value:
    """Return the value that is the same outside of regions, or inside of the one that it leaves."""
    steps = 0
    while value.outer is not None and steps < MOST_STEPS:
        value, steps = value.outer, steps + 1
    return value


def way_of(graph: Graph, value: Value) -> tuple[Value, frozenset[str]]:
    """Return what a value has its elements from, and the mesh axes that are lost on the way.

    That is what an operation computes, or an argument.
    """
    lost: set[str] = set()
    for _ in range(MOST_STEPS):
        value = source_of(value)
        operation = value.definer
        if operation is None or operation.name not in PASSING:
            break
        before = operation.operands[operation.results.index(value)]  # a barrier has several
        lost |= _lost(graph, operation, before, value)
        value = before
    return value, frozenset(lost)


def _lost(graph: Graph, operation: Operation, before: Value, after: Value) -> set[str]:
    """Return the mesh axes of an operand that its result has not on the same part of a dimension."""
    rule = operation.rule
    if rule is None:
        had, has = (
            {graph.part(name).name for names in value.axes for name in names} for value in (before, after)
        )
        return had - has
    dims = (
        rule.operands[operation.operands.index(before)],
        rule.results[operation.results.index(after)],
    )
    had_parts, has_parts = (
        {(letter.factor, part) for letter in letters_of(graph, 0, axes, dim, rule) for part in letter.parts}
        for axes, dim in zip((before.axes, after.axes), dims, strict=True)
    )
    return {part.name for _, part in had_parts - has_parts}


def consumers(graph: Graph, values: Iterable[Value], *, is_passed_on: bool = False) -> tuple[set[Key], bool]:
    """Return what uses some values, with what passes them on, and whether the program returns one.

    Args:
        graph: The program.
        values: The values.
        is_passed_on: Whether to add what uses the values that operations compute nothing new from.
    """
    waiting, seen, keys, is_returned = [*values], set[Value](), set[Key](), False
    while waiting and len(seen) < MOST_STEPS:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        is_returned |= value.returned is not None
        waiting += graph.inside.get(value, ())
        users = [user for user in graph.users(value) if not user.name.endswith(_BORDERS)]
        keys.update(user.place.key for user in users)
        if is_passed_on:
            passing = (user for user in users if user.name in (*PASSING, _REPEATING))
            waiting += (result for user in passing for result in user.results)
    return keys, is_returned


def has_one_user(graph: Graph, value: Value) -> bool:
    """Return whether one operation alone uses a value, or the program returns it."""
    keys, is_returned = consumers(graph, [source_of(value)])
    return len(keys) + is_returned <= 1


def is_returned(graph: Graph, value: Value) -> bool:
    """Return whether the program returns a value, or a form of it, with its mesh axes."""
    returned = (form for form, _, _ in _forms(graph, value) if form.returned is not None)
    return any(sorted(form.axes) == sorted(value.axes) for form in returned)


def _forms(graph: Graph, value: Value) -> Iterator[tuple[Value, Operation | None, int]]:
    """Yield a value and its forms: of each also the operations that use it, with the operand's place."""
    waiting, seen = deque([value]), {value}
    while waiting and len(seen) < MOST_STEPS:
        form = waiting.popleft()
        yield form, None, 0
        after = list(graph.inside.get(form, ()))
        for operation, place in graph.places.get(form, ()):
            if place < len(operation.operands):
                yield form, operation, place
                if operation.name in PASSING and operation.results:
                    after.append(operation.results[min(place, len(operation.results) - 1)])
        waiting += [further for further in after if further not in seen]
        seen.update(after)


def batch_axes(graph: Graph, value: Value) -> frozenset[str]:
    """Return the mesh axes that shard dimensions which a value lacks, in operands that it is used with.

    The result has these dimensions, such as that of the batch: sharded over these axes, the value is
    gathered for the operation.
    """
    names: set[str] = set()
    for _, operation, place in _forms(graph, value):
        if operation is not None and (rule := operation.rule) is not None:
            further = kept_factors(rule) - {factor for dim in rule.operands[place] for factor in dim}
            for letter in operand_letters(graph, rule, operation.sharding[0]):
                if letter.position != place and letter.factor in further:
                    names.update(part.name for part in letter.parts)
    return frozenset(names)


def constraint_of(graph: Graph, value: Value) -> Operation | None:
    """Return the constraint that gives a value its sharding: one of its users, or what computes it."""
    if value.definer is not None and value.definer.name == "sdy.sharding_constraint":
        return value.definer
    constraints = (
        user
        for user in graph.users(value)
        if user.name == "sdy.sharding_constraint" and user.results[0].axes == value.axes
    )
    return next(constraints, None)


def is_fused(graph: Graph, value: Value, names: Collection[str]) -> bool:
    """Return whether a value that is made of nothing, as a mask, is only used with sharded values.

    XLA then computes its elements where operations on single elements use them, whatever its sharding is.

    Args:
        graph: The program.
        value: The value.
        names: The mesh axes of these sharded values, which the value lacks.
    """
    waiting, seen = [value], {value}
    while waiting and len(seen) < MOST_STEPS:
        form = waiting.pop()
        if form.returned is not None:
            return False
        after = [*graph.inside.get(form, ())]
        for user in graph.users(form):
            if user.name.endswith((*_BORDERS, ".while")):
                continue
            if not all(_is_of_elements(user, result) for result in user.results):
                return False
            after += (
                result
                for result in user.results
                if not all(has_axis(graph, result.axes, name) for name in names)
            )
        waiting += [further for further in after if further not in seen]
        seen.update(after)
    return not waiting


def _is_of_elements(operation: Operation, result: Value) -> bool:
    """Return whether each element of a result is computed of at most one of each operand."""
    is_moved = operation.name in (*PASSING, _REPEATING)
    return is_moved or all(operand.shape in (result.shape, ()) for operand in operation.operands)
