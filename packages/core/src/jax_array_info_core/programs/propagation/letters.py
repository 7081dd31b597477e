"""The factors of an operation's rule that its operands and results shard: those that exclude each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...base.grouping import by_key
from .graph import Axes, Graph, Operation, Part, Rule, Value, remembered


class Letter(NamedTuple):
    """A factor of an operation's rule that an operand or the result shards."""

    position: int
    """Number of the operand; from -1 down, that of a result."""

    factor: int
    """Number of the factor."""

    parts: tuple[Part, ...]
    """Mesh axes, major to minor."""

    names: tuple[str, ...]
    """The mesh axes of the dimension, as they are in the spec."""


@remembered
def letters_of(
    graph: Graph, position: int, axes: Axes, dims: tuple[tuple[int, ...], ...], rule: Rule
) -> tuple[Letter, ...]:
    """Return the factors that an operand or a result shards."""
    letters = []
    for factors, names in zip(dims, axes, strict=False):
        unused = [graph.part(name) for name in names]
        for number, factor in enumerate(factors):
            size: float = rule.sizes[factor]
            parts = []
            # What does not divide a factor cannot shard the next one. The last factor has what is left.
            while unused and (size > 1 or number == len(factors) - 1):
                size = size / unused[0].size if size % unused[0].size == 0 else math.inf
                parts.append(unused.pop(0))
            if parts:
                letters.append(Letter(position, factor, tuple(parts), names))
    return tuple(letters)


def operand_letters(graph: Graph, rule: Rule, operands: Sequence[Axes]) -> list[Letter]:
    """Return the factors that the operands of an operation shard."""
    return [
        letter
        for position, (axes, dims) in enumerate(zip(operands, rule.operands, strict=False))
        for letter in letters_of(graph, position, axes, dims, rule)
    ]


def kept_factors(rule: Rule) -> set[int]:
    """Return the factors that the results have."""
    return {factor for dims in rule.results for dim in dims for factor in dim}


def value_of(operation: Operation, letter: Letter) -> Value:
    """Return the operand or the result that shards a letter."""
    if letter.position < 0:
        return operation.results[-1 - letter.position]
    return operation.operands[letter.position]


@remembered
def excluding(
    graph: Graph, rule: Rule, operands: tuple[Axes, ...], results: tuple[Axes, ...]
) -> list[tuple[str, list[Letter]]]:
    """Return the mesh axes for which operands exclude each other, with the letters that ask for it."""
    letters = operand_letters(graph, rule, operands)
    asking = by_key((letter.parts[0].name, letter) for letter in letters if letter.factor in rule.whole)
    # An axis that the operation moves to another letter, which is no sum over devices.
    kept = kept_factors(rule)
    moved = [
        (letter, other)
        for position, (axes, dims) in enumerate(zip(results, rule.results, strict=False))
        for other in letters_of(graph, -1 - position, axes, dims, rule)
        for letter in letters
        if letter.factor in kept and letter.factor != other.factor
    ]
    for pairs in (itertools.combinations(letters, 2), moved):
        # Of a result, what its operands ask for already is not said again.
        known = {
            name: {letter.factor for letter in group} for name, group in asking.items() if pairs is moved
        }
        for pair in pairs:
            name = _exclusion(*pair)
            if name is not None:
                group = asking.setdefault(name, [])
                new = (letter for letter in pair if letter not in group)
                group += (letter for letter in new if letter.factor not in known.get(name, ()))
    return [*asking.items()]


def _exclusion(letter: Letter, other: Letter) -> str | None:
    """Return the mesh axis for which two operands exclude each other; None if they agree."""
    if letter.factor != other.factor:
        shared = (part for part in letter.parts for its in other.parts if part.overlaps(its))
        return next((part.name for part in shared), None) if letter.position != other.position else None
    for part, its in zip(letter.parts, other.parts, strict=False):
        if part != its:
            pairs = itertools.product(letter.parts, other.parts)
            return (
                None if part.overlaps(its) else next((a.name for a, b in pairs if a.overlaps(b)), part.name)
            )
    return None


def text_of(letter: Letter, name: str, letters: Collection[Letter]) -> str:
    """Return a mesh axis as the spec has it: the axis, or a part of it; else the one that excludes it."""
    parts = (text for text in letter.names if text == name or text.startswith(f"{name}:("))
    others = (text for text in letter.names if any(text not in other.names for other in letters))
    return next(itertools.chain(parts, others), name)


@remembered
def lacking(
    graph: Graph, rule: Rule, operands: tuple[Axes, ...], results: tuple[Axes, ...]
) -> tuple[list[tuple[Letter, Part, str]], set[str]]:
    """Return the mesh axes of operands that results lack, and those that conflict."""
    present = [graph.part(name) for axes in results for names in axes for name in names]
    lost: dict[str, tuple[Letter, Part, str]] = {}
    for letter in operand_letters(graph, rule, operands):
        for part in letter.parts:
            missing = missing_part(part, present, graph.sizes)
            if missing is not None:
                lost.setdefault(missing, (letter, part, missing))
    excluded = {
        text.partition(":")[0]
        for name, letters in excluding(graph, rule, operands, results)
        for text in (name, *(text_of(letter, name, letters) for letter in letters))
    }
    return [*lost.values()], excluded


def missing_part(part: Part, present: Iterable[Part], sizes: Mapping[str, int]) -> str | None:
    """Return the part of a mesh axis that results lack, as a spec has it; None if they have all of it."""
    major, size = part.major, part.size
    for other in present:
        if other.overlaps(part) and other.major <= major:
            kept = other.major * other.size // major
            major, size = major * kept, size // kept if kept <= size else 0
    if size <= 1:
        return None
    return part.name if size == sizes.get(part.name) else f"{part.name}:({major}){size}"


def is_alike(graph: Graph, operation: Operation, rule: Rule, letter: Letter) -> bool:
    """Return whether each operand with a factor shards it in the same way."""
    letters = operand_letters(graph, rule, operation.sharding[0])
    shards = {other.position: other.parts for other in letters if other.factor == letter.factor}
    having = {
        position
        for position, dims in enumerate(rule.operands)
        if any(letter.factor in factors for factors in dims)
    }
    return having == shards.keys() and len({*shards.values()}) == 1
