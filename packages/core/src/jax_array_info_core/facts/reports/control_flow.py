"""Loops of unknown length and branches around operations, and the sums of what the operations cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ...base import quantities
from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes, format_count, grouped
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFlow:
    """A loop whose number of iterations is unknown, or a side of a conditional, around an operation."""

    kind: Literal["while_loop", "cond"]
    """Function of ``jax.lax``: ``while_loop`` also of other loops of unknown length, ``cond`` also of
    ``switch``."""

    number: quantities.Size = 0
    """Number in the text of the program. It tells the loops and conditionals of one line apart."""

    side: quantities.Size | None = None
    """Number of the side of a conditional, which excludes the others; None for a loop."""

    at_most: quantities.Size | None = None
    """Most iterations of a loop that its condition allows each time; None if no part of it bounds them."""

    origin: Origin | None = None
    """Line of the loop or the conditional."""

    waiting_devices: quantities.Size = 0
    """Number of devices that wait for each other in each iteration, because the condition of the loop needs
    a sum over them that the iteration computes; 0 if there is none."""

    executions: quantities.Total = 0
    """Number of collectives that run in one iteration of such a loop. A combined one counts once."""

    @property
    def words(self) -> str:
        """The loop or the side: ``while_loop (solver.py:31)``, ``one side of cond step.py:9``.

        The largest number of iterations, if it is known, follows the line: ``, at most 500 iterations``.
        """
        if self.side is None:
            place = self.origin.place if self.origin else ""
            most = (
                "" if self.at_most is None else f"at most {counted(self.at_most, 'iteration', 'iterations')}"
            )
            about = ", ".join(filter(None, (place, most)))
            return f"{'' if place else 'a '}{self.kind}{f' ({about})' if about else ''}"
        return f"one side of {self.kind} {self.origin.place}" if self.origin else f"one side of a {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerIteration:
    """What one iteration of a loop of unknown length adds, without the loops of unknown length in it."""

    origin: Origin | None = None
    """Line of the loop."""

    at_most: quantities.Size | None = None
    """Most iterations that its condition allows each time; None if no part of it bounds them."""

    outer: tuple[ControlFlow, ...] = ()
    """Loops of unknown length around the loop, outermost first."""

    count: quantities.Count = 1
    """Number of equal loops of this line, in the same loops."""

    is_bound: bool = False
    """Whether an iteration may add less: it has a conditional, whose larger side is counted, or bytes that
    depend on data."""

    operation_count: quantities.Count = 1
    """Number of operations in each loop."""

    waiting_devices: quantities.Size = 0
    """Number of devices that wait for each other in each iteration, as of ``ControlFlow``."""

    executions: quantities.Total = 0
    """Number of collectives that run in one iteration of a loop in which devices wait."""

    nbytes: quantities.Total | None = None
    """Bytes that a device sends in one iteration; None of flops."""

    flops: quantities.Total | None = None
    """Floating-point operations of one iteration on one device; None of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopTotals:
    """Floating-point operations of one kind in one call of a program, on one device."""

    known: quantities.Total = 0
    """Operations outside of loops of unknown length and conditionals, without those that are not counted."""

    bound: quantities.Total | None = 0
    """Most operations outside of loops of unknown length, with the larger side of each conditional. None if
    some are not counted."""

    per_iteration: tuple[PerIteration, ...] = ()
    """Operations in one iteration of each loop of unknown length. A loop in another one follows it."""

    operation: str = ""
    """Function of ``jax.lax.linalg`` that the operations are of, such as ``cholesky``; empty for others."""

    @property
    def exact(self) -> int | None:
        """Operations of each call; None if they depend on data, or if some are not counted."""
        return self.known if self.known == self.bound and not self.per_iteration else None

    @property
    def counted(self) -> int:
        """Most operations of a call that are known, each loop of unknown length once."""
        return max(self.known, self.bound or 0) + sum(
            (loop.flops or 0) * loop.count for loop in self.per_iteration
        )

    @property
    def words(self) -> str:
        """The operations: ``4,096 per device and call + 2,048 per iteration of while_loop (a.py:31)``."""
        loops = [*per_iteration_words(self.per_iteration)]
        if self.bound is None:
            outside = f"at least {format_count(self.known)}" if self.known else "" if loops else "unknown"
        elif self.bound or not loops:
            bound = "" if self.bound == self.known else "at most "
            outside = f"{bound}{grouped(self.bound)} per device and call"
        else:
            outside = ""
        return " + ".join(filter(None, (outside, *loops)))


class Cost(NamedTuple):
    """What an operation costs in one iteration of the loops around it, on the sides around it."""

    within: Sequence[ControlFlow]
    """Loops of unknown length and sides, outermost first."""

    amount: int
    """Bytes or operations."""

    is_bound: bool = False
    """Whether it may be less."""

    operations: int = 1
    """Number of equal operations, whose cost this is."""


class Sum(NamedTuple):
    """Costs outside of loops of unknown length, or in one iteration of one of them."""

    loops: tuple[ControlFlow, ...]
    """The loop, after those around it; empty outside of all."""

    exact: int
    """Sum of what is certain."""

    most: int
    """Largest sum that is possible: with the larger side of each conditional."""

    is_bound: bool
    """Whether less is possible."""

    operations: int
    """Number of operations."""


def sums_of(costs: Iterable[Cost]) -> list[Sum]:
    """Return the sum of the costs outside of all loops of unknown length, then that of each loop.

    A loop that is in another one follows it.
    """
    by_loop: dict[tuple[tuple[int, int], ...], tuple[tuple[ControlFlow, ...], list[Cost]]] = {(): ((), [])}
    for cost in costs:
        last = max((place for place, flow in enumerate(cost.within) if flow.side is None), default=-1)
        around = cost.within[: last + 1]
        key = tuple((flow.number, flow.side or 0) for flow in around)
        _, inside = by_loop.setdefault(key, (tuple(flow for flow in around if flow.side is None), []))
        inside.append(cost._replace(within=cost.within[last + 1 :]))
    return [
        Sum(
            loops,
            sum(inner.amount for inner in inside if not (inner.within or inner.is_bound)),
            _most(inside),
            any(inner.within or inner.is_bound for inner in inside),
            sum(inner.operations for inner in inside),
        )
        for _, (loops, inside) in sorted(by_loop.items())
    ]


def _most(costs: Sequence[Cost]) -> int:
    """Return the largest sum of costs. Those of one side of a conditional exclude those of another."""
    flows = by_key((cost.within[0].number, cost) for cost in costs if cost.within)
    sides = (
        by_key((cost.within[0].side, cost._replace(within=cost.within[1:])) for cost in of_flow)
        for of_flow in flows.values()
    )
    outside = sum(cost.amount for cost in costs if not cost.within)
    return outside + sum(max(map(_most, of_side.values())) for of_side in sides)


def per_iteration(loops: Iterable[Sum], unit: Literal["nbytes", "flops"]) -> tuple[PerIteration, ...]:
    """Return the sums of loops of unknown length as figures, equal ones of a line as one."""
    figures = Counter(
        PerIteration(
            origin=row.loops[-1].origin,
            at_most=row.loops[-1].at_most,
            outer=row.loops[:-1],
            is_bound=row.is_bound,
            operation_count=row.operations,
            waiting_devices=row.loops[-1].waiting_devices,
            executions=row.loops[-1].executions,
            nbytes=row.most if unit == "nbytes" else None,
            flops=row.most if unit == "flops" else None,
        )
        for row in loops
    )
    return tuple(replace(row, count=count) for row, count in figures.items())


def waiting_words(figures: Iterable[PerIteration], device_count: int) -> Iterator[str]:
    """Yield the loops in which devices wait for each other, with the number of collectives.

    >>> [*waiting_words([PerIteration(nbytes=2, waiting_devices=8, executions=3)], 8)]
    ['a while_loop: all devices wait for each other in each iteration: 3 collectives per iteration']
    """
    for figure in figures:
        if figure.waiting_devices:
            loop = ControlFlow(kind="while_loop", origin=figure.origin).words
            who = (
                "all devices"
                if figure.waiting_devices == device_count
                else f"{figure.waiting_devices} devices"
            )
            count = counted(figure.executions, "collective", "collectives")
            most = "at most " if figure.is_bound else ""
            yield f"{loop}: {who} wait for each other in each iteration: {most}{count} per iteration"


_MOST_LOOPS = 4
"""Maximum number of loops that are named."""


def per_iteration_words(figures: Sequence[PerIteration], *, has_loops: bool = True) -> Iterator[str]:
    """Yield the figure of each loop, with that of a loop inside of it.

    Args:
        figures: The figures, as from ``sums_of``.
        has_loops: Whether to name the loops. If not, several of them have no figures.

    >>> [*per_iteration_words([PerIteration(nbytes=14_336)])]
    ['14.0 KiB per iteration of a while_loop']
    """
    if len(figures) > 1 and not has_loops:
        yield f"more per iteration of {len(figures)} loops"
        return
    words: list[str] = []
    before: tuple[Origin | None, ...] | None = None
    for figure in figures[:_MOST_LOOPS]:
        outer = tuple(loop.origin for loop in figure.outer)
        amount = grouped(figure.flops or 0) if figure.nbytes is None else format_bytes(figure.nbytes)
        text = f"{'at most ' if figure.is_bound else ''}{amount} per iteration"
        if has_loops:
            loop = ControlFlow(kind="while_loop", at_most=figure.at_most, origin=figure.origin).words
            text += (
                f" of {loop}"
                if figure.count == 1
                else f" of each of {figure.count} {loop.removeprefix('a ')}"
            )
        if outer and before == outer:
            words[-1] += f" and {text} in it"
        else:
            words.append(text + (f" in {figure.outer[-1].words}" if outer else ""))
        before = (*outer, figure.origin)
    yield from words
    if len(figures) > _MOST_LOOPS:
        yield f"? in {len(figures) - _MOST_LOOPS} more loops"
