"""Operations of a program whose flops are not counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ..quantities import counted
from .origin import Origin

Uncounted = Literal["kernel", "size", "executions"]
"""Reason why flops are not counted.

- ``kernel``: a custom call that may contain dots, such as one written in Pallas, or an attention of cuDNN;
- ``size``: a dot whose size depends on data, such as a ragged dot, or was not understood;
- ``executions``: a dot or a convolution in a loop of unknown length, or in a branch.
"""

_MOST = 3
"""Maximum number of lines of each reason that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncountedFlops:
    """Equal operations of one line whose flops are not counted."""

    reason: Uncounted
    """Reason: ``kernel``, ``size`` or ``executions``."""

    operation: str
    """Name of the operation in XLA, such as ``ragged-dot``; of a custom call its target, such as
    ``tpu_custom_call``."""

    count: int = 1
    """Number of equal operations."""

    origin: Origin | None = None
    """Line of the operation."""


def uncounted_words(rows: Iterable[UncountedFlops]) -> Iterator[str]:
    """Yield the operations of each reason: ``kernel of attend.py:20 attend not counted``."""
    rows = tuple(rows)
    for reason, singular, plural, missing in (
        ("kernel", "kernel", "kernels", "not counted"),
        ("size", "dot of unknown size", "dots of unknown size", "not counted"),
        ("executions", "dot", "dots", "run an unknown number of times"),
    ):
        of_reason = [row for row in rows if row.reason == reason]
        if not of_reason:
            continue
        names = list(dict.fromkeys(str(row.origin or row.operation).rstrip() for row in of_reason))
        of = ", ".join(names[:_MOST])
        if len(names) > _MOST:
            of += f" and {counted(len(names) - _MOST, 'line', 'lines')} more"
        if (count := sum(row.count for row in of_reason)) == 1:
            yield f"{singular} of {of} {missing.replace('run', 'runs', 1)}"
        else:
            yield f"{count} {plural} of {of} {missing}"
