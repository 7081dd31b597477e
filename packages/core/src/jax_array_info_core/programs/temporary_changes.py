"""Temporary values that differ between two programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..reports.program import ProgramReport
from ..reports.program_changes import TemporaryChange
from ..reports.program_memory import Temporary
from .memory import MOST_TEMPORARIES

_Key = tuple[object, ...]


def temporary_changes(before: ProgramReport, after: ProgramReport) -> tuple[TemporaryChange, ...]:
    """Return the temporary values whose number differs, the largest difference first."""
    if before.memory is None or after.memory is None:
        return ()
    old, new = before.memory.temporaries, after.memory.temporaries
    old_counts, new_counts = _counts(old), _counts(new)
    # A value that only one report has may be below the last row of the other.
    least_before, least_after = _least(old), _least(new)
    changes = []
    for key, value in {_key(one): one for one in (*reversed(new), *reversed(old))}.items():
        counts = old_counts[key], new_counts[key]
        most = value.nbytes * max(counts)
        is_cut = (not counts[0] and most <= least_before) or (not counts[1] and most <= least_after)
        if counts[0] != counts[1] and not is_cut:
            changes.append(TemporaryChange(value=replace(value, count=1), before=counts[0], after=counts[1]))
    return tuple(sorted(changes, key=lambda one: -one.value.nbytes * abs(one.after - one.before)))


def _counts(values: tuple[Temporary, ...]) -> Counter[_Key]:
    counts: Counter[_Key] = Counter()
    for one in values:
        counts[_key(one)] += one.count
    return counts


def _key(value: Temporary) -> _Key:
    """Return what equal values of two programs have in common: lines change with every edit."""
    place = None if value.origin is None else (value.origin.file, value.origin.function)
    return place, value.shape, value.dtype, value.nbytes, value.is_kept, value.checkpoint_name


def _least(values: tuple[Temporary, ...]) -> int:
    """Return the bytes of the last row of a report that may have more; 0 if it is complete."""
    return values[-1].nbytes * values[-1].count if len(values) == MOST_TEMPORARIES else 0
