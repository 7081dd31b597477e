"""Flops of a compiled program, and the operations that are not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..hlo.flops import counted_flops
from ..hlo.loops import Executions
from ..hlo.module import Instruction, Module
from ..origins.origins import UserLines
from ..reports.flops import Uncounted, UncountedFlops


def flops_of(
    module: Module, executions: Mapping[str, Executions], lines: UserLines
) -> tuple[int, tuple[UncountedFlops, ...]]:
    """Return the flops that are known, and the operations whose flops are not, equal ones merged.

    Args:
        module: The program.
        executions: Number of executions of each computation.
        lines: The search for the user's line.
    """
    flops = counted_flops(module, executions)
    found: list[tuple[Uncounted, Instruction]] = [
        ("kernel" if one.opcode == "custom-call" else "size", one) for one in flops.size_unknown
    ]
    found += [("executions", one) for one in flops.runs_unknown]
    counts = Counter(
        UncountedFlops(
            reason=reason,
            operation=one.attributes.get("custom_call_target", one.opcode).strip('"'),
            origin=lines.origin(one.frames),
        )
        for reason, one in found
    )
    return flops.known, tuple(replace(row, count=count) for row, count in counts.items())
