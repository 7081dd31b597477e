"""The order of candidates: what Shardy alone tells of each, and what the rules say, in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.origins.origins import UserLines
from ...base.errors import UnsupportedValueError
from ...base.grouping import by_key
from ...compat.lowering import require_shardy
from ...compat.programs import argument_locations, module_bytecode
from ...facts.reports.left_out import Parts
from ...facts.reports.program import ProgramReport
from ...facts.reports.program_values import ProgramValue
from ...geometry.layouts.spec import Spec
from ..propagation.axis_origins import Named, Propagated
from ..propagation.graph import Graph, Value
from ..propagation.helper import NoAnswerError, ask_edited, estimates
from ..propagation.propagation_report import propagated
from ..propagation.wire import Estimate, read_graph
from .edits import Candidate, Edit, Pin, Ranked, SiteValue
from .pins import Pins
from .rules import candidates

MOST_ESTIMATED = 100
"""Number of candidates that are estimated, the first of the rules."""
_FEW_NBYTES = 10_000
"""Bytes sent that make no difference."""
_MARGIN = 0.05
Estimates = Callable[[Sequence[Sequence[Edit]]], Sequence[Estimate | None]]
"""Function that returns what Shardy tells of programs with some edits: None where it has no answer."""


_SECONDS = 60.0
"""Time for the estimates of a program."""


def ranked(
    lowered: Any,
    report: ProgramReport,
    sites: Sequence[SiteValue],
    applied: Candidate | None = None,
    *,
    can_place: bool = True,
) -> Ranked:
    """Return the candidates of a program in the order of their tries, on top of one that is applied.

    Without Shardy's propagation, they are those that need the report alone, in the order of the rules.

    Args:
        lowered: The lowered program, without the applied candidate.
        report: The report on it.
        sites: The expressions of the user's source whose values are arrays.
        applied: The candidate that is applied.
        can_place: Whether arguments and outputs can have other shardings.
    """
    before = () if applied is None else applied.edits
    lines, parts = UserLines(), Parts()
    try:
        require_shardy()
        bytecode = module_bytecode(lowered)
        program = propagated(lowered, report.arguments, report.outputs, lines, before)
    except (NoAnswerError, UnsupportedValueError):
        if applied is not None:
            return Ranked((), by_propagation=False)
        program = _as_reported(report, len(argument_locations(lowered)), lines)
        pins = Pins(program, report, (), _no_answer, can_place=can_place)
        return Ranked(tuple(candidates(pins, parts)), by_propagation=False, left_out=parts.left_out)

    def ask(edits: Sequence[Edit]) -> Graph:
        return read_graph(ask_edited(bytecode, merged(before, edits)))

    def estimated(lists: Sequence[Sequence[Edit]]) -> Sequence[Estimate | None]:
        return estimates(bytecode, lists, _SECONDS)

    proposed = candidates(Pins(program, report, sites, ask, can_place=can_place), parts)
    every = [combined(applied, candidate) for candidate in proposed]
    return Ranked(tuple(in_order(every, estimated, before)), by_propagation=True, left_out=parts.left_out)


def _no_answer(edits: Sequence[Edit]) -> Graph:
    raise NoAnswerError("there is no propagation")


def _as_reported(report: ProgramReport, count: int, lines: UserLines) -> Propagated:
    """Return the arguments and outputs of a program, without what is between them.

    Args:
        report: The report on the program.
        count: Number of the arguments of the lowered program. Tokens and hoisted constants come first.
        lines: The search for the user's line.
    """
    kept = [argument for argument in report.arguments if not argument.is_pruned]
    added = count - len(kept)
    values = [*(Value("token", None) for _ in range(added)), *map(_value, kept)]
    for number, value in enumerate(values):
        value.argument = number
    outputs = [_value(output) for output in report.outputs]
    graph = Graph(dict(report.mesh.shape) if report.mesh else {}, [*values, *outputs], count)
    graph.outputs = outputs
    named = [*[Named()] * added, *(Named(argument.path) for argument in kept)]
    return Propagated(graph, named, [Named(output.path) for output in report.outputs], lines)


def _value(leaf: ProgramValue) -> Value:
    """Return an argument or an output as it is in the compiled program."""
    spec = (leaf.got.spec if leaf.got is not None else None) or Spec(())
    shape = tuple(size for size in leaf.shape if isinstance(size, int))
    is_known = len(shape) == len(leaf.shape)
    axes = (*spec.axes, *[()] * (len(shape) - len(spec.axes)))
    return Value(str(leaf.dtype), shape if is_known else None, axes)


def in_order(
    proposed: Sequence[Candidate], estimates: Estimates, applied: Sequence[Edit] = ()
) -> list[Candidate]:
    """Return candidates in the order of their tries: the estimate's first, the rules' first, its second.

    An estimate orders and does not judge. Of candidates with one estimate, the first of the rules has this
    place, and the others are the last.

    Args:
        proposed: The candidates, in the order of the rules.
        estimates: Function that returns the estimates.
        applied: The edits that are in the program before.
    """
    asked = proposed[:MOST_ESTIMATED]
    base, *answers = estimates([applied, *(candidate.edits for candidate in asked)])
    if base is None:
        return [*proposed]
    alike = by_key((answer or number, number) for number, answer in enumerate(answers))
    numbers = [_first([asked[number] for number in group], group) for group in alike.values()]
    by_estimate = sorted(numbers, key=lambda number: _score(answers[number], base))
    mixed = (number for pair in zip(by_estimate, numbers, strict=True) for number in pair)
    others = (number for number in range(len(asked)) if number not in numbers)
    return [
        *(asked[number] for number in dict.fromkeys(mixed)),
        *proposed[MOST_ESTIMATED:],
        *(asked[number] for number in others),
    ]


def _first(group: Sequence[Candidate], numbers: Sequence[int]) -> int:
    """Return which of some candidates with one estimate is tried.

    It has the fewest changes, and is the first in the program of the first such rule.
    """
    fewest = min(len(candidate.pins) for candidate in group)
    own = [
        (candidate, number)
        for candidate, number in zip(group, numbers, strict=True)
        if len(candidate.pins) == fewest
    ]
    return min((one.number, number) for one, number in own if one.rule == own[0][0].rule)[1]


def _score(estimate: Estimate | None, base: Estimate) -> float:
    """Return how good a program seems, compared with another one: less is better."""
    if estimate is None:
        return float("inf")
    sent = (estimate.sent + _FEW_NBYTES) / (base.sent + _FEW_NBYTES)
    flops = estimate.flops / base.flops - 1 if base.flops else 0.0
    return (
        sent + estimate.value_nbytes / max(base.value_nbytes, 1) + (3 * flops if flops > _MARGIN else flops)
    )


def combined(applied: Candidate | None, further: Candidate) -> Candidate:
    """Return one candidate on top of another: of two changes of one place, the later one stays.

    What stands in the source is that before the first one.
    """
    if applied is None:
        return further
    pins = [*applied.pins]
    for pin in further.pins:
        own = pin
        for number, other in enumerate(pins):
            paths = tuple(path for path in own.paths if path in other.paths)
            if paths:
                left = tuple(path for path in other.paths if path not in paths)
                pins[number] = other._replace(paths=left)
                pins.append(own._replace(paths=paths, before=other.before))
                own = own._replace(paths=tuple(path for path in own.paths if path not in paths))
        alike = [other for other in pins if _place(other) == _place(own) != (None, ())]
        if len(alike) == 1:  # several are of values that need several specs
            pins.remove(alike[0])
            own = own._replace(before=alike[0].before)
        pins.append(own)
    pins = [pin for pin in pins if pin.paths or _place(pin) != (None, ())]
    because = "; ".join(dict.fromkeys((applied.because, further.because)))
    return Candidate(
        further.rule,
        because,
        tuple(dict.fromkeys(pins)),
        merged(applied.edits, further.edits),
        further.weight,
        further.number,
    )


def _place(pin: Pin) -> tuple[object, tuple[object, ...]]:
    """Return where a pin stands in the source; nothing of arguments and outputs."""
    return pin.site, pin.frames


def merged(before: Sequence[Edit], after: Sequence[Edit]) -> tuple[Edit, ...]:
    """Return edits on top of others: of two of one sharding, the later one stays."""
    edits = itertools.chain(before, after)
    return tuple({(edit.kind, edit.number, edit.place): edit for edit in edits}.values())
