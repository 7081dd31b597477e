"""The memory of a compiled program, and its largest temporary values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..compat.arrays import traceback_lines
from ..compat.executables import MemoryStatistics
from ..compat.jaxprs import jaxpr_names
from ..hlo.frames import scope_of
from ..hlo.liveness import LiveValue, highest_point
from ..hlo.module import Module
from ..layouts.dtypes import dtype_name
from ..origins.origins import UserLines
from ..reports.origin import Origin
from ..reports.program_memory import ProgramMemory, Temporary
from .collectives import merged

_KEPT = "reduce_precision"
"""Last part of the name of a value that ``jax.checkpoint`` keeps."""


class CheckpointNames:
    """The names by line and dtype, which is all that a compiled program has of them."""

    def __init__(self, jaxpr: Any, lines: UserLines) -> None:
        self._names: dict[tuple[str, int, str], set[str]] = {}
        for name, dtype, traceback in jaxpr_names(jaxpr):
            origin = None if traceback is None else lines.origin(traceback_lines(traceback))
            if origin is not None:
                key = origin.file, origin.line, dtype_name(dtype)
                self._names.setdefault(key, set()).add(name)

    def of(self, value: LiveValue, origin: Origin | None) -> str | None:
        """Return the name of a value; None if it has none, or if several of its line have its dtype."""
        if origin is None or not (value.op_name or "").endswith(_KEPT):
            return None
        found = self._names.get((origin.file, origin.line, value.shape.dtype), set())
        return next(iter(found)) if len(found) == 1 else None


MOST_TEMPORARIES = 20
"""Number of the largest temporary values in a report."""


def memory_of(
    module: Module,
    statistics: MemoryStatistics | None,
    platform: str,
    lines: UserLines,
    names: CheckpointNames | None = None,
) -> ProgramMemory:
    """Return the memory of a program per device.

    The temporary values are computed from the schedule. XLA may need a little more for them than the sum,
    because of alignment and gaps, or less, because it also uses the memory of outputs.

    Args:
        module: The compiled program.
        statistics: XLA's figures; None if the backend has none.
        platform: Platform that it is compiled for.
        lines: The search for the user's line.
        names: The names of ``checkpoint_name``; None if they are not known.
    """
    figures = statistics or MemoryStatistics()
    live = highest_point(module, lines.nearest)
    return ProgramMemory(
        argument_nbytes=figures.argument_nbytes,
        output_nbytes=figures.output_nbytes,
        alias_nbytes=figures.alias_nbytes,
        temporary_nbytes=figures.temporary_nbytes,
        code_nbytes=figures.code_nbytes,
        peak_nbytes=_peak(figures, platform),
        host_argument_nbytes=figures.host_argument_nbytes,
        host_output_nbytes=figures.host_output_nbytes,
        host_alias_nbytes=figures.host_alias_nbytes,
        host_temporary_nbytes=figures.host_temporary_nbytes,
        temporaries=_merged(live, lines, names)[:MOST_TEMPORARIES],
        live_nbytes=sum(value.shape.nbytes for value in live),
    )


def _peak(figures: MemoryStatistics, platform: str) -> int | None:
    """Return the peak, unless it cannot be one."""
    if platform == "cpu" or not figures.peak_nbytes:
        # On CPU, from JAX 0.7 on, it is little more than the arguments, without any temporary value.
        return None
    return figures.peak_nbytes


def _merged(
    values: Iterable[LiveValue], lines: UserLines, names: CheckpointNames | None
) -> tuple[Temporary, ...]:
    """Return equal values of the same line together, those with the most bytes first."""
    rows = merged(
        Temporary(
            shape=value.shape.dims,
            dtype=value.shape.dtype,
            nbytes=value.shape.nbytes,
            origin=(origin := lines.origin(value.frames)),
            checkpoint_name=None if names is None else names.of(value, origin),
            scopes=(scope,) if (scope := scope_of(value.op_name)) else (),
            is_kept=value.is_kept,
        )
        for value in values
    )
    return tuple(sorted(rows, key=lambda row: -row.nbytes * row.count))
