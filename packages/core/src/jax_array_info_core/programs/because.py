"""The operations that collectives are needed for, from Shardy's propagation of the same program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..layouts.spec import effective_spec, placement
from ..origins.origins import UserLines
from ..propagation.conflicts import Cause, Conflicts
from ..propagation.graph import Graph
from ..propagation.process import NoAnswerError
from ..propagation.propagation_report import explanation_of, results_of
from ..reports.origin import Origin
from ..reports.program import Collective, ProgramValue
from ..reports.propagation import Because
from .collectives import REDUCTIONS

_ONCE = REDUCTIONS | {"all-gather"}
"""An operation needs one of these. Other collectives move data there and back."""
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


def _because(one: Collective, causes: Iterable[Cause], found: Conflicts) -> tuple[Because, ...]:
    """Return what equal collectives are needed for; nothing unless it is one, or one for each.

    An operation fits that has the mesh axes, the pass and the size, and the argument that is moved or the
    line; both fit better. A sum fits a reduction, and the gather of an argument that it sums; a conflict or a
    constraint fits any collective but a reduction. Of several that differ only in their operands, what they
    have in common is returned.
    """
    axes = {name.partition(":")[0] for name in one.axes or ()}
    fitting = [cause for cause in causes if axes and _fits(one, axes, cause, found)]
    of_path = [cause for cause in fitting if one.path is not None and one.path in _paths(cause.because)]
    of_line = [cause for cause in fitting if _is_at(cause, one.origin)]
    best = [cause for cause in of_path if cause in of_line] or of_path or of_line
    left = dict.fromkeys(cause.because for cause in best)
    if len(left) in (1, one.count):
        return (*left,)
    alike = {replace(because, operands=()) for because in left}
    return (*alike,) if len(alike) == 1 else ()


def _fits(one: Collective, axes: Collection[str], cause: Cause, found: Conflicts) -> bool:
    """Return whether the kind, the mesh axes, the pass and the size of a collective are those of a cause."""
    because = cause.because
    is_reduction = one.kind in REDUCTIONS
    if because.kind == "sum":
        is_of_kind = is_reduction or (one.kind == "all-gather" and one.path in _paths(because))
    else:
        is_of_kind = not is_reduction
    if not is_of_kind or not {*axes} <= {*because.mesh_axes}:
        return False
    if one.phase is not None and because.phase not in (None, one.phase):
        return False
    lacking: list[Collection[str]] = [axes, because.mesh_axes]
    if one.kind != "all-gather":
        lacking.append(())
    size, values = math.prod(one.shape), cause.summed if is_reduction else cause.moved
    return any(size == found.elements(value, without) for value in values for without in lacking)


def _paths(cause: Because) -> set[str | None]:
    """Return the arguments that are operands of an operation, or that its operands have the axis from."""
    return {name for one in cause.operands for name in (one.name, one.axis_origin.path)}


def _is_at(cause: Cause, origin: Origin | None) -> bool:
    """Return whether an operation is at the line of a collective."""
    lines = (cause.because.origin, cause.line, *cause.near)
    places = {(line.file, line.line) for line in lines if line is not None}
    return origin is not None and (origin.file, origin.line) in places


def _differences(graph: Graph, found: Conflicts, outputs: Sequence[ProgramValue]) -> tuple[str, ...]:
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
