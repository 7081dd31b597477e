"""The memory of a compiled program, and its largest temporary values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..compat.memory_analysis import MemoryStatistics
from ..hlo.module import Module
from ..hlo.temporaries import LiveValue, highest_point
from ..origins.origins import innermost
from ..reports.program import ProgramMemory, Temporary

MOST_TEMPORARIES = 20
"""Number of the largest temporary values in a report."""


def memory_of(
    module: Module,
    statistics: MemoryStatistics | None,
    platform: str,
    is_hidden: Callable[[str], bool],
) -> ProgramMemory:
    """Return the memory of a program per device.

    The temporary values are computed from the schedule. XLA may need a little more for them than the sum,
    because of alignment and gaps, or less, because it also uses the memory of outputs.

    Args:
        module: The compiled program.
        statistics: XLA's figures; None if the backend has none.
        platform: Platform that it is compiled for.
        is_hidden: A function that returns whether to skip the frames of a file.
    """
    figures = statistics or MemoryStatistics()
    live = highest_point(module, is_hidden)
    return ProgramMemory(
        argument_nbytes=figures.argument_nbytes,
        output_nbytes=figures.output_nbytes,
        alias_nbytes=figures.alias_nbytes,
        temporary_nbytes=figures.temporary_nbytes,
        code_nbytes=figures.code_nbytes,
        peak_nbytes=_peak(figures, platform),
        temporaries=_merged(live, is_hidden)[:MOST_TEMPORARIES],
        live_nbytes=sum(value.shape.nbytes for value in live),
    )


def _peak(figures: MemoryStatistics, platform: str) -> int | None:
    """Return the peak, unless it cannot be one."""
    if platform == "cpu" or not figures.peak_nbytes:
        # On CPU, from JAX 0.7 on, it is little more than the arguments, without any temporary value.
        return None
    return figures.peak_nbytes


def _merged(values: Iterable[LiveValue], is_hidden: Callable[[str], bool]) -> tuple[Temporary, ...]:
    """Return equal values of the same line together, those with the most bytes first."""
    counts = Counter(
        Temporary(
            shape=value.shape.dims,
            dtype=value.shape.dtype,
            nbytes=value.shape.nbytes,
            origin=innermost(value.frames, is_hidden),
            is_kept=value.is_kept,
        )
        for value in values
    )
    rows = [replace(row, count=count) for row, count in counts.items()]
    return tuple(sorted(rows, key=lambda row: -row.nbytes * row.count))
