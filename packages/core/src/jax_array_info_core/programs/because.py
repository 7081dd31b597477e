"""The operations that collectives are needed for, from Shardy's propagation of the same program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..layouts.spec import effective_spec, placement
from ..origins.origins import UserLines
from ..propagation.explanation import Explanation
from ..propagation.graph import Graph
from ..propagation.process import NoAnswerError
from ..propagation.propagation_report import explanation_of, results_of
from ..reports.origin import Origin
from ..reports.program import Collective, ProgramValue
from ..reports.propagation import Because
from .collectives import REDUCTIONS

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
    rows = tuple(replace(one, because=_because(one, causes)) for one in collectives)
    return rows, _differences(graph, found, outputs)


def _because(one: Collective, causes: Iterable[tuple[Because, frozenset[int]]]) -> tuple[Because, ...]:
    """Return what equal collectives are needed for; nothing unless it is one, or one for each.

    A sum fits a reduction, and a conflict any other collective, if it has the mesh axes, and the argument
    that is moved or the line. Those with both fit better, then those of the same pass and size. Of several
    that differ only in their operands, what they have in common is returned.
    """
    kind = "sum" if one.kind in REDUCTIONS else "conflict"
    axes = {name.partition(":")[0] for name in one.axes or ()}
    fitting = [cause for cause in causes if cause[0].kind == kind and axes and axes <= {*cause[0].mesh_axes}]
    of_path = [cause for cause in fitting if one.path is not None and one.path in _paths(cause[0])]
    of_line = [cause for cause in fitting if _is_same_line(cause[0].origin, one.origin)]
    left = [cause for cause in of_path if cause in of_line] or of_path or of_line
    left = [cause for cause in left if cause[0].phase == one.phase] or left
    left = [cause for cause in left if math.prod(one.shape) in cause[1]] or left
    found = dict.fromkeys(because for because, _ in left)
    if len(found) in (1, one.count):
        return (*found,)
    alike = {replace(because, operands=()) for because in found}
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
