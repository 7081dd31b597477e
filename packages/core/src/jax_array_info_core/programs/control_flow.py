"""Loops of unknown length and conditionals of a program, and its flops in them."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..arrays.origins.origins import UserLines
from ..facts.reports.control_flow import ControlFlow, Cost, FlopTotals, per_iteration, sums_of
from ..facts.reports.program_values import (
    Uncounted,
    UncountedFlops,
)
from ..xla.hlo.dataflow import Dataflow
from ..xla.hlo.flops import counted_flops
from ..xla.hlo.loops import Enclosure, Executions, Within, most_turns
from ..xla.hlo.module import Instruction, Module, calls_of


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
        )

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
