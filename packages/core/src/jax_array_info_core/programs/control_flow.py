"""Loops of unknown length and conditionals of a program, and its flops in them."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays.origins.origins import UserLines
from ..facts.reports.control_flow import ControlFlow, Cost, FlopTotals, per_iteration, sums_of
from ..facts.reports.program_values import (
    Uncounted,
    UncountedFlops,
)
from ..xla.hlo.collectives import Movement, movements
from ..xla.hlo.dataflow import Dataflow, Value
from ..xla.hlo.flops import counted_flops
from ..xla.hlo.loops import Enclosure, Executions, Within, executions, loops_of, most_turns
from ..xla.hlo.module import Instruction, Module, called, calls_of


class ControlFlows:
    """The loops and conditionals of a program, with their lines.

    Args:
        dataflow: The connections between the values of the program.
        lines: The search for the user's line.
    """

    def __init__(self, dataflow: Dataflow, lines: UserLines) -> None:
        self._dataflow = dataflow
        self._lines = lines
        self._of = functools.cache(self._flow)

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        """Numbers of the loops and conditionals, in the order of the text, by computation and name."""
        computations = self._dataflow.module.computations.values()
        places = (
            (computation.name, instruction.name)
            for computation in computations
            for instruction in computation.instructions
            if calls_of(instruction)
        )
        return {place: number for number, place in enumerate(places)}

    def around(self, within: Within) -> tuple[ControlFlow, ...]:
        """Return the loops and branches around a computation, outermost first."""
        return tuple(map(self._of, within))

    def _flow(self, enclosure: Enclosure) -> ControlFlow:
        instruction = self._dataflow.module.computations[enclosure.computation].by_name[enclosure.name]
        sites = self._dataflow.sites[enclosure.computation]
        around = itertools.chain([instruction], (site.instruction for site in sites))
        nearest = self._lines.nearest(around)
        is_loop = enclosure.branch is None
        return ControlFlow(
            kind="while_loop" if is_loop else "cond",
            number=self._numbers[enclosure.computation, enclosure.name],
            side=enclosure.branch,
            at_most=most_turns(self._dataflow, enclosure.computation, instruction) if is_loop else None,
            origin=None if nearest is None else self._lines.origin(nearest.frames),
            **(self._waits(enclosure, instruction) if is_loop else {}),
        )

    @cached_property
    def _moved(self) -> dict[tuple[str, str], Movement]:
        """A movement of each collective, by computation and name."""
        moved, _ = movements(self._dataflow)
        return {(one.value.computation, one.instruction.name): one for one in moved if one.sent_nbytes}

    def _waits(self, enclosure: Enclosure, loop: Instruction) -> dict[str, int]:
        """Return the fields of a loop on the devices that wait for each other in each iteration."""
        parts = {called(loop, role) for role in ("body", "condition")}

        def is_inside(computation: str) -> bool:
            while computation not in parts and (sites := self._dataflow.sites[computation]):
                computation = sites[0].computation
            return computation in parts

        condition = self._dataflow.module.computations[called(loop, "condition")]
        needed = self._dataflow.walk(Value(condition.name, condition.root.name))
        keys = {(at.computation, instruction.name) for at, instruction in needed if is_inside(at.computation)}
        moved = [self._moved[key] for key in keys & self._moved.keys()]
        if not any(move.kind == "all-reduce" for move in moved):
            return {}
        runs = self._dataflow.module.once(executions)
        count = sum(
            times
            for computation, _ in self._moved
            for within, times in (runs[computation].runs or {}).items()
            if loops_of(within)[-1:] == (enclosure,)
        )
        return {"waiting_devices": _connected(moved), "executions": count}

    def flops(self, flops: Mapping[Within, int], *, is_complete: bool) -> FlopTotals:
        """Return the totals of operations that are given by the loops and sides around them.

        Args:
            flops: Operations in one iteration of the innermost loop, if the sides are taken.
            is_complete: Whether these are all operations.
        """
        outside, *loops = sums_of(Cost(self.around(within), count) for within, count in flops.items())
        return FlopTotals(
            known=outside.exact,
            bound=outside.most if is_complete else None,
            per_iteration=per_iteration(loops, "flops"),
        )


def _connected(moved: Iterable[Movement]) -> int:
    """Return the most devices that exchange data with each other, directly or through others."""
    groups = [move.groups for move in moved if move.groups is not None]
    labels = np.arange(1 + max((int(np.max(one)) for one in groups), default=0))
    before = None
    while before is None or (before != labels).any():
        before = labels.copy()
        for one in groups:
            labels[one] = labels[one].min(axis=1, keepdims=True)
    return int(np.max(np.bincount(labels)))


def flops_of(module: Module, executions: Mapping[str, Executions], lines: UserLines) -> dict[str, Any]:
    """Return the fields of a report on the flops of a program.

    Args:
        module: The program.
        executions: Number of executions of each computation.
        lines: The search for the user's line.
    """
    flops = counted_flops(module, executions)
    uncounted: list[tuple[Uncounted, Instruction]] = [
        ("kernel" if instruction.opcode == "custom-call" else "size", instruction)
        for instruction in flops.size_unknown
    ]
    uncounted += [("executions", instruction) for instruction in flops.runs_unknown]
    counts = Counter(
        UncountedFlops(
            reason=reason,
            operation=instruction.custom_call_target or instruction.opcode,
            origin=lines.origin(instruction.frames),
        )
        for reason, instruction in uncounted
    )
    flows = ControlFlows(module.once(Dataflow), lines)
    dots = flows.flops(flops.dots, is_complete=not uncounted)
    return {
        "dot_flops": dots.exact,
        "known_dot_flops": dots.known,
        "dot_totals": dots,
        "fft_totals": flows.flops(flops.ffts, is_complete=True),
        "decompositions": tuple(
            replace(flows.flops(counts, is_complete=True), operation=name)
            for name, counts in sorted(flops.decompositions.items())
        ),
        "uncounted_flops": tuple(replace(row, count=count) for row, count in counts.items()),
    }
