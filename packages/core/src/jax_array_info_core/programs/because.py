"""The operations that collectives are needed for, from Shardy's propagation of the same program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..layouts.spec import effective_spec, placement
from ..origins.origins import UserLines
from ..propagation.explanation import Explanation
from ..propagation.graph import Graph, Value
from ..propagation.process import NoAnswerError
from ..propagation.propagation_report import explanation_of, results_of
from ..reports.origin import Origin
from ..reports.program import Collective, ProgramValue
from ..reports.propagation import Because
from .collectives import REDUCTIONS

_ONCE = REDUCTIONS | {"all-gather"}
"""Collectives of which an operation needs one. Others move data there and back."""
_MOST = 3
"""Maximum number of outputs that a caveat names."""


def explained(
    collectives: Sequence[Collective],
    arguments: Sequence[ProgramValue],
    outputs: Sequence[ProgramValue],
    lowered: Any,
    lines: UserLines,
) -> tuple[tuple[Collective, ...], tuple[str, ...]]:
    """Return collectives with the operation that each is needed for, and caveats.

    Args:
        collectives: The collectives of a compiled program.
        arguments: Its arguments.
        outputs: Its outputs.
        lowered: The ``jax.stages.Lowered`` that it was compiled from.
        lines: The search for the user's line.
    """
    try:
        graph, found = explanation_of(lowered, arguments, outputs, lines)
    except NoAnswerError as error:
        return tuple(collectives), (f"Why collectives are needed is unknown: {error}.",)
    causes = [*found.causes()]
    fitting = [_because(one, causes, found) for one in collectives]
    # One gather or sum over its axes is for an operation: of two that fit, one would be wrong.
    claims = Counter(
        (one.kind, one.axes, because)
        for one, found_for in zip(collectives, fitting, strict=True)
        for because in found_for
        if because.operands and one.kind in _ONCE
    )
    rows = (
        replace(one, because=because if all(claims[one.kind, one.axes, each] < 2 for each in because) else ())
        for one, because in zip(collectives, fitting, strict=True)
    )
    return tuple(rows), _differences(graph, found, outputs)


def _because(
    one: Collective, causes: Iterable[tuple[Because, Sequence[Value]]], found: Explanation
) -> tuple[Because, ...]:
    """Return what equal collectives are needed for; nothing unless it is one, or one for each.

    A sum fits a reduction, and a conflict any other collective, if it has the mesh axes, the pass and the
    size, and the argument that is moved or the line; both fit better. Of several that differ only in their
    operands, what they have in common is returned.
    """
    kind = "sum" if one.kind in REDUCTIONS else "conflict"
    axes = {name.partition(":")[0] for name in one.axes or ()}
    size = math.prod(one.shape)
    sent_without: list[Collection[str]] = [axes] if one.kind == "all-gather" else [(), axes]
    fitting = [
        because
        for because, values in causes
        if because.kind == kind
        and axes
        and axes <= {*because.mesh_axes}
        and (one.phase is None or because.phase in (None, one.phase))
        and any(size == found.elements(value, without) for value in values for without in sent_without)
    ]
    of_path = [because for because in fitting if one.path is not None and one.path in _paths(because)]
    of_line = [because for because in fitting if _is_same_line(because.origin, one.origin)]
    left = dict.fromkeys([because for because in of_path if because in of_line] or of_path or of_line)
    if len(left) in (1, one.count):
        return (*left,)
    alike = {replace(because, operands=()) for because in left}
    return (*alike,) if len(alike) == 1 else ()


def _paths(cause: Because) -> set[str | None]:
    """Return the arguments that are operands of an operation, or that its operands have the axis from."""
    return {name for one in cause.operands for name in (one.name, one.axis_origin.path)}


def _is_same_line(one: Origin | None, other: Origin | None) -> bool:
    return one is not None and other is not None and (one.file, one.line) == (other.file, other.line)


def _differences(graph: Graph, found: Explanation, outputs: Sequence[ProgramValue]) -> tuple[str, ...]:
    """Return a caveat on the outputs that Shardy alone would shard in another way."""
    texts = []
    for output, value in zip(outputs, results_of(graph, len(outputs)), strict=True):
        if value is None or output.got is None or output.got.spec is None:
            continue
        spec, ndim = found.spec(value), len(output.shape)
        if placement(spec, graph.sizes, ndim) != placement(output.got.spec, graph.sizes, ndim):
            shown = [effective_spec(one, graph.sizes) for one in (spec, output.got.spec)]
            texts.append(f"{output.path} {shown[0]} (compiled: {shown[1]})")
    if not texts:
        return ()
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return (
        "Propagation and the compiled program disagree, so that reasons of collectives may be wrong:"
        f" {', '.join(texts[:_MOST])}{more}.",
    )
