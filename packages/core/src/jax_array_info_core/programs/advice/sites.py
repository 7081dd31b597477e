"""The expressions of the user's source whose values are in a lowered program."""

from __future__ import annotations

import ast
import itertools
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...arrays.origins.origins import Owner, UserLines
from ..propagation.graph import Place, read_place
from ..raised.source import Source, source_of
from .candidates import Axes, Site, SiteValue
from .worker import Use

_LOOP = "stablehlo.while"
_REGIONS = (_LOOP, "stablehlo.case", "stablehlo.if")
"""Operations whose regions have values of arrays; the condition of a loop has none that matter."""
_MADE = ("stablehlo.constant", "stablehlo.iota", "stablehlo.broadcast_in_dim")
_NO_VALUES = ("sdy.sharding_constraint", "stablehlo.return", "func.return", "stablehlo.constant")
_PLUMBING = ("jit(dynamic_index_in_dim)", "jit(dynamic_update_index_in_dim)", "while", "add_any")
"""Operations that JAX adds to an expression: of a scan, and the sum of two cotangents."""
_CALL = "func.call"
_VMAP, _BACKWARD, _RECOMPUTED = "vmap(", "transpose(", "rematted_computation"


class _Operation(NamedTuple):
    """An operation of an expression."""

    number: int
    """Number in the module."""

    word: tuple[str, str, str]
    """Its name, that in JAX, and its type."""

    block: int
    """Number of the block that it is in."""

    function: str
    """Name of the function of the module that it is in."""

    inner: Any
    """The operation."""


@dataclass(slots=True)
class _Found:
    """The operations of an expression, without and with those of its gradient."""

    forward: list[_Operation] = field(default_factory=list)
    backward: list[_Operation] = field(default_factory=list)
    function: str = ""


class Expression(NamedTuple):
    """An expression, and its values in a module."""

    value: SiteValue
    uses: tuple[tuple[Use, ...], ...]
    """The values: its results in each layer and recomputation, and its cotangents."""

    function: str
    """Name of the function around it."""


class Sources:
    """The source texts of files, each read once."""

    def __init__(self) -> None:
        self._found: dict[str, Source | None] = {}

    def of(self, file: str) -> Source | None:
        """Return the source of a file or of a notebook cell; None if it cannot be read."""
        if file not in self._found:
            self._found[file] = source_of(file, {})
        return self._found[file]

    def node(self, site: Site) -> ast.expr | None:
        """Return the expression at a place; None if none is exactly there."""
        source = self.of(site.file)
        wanted = site.line, site.column, site.end_line, site.end_column
        for node in source.on(site.line) if source else ():
            if not (isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)):
                continue
            if (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == wanted:
                return node
        return None


def site_of(place: Place, lines: UserLines) -> tuple[Site, str] | None:
    """Return the innermost expression of the user at the location of an operation, and its function."""
    for frame, span in zip(place.frames, place.spans, strict=True):
        if lines.owner(frame.file) is Owner.USER:
            if span is None:
                return None
            line, column, end_line, end_column = span
            return Site(frame.file, line, column, end_line, end_column), frame.function
    return None


def expressions(module: Any, sources: Sources, present: Mapping[Any, set[Axes]]) -> dict[Site, Expression]:
    """Return the expressions of the user whose values can have a constraint.

    Args:
        module: The lowered module, which is only read.
        sources: The source texts.
        present: The shardings of values after propagation, by expression and type.
    """
    lines = UserLines()
    found: dict[Site, _Found] = {}
    loops = set()
    for one, place in _operations(module):
        key = None if _VMAP in place.name else site_of(place, lines)
        if key is not None and one.word[0] == _LOOP:
            loops.add(key[0])  # its value can be several arrays
        if key is None or place.op in _PLUMBING:
            continue
        own = found.setdefault(key[0], _Found(function=key[1]))
        is_backward = _BACKWARD in place.name and _RECOMPUTED not in place.name
        (own.backward if is_backward else own.forward).append(one)
    result = {}
    for site, own in found.items():
        made = None if site in loops else _expression(site, own, present)
        if made is not None and sources.node(site) is not None:
            result[site] = made
    return result


def _operations(module: Any) -> Iterator[tuple[_Operation, Place]]:
    """Yield the operations whose values can have a constraint."""
    rows: list[tuple[_Operation, Place, bool]] = []
    calls: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    blocks = itertools.count()

    def visit(operation: Any, function: str, *, is_open: bool) -> None:
        for place, region in enumerate(operation.regions):
            can = is_open and not (operation.name == _LOOP and place == 0)
            for block, number in zip(region.blocks, blocks, strict=False):
                for one in block.operations:
                    inner = one.operation
                    name, results = inner.name, [*inner.results]
                    own = _text(inner.attributes["sym_name"]) if name == "func.func" else function
                    if name == _CALL:
                        calls[function].append((_text(inner.attributes["callee"]), can))
                    is_value = len(results) == 1 or (results and name == _CALL)  # then residuals follow
                    where = read_place(str(inner.location))
                    word = (name, where.op, str(results[0].type) if is_value else "")
                    rows.append((_Operation(len(rows), word, number, function, inner), where, can))
                    visit(inner, own, is_open=name == "func.func" or (can and name in _REGIONS))

    visit(module.operation, "", is_open=True)
    closed = _closed(calls)
    for row, where, can in rows:
        if can and row.function not in closed:
            yield row, where


def _text(attribute: Any) -> str:
    return str(attribute).strip('@"')


def _closed(calls: Mapping[str, Sequence[tuple[str, bool]]]) -> set[str]:
    """Return the functions that are called where no constraint can be, such as in a ``shard_map``."""
    closed: set[str] = set()
    before = -1
    while len(closed) != before:
        before = len(closed)
        closed |= {name for one, own in calls.items() for name, can in own if not can or one in closed}
    return closed


def _expression(site: Site, found: _Found, present: Mapping[Any, set[Axes]]) -> Expression | None:
    """Return an expression with its values; None if it has none that is known."""
    called = {_text(one.inner.attributes["callee"]) for one in found.forward if one.word[0] == _CALL}
    forward = [
        one
        for one in found.forward
        if one.word[2] and one.word[0] not in _NO_VALUES and one.function not in called
    ]
    if not forward:
        return None
    made = {one.inner for one in forward}
    last = next((one for one in reversed(forward) if _is_value(one, made)), forward[-1])
    type_ = last.inner.results[0].type
    if not getattr(type_, "has_static_shape", False) or not len(type_.shape):
        return None
    if any(
        one.word[2] != last.word[2] and one.word[0] not in _MADE and _is_value(one, made) for one in forward
    ):
        return None  # it is several arrays, or of several shapes, and one sharding cannot fit
    blocks: dict[int, list[_Operation]] = defaultdict(list)
    for one in forward:
        if one.word == last.word or (one.word[2] == last.word[2] and one.word[0] not in _MADE):
            blocks[one.block].append(one)
    results: list[int] = []
    for own in blocks.values():
        repeats = _is_once([one.word for one in own], last.word)
        ends = [one for one in own if one.word == last.word]
        results += [one.number for one in ends if repeats or _is_value(one, made)]
    if not results:
        return None
    cotangents = _cotangents(found.backward, type_)
    shape = tuple(type_.shape)
    value = SiteValue(
        site=site,
        shape=shape,
        nbytes=math.prod(shape) * _bits(type_.element_type) // 8,
        present=tuple(present.get((site, str(type_)), ())),
    )
    return Expression(value, (*(((one, None),) for one in results), *cotangents), found.function)


def _is_value(one: _Operation, own: Container[Any]) -> bool:
    """Return whether another expression uses the result of an operation, not only the gradient.

    Args:
        one: The operation.
        own: The operations of its expression.
    """
    for use in one.inner.results[0].uses:
        owner = getattr(use.owner, "operation", use.owner)
        place = read_place(str(owner.location))
        if owner not in own and place.op not in _PLUMBING and _BACKWARD not in place.name:
            return True
    return False


def _is_once(words: Sequence[Any], last: Any) -> bool:
    """Return whether the operation that computes the value stands once in each repetition of all operations.

    They repeat if an expression is computed several times.

    >>> _is_once("abab", "b"), _is_once("aabc", "b"), _is_once("bab", "b")
    (True, True, False)
    """
    count = len(words)
    sizes = (size for size in range(1, count + 1) if count % size == 0)
    period = next(size for size in sizes if [*words[:size]] * (count // size) == [*words])
    return [*words[:period]].count(last) == 1


def _cotangents(backward: Iterable[_Operation], type_: Any) -> list[tuple[Use, ...]]:
    """Return the cotangents of an expression, each with the operations of its gradient that use it."""
    own = [one for one in backward if one.word[0] not in _NO_VALUES]
    made = {one.number for one in own}
    numbers = {one.inner: one.number for one in own}
    found: dict[tuple[Any, int], list[Use]] = defaultdict(list)
    for one in own:
        operands = [*enumerate(one.inner.operands)]
        for place, operand in reversed(operands) if one.word[0] == _CALL else operands:  # after residuals
            if operand.type != type_ or (one.word[0] == "stablehlo.dot_general" and place):
                continue
            if numbers.get(getattr(operand.owner, "operation", operand.owner)) not in made:
                found[operand, one.block].append((one.number, place))
            break
    return [tuple(uses) for uses in found.values()]


def _bits(element: Any) -> int:
    """Return the bits of an element type; 32 if they are unknown."""
    width = getattr(element, "width", None)
    return max(int(width), 8) if width else 64 if "complex" in str(element) else 32


def present_shardings(found: Mapping[str, Any]) -> dict[tuple[Site, str], set[Axes]]:
    """Return the shardings of the values of expressions after propagation, by their types.

    Args:
        found: The facts of a module, as ``propagation.helper.ask`` returns them.
    """
    lines = UserLines()
    keys = [site_of(read_place(text), lines) for text in found["places"]]
    shardings = [tuple(tuple(names) for names in axes) for axes in found["shardings"]]
    types = [f"tensor<{'x'.join(map(str, [*(shape or ()), element]))}>" for element, shape in found["types"]]
    result: dict[tuple[Site, str], set[Axes]] = defaultdict(set)
    for _, place, _, results, *_ in found["operations"]:
        key = keys[place]
        for type_, sharding, _ in (found["values"][one] for one in results[:1]):
            if key is not None:
                rank = len(found["types"][type_][1] or ())
                result[key[0], types[type_]].add(((),) * rank if sharding is None else shardings[sharding])
    return result
