"""Costs of a compiled program by parameter and named scope."""

from __future__ import annotations

import itertools
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..arrays.origins.origins import UserLines
from ..base.grouping import by_key
from ..facts.reports.layers import CostShare
from ..facts.reports.program_memory import SavedForBackward
from ..facts.reports.program_values import ProgramValue
from ..xla.hlo.source import REMATTED, pass_of, scope_of
from .collectives import Described
from .parameters import Parameters


class _Share(NamedTuple):
    """A figure of a field, and what it belongs to."""

    parameters: tuple[int, ...]
    scope: str
    field: str
    figure: int


def cost_shares(
    parameters: Parameters,
    arguments: Sequence[ProgramValue],
    described: Iterable[Described],
    saved: SavedForBackward | None,
    lines: UserLines,
) -> tuple[CostShare, ...]:
    """Return the costs of a program by parameter and scope, in the order of the arguments.

    They add up to the bytes that are sent, to ``known_dot_flops`` and to the bytes that are saved.

    Args:
        parameters: The parameters of the program.
        arguments: Its arguments.
        described: Its collectives.
        saved: What it saves for the backward pass.
        lines: The search for the user's line.
    """
    shares = itertools.chain(
        _flops(parameters), _sent(parameters, arguments, described), _saved(parameters, saved, lines)
    )
    sums: dict[tuple[tuple[int, ...], str], Counter[str]] = {}
    for share in shares:
        if share.figure:
            sums.setdefault((share.parameters, share.scope), Counter())[share.field] += share.figure
    return tuple(
        CostShare(parameters=tuple(arguments[number].path for number in numbers), scope=scope, **figures)
        for (numbers, scope), figures in sorted(sums.items(), key=lambda item: item[0])
    )


def _flops(parameters: Parameters) -> Iterator[_Share]:
    """Yield the operations of the products."""
    for product in parameters.products:
        name, of = product.instruction.op_name or "", parameters.of_product(product)
        is_gradient = (  # XLA has dropped its name
            not name and of not in {None, *product.reads} and parameters.is_of_derivative(product)
        )
        field = (
            "recomputed_flops"
            if REMATTED in name
            else "backward_flops"
            if is_gradient or pass_of(name) == "backward"
            else "forward_flops"
        )
        yield _Share(() if of is None else (of,), scope_of(name), field, product.flops)


def _sent(
    parameters: Parameters, arguments: Sequence[ProgramValue], described: Iterable[Described]
) -> Iterator[_Share]:
    """Yield the bytes of the collectives, as equal ones send them together."""
    numbers = {arguments[number].path: number for number in parameters.numbers}
    for row, equal in by_key((one.row, one) for one in described).items():
        totals = [row.nbytes_of(count) for count in range(len(equal) + 1)]
        for one, (before, after) in zip(equal, itertools.pairwise(totals), strict=True):
            of, field = numbers.get(row.path or ""), f"{row.phase or 'forward'}_sent_nbytes"
            if of is None and row.shape:  # the sum of a norm or a loss is a scalar
                of = parameters.of_gradient(one.moved.value)
                if of is not None and parameters.is_sum(one.moved, row.phase):
                    field = "reduced_nbytes"
            key = (() if of is None else (of,), one.scope)
            if after is None or before is None:
                yield _Share(*key, "unknown_count", 1)
            else:
                yield _Share(*key, field, after - before)


def _saved(parameters: Parameters, saved: SavedForBackward | None, lines: UserLines) -> Iterator[_Share]:
    """Yield the bytes that are saved, those of each line for all parameters of its products."""
    if saved is None or saved.nbytes is None:
        return
    places: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for product in parameters.products:
        of, name = parameters.of_product(product), product.instruction.op_name
        origin = lines.origin(product.instruction.frames)
        if of is not None and origin is not None and of in product.reads and pass_of(name) != "backward":
            places.setdefault((origin.file, origin.line), []).append((of, scope_of(name)))
    for line in saved.lines:
        at = () if line.origin is None else places.get((line.origin.file, line.origin.line), ())
        scope = posixpath.commonpath([scope for _, scope in at]) if at else ""
        yield _Share(tuple(sorted({number for number, _ in at})), scope, "saved_nbytes", line.nbytes or 0)
