"""The instructions that compute a value, through fusions, calls and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .buffers import Scope, Writer, result_places, root_parts, updates_in_place
from .module import Computation, Instruction, Module, Passing, called, names_in, operations

Step = tuple[Scope, str, int]
"""A value: where it is, its name, and the place of an array in it."""

# These compute nothing themselves. Their lines are those of what contains the value, such as a scan.
_CONTAINERS = ("tuple", "get-tuple-element", "parameter", "constant", "fusion", "call", "while")
_MOVES = operations(Passing.MOVE).union(_CONTAINERS)
_MOST_STEPS = 1000


class Sources:
    """Searches for the instructions behind a value of a program."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._users: dict[int, dict[str, list[Instruction]]] = {}

    def computing(self, start: Step) -> Iterator[Instruction]:
        """Yield the instructions that compute a value, the nearest first.

        Those that only move or contain a value, such as copies and fusions, come last.
        """
        moves: list[Instruction] = []
        for _, one in self._walk(start):
            if is_move(one):
                moves.append(one)
            else:
                yield one
        yield from moves

    def steps(
        self, start: Step, stops: Callable[[Instruction], bool] = lambda _: False
    ) -> Iterator[tuple[Instruction, int]]:
        """Yield the instructions on which a value depends and places in their results, the nearest first.

        Args:
            start: The value.
            stops: Whether not to follow what an instruction computes from.
        """
        for (_, _, place), one in self._walk(start, stops=stops):
            yield one, place

    def consumers(self, scope: Scope, name: str) -> Iterator[Instruction]:
        """Yield the instructions that use a value, those that use a copy of it later."""
        users = self._users_in(scope.computation)
        seen = {name}
        waiting = [name]
        for value in waiting:
            for one in users.get(value, ()):
                yield one
                if is_move(one) and one.name not in seen:
                    seen.add(one.name)
                    waiting.append(one.name)

    def _users_in(self, computation: Computation) -> dict[str, list[Instruction]]:
        """Return the users of each value of a computation."""
        found = self._users.get(id(computation))
        if found is None:
            found = self._users[id(computation)] = {}
            for one in computation.instructions:
                for name in one.operands:
                    found.setdefault(name, []).append(one)
        return found

    def stored(self, writer: Writer) -> Iterator[Instruction]:
        """Yield the instructions that compute what an update in place stores, the nearest first."""
        found = self._update(writer)
        if found is not None:
            scope, update = found
            if len(update.operands) > 1:
                value = 2 if update.opcode == "scatter" and len(update.operands) > 2 else 1
                yield from self.computing((scope, update.operands[value], 0))
            yield update
        yield writer.instruction

    def is_at_loop_index(self, writer: Writer) -> bool:
        """Return whether an update writes at an index that the loop changes, such as its counter."""
        found = self._update(writer)
        if found is None or found[1].opcode != "dynamic-update-slice":
            return False
        scope, update = found
        return any(self._changes((scope, name, 0)) for name in update.operands[2:])

    def _update(self, writer: Writer) -> tuple[Scope, Instruction] | None:
        """Return the update that an instruction is, or that its fusion ends with."""
        scope, one, place = writer
        if one.opcode in ("fusion", "fusion-start"):
            inside = self._inside(scope, one, "calls")
            places = result_places(one)
            parts = [] if inside is None or place not in places else root_parts(inside.computation)
            number = places.index(place) if place in places else 0
            if inside is None or number >= len(parts):
                return None
            update = updates_in_place(inside.computation, parts[number])
            return None if update is None else (inside, update)
        update = updates_in_place(scope.computation, one)
        return None if update is None else (scope, update)

    def _changes(self, start: Step) -> bool:
        """Return whether a value depends on one that changes from turn to turn of the loop around it."""
        for (scope, _, place), one in self._walk(start, is_within_turn=True):
            if one.opcode == "parameter" and scope.caller is not None and scope.caller.opcode == "while":
                parts = root_parts(scope.computation)
                part = parts[place] if place < len(parts) else None
                if part is not None and not _is_element(scope.computation, part, place):
                    return True
        return False

    def _walk(
        self,
        start: Step,
        *,
        is_within_turn: bool = False,
        stops: Callable[[Instruction], bool] = lambda _: False,
    ) -> Iterator[tuple[Step, Instruction]]:
        """Yield the instructions on which a value depends, breadth first."""
        seen: set[tuple[int, str, int]] = set()
        waiting = [start]
        for step in waiting:
            scope, name, place = step
            one = scope.computation.by_name.get(name)
            key = (id(scope.computation), name, place)
            if one is None or key in seen or len(seen) >= _MOST_STEPS:
                continue
            seen.add(key)
            yield step, one
            if not stops(one):
                waiting += self._before(scope, one, place, is_within_turn)

    def _before(self, scope: Scope, one: Instruction, place: int, is_within_turn: bool) -> list[Step]:
        """Return the values from which an instruction computes an array of its result."""
        if one.opcode == "parameter":
            return self._arguments(scope, one, place, is_within_turn)
        if one.opcode == "get-tuple-element":
            operand = scope.computation.by_name.get(one.operands[0]) if one.operands else None
            if operand is None or one.element not in operand.groups:
                return []
            return [(scope, operand.name, operand.groups.index(one.element) + place)]
        if one.opcode == "tuple":
            for name in one.operands:
                operand = scope.computation.by_name.get(name)
                size = len(operand.shapes) if operand else 1
                if place < size:
                    return [(scope, name, place)]
                place -= size
            return []
        if one.opcode.endswith("-done"):
            start = scope.computation.by_name.get(one.operands[0]) if one.operands else None
            places = result_places(start) if start is not None else []
            return [(scope, one.operands[0], places[place])] if place < len(places) else []
        for attribute in ("body", "calls", "to_apply"):
            if attribute not in one.attributes or (attribute == "to_apply" and one.opcode != "call"):
                continue
            inside = self._inside(scope, one, attribute)
            if inside is not None and (root := inside.computation.root) is not None:
                places = result_places(one)
                return [(inside, root.name, places.index(place) if place in places else 0)]
        if one.opcode in ("opt-barrier", "optimization-barrier", "while"):
            return [(scope, name, place) for name in one.operands]
        return [(scope, name, 0) for name in one.operands]

    def _arguments(self, scope: Scope, one: Instruction, place: int, is_within_turn: bool) -> list[Step]:
        """Return the values that a parameter has: of a loop, those of the turn before."""
        caller, outer = scope.caller, scope.outer
        if caller is None or outer is None or not one.literal.isdecimal():
            return []
        if caller.opcode == "while":
            if is_within_turn:
                return []
            parts = root_parts(scope.computation)
            root = scope.computation.root
            before: list[Step] = [(scope, root.name, place)] if root is not None and parts else []
            return [*before, *((outer, name, place) for name in caller.operands)]
        number = int(one.literal)
        if caller.opcode == "conditional":
            names = names_in(caller.attributes.get("branch_computations", ""))
            number = names.index(scope.computation.name) + 1 if scope.computation.name in names else 1
        return [(outer, caller.operands[number], place)] if number < len(caller.operands) else []

    def _inside(self, scope: Scope, one: Instruction, attribute: str) -> Scope | None:
        """Return the computation that an instruction runs; None if there is none."""
        computation = self._module.computations.get(called(one, attribute) or "")
        if computation is None:
            return None
        return Scope(computation, one, scope, scope.loops + (one.opcode == "while"))


def is_move(one: Instruction) -> bool:
    """Return whether an instruction only moves or contains a value, and computes nothing itself."""
    return one.opcode in _MOVES or one.opcode.endswith(("-start", "-done"))


def _is_element(computation: Computation, part: Instruction, place: int) -> bool:
    """Return whether a part of a loop's result is the same part of its parameter, unchanged."""
    if part.opcode != "get-tuple-element" or not part.operands:
        return False
    operand = computation.by_name.get(part.operands[0])
    return (
        operand is not None
        and operand.opcode == "parameter"
        and part.element in operand.groups
        and operand.groups.index(part.element) == place
    )
