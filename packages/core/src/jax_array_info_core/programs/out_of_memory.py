"""Programs that do not fit the memory of a device, and allocations that failed while they ran."""

from __future__ import annotations

from collections.abc import Iterable

from ..hlo.module import Module
from ..hlo.oom_logs import ListedBuffer, Refusal, read_assignment, read_out_of_memory
from ..origins.origins import UserLines
from ..reports.program_memory import LargeBuffer, OutOfMemory
from ..text import printable

_LONGEST = 300
_ROUNDED = 256
"""Unit to which the allocator for GPUs rounds bytes up."""


def out_of_memory_of(
    message: str, module: Module | None, assignment: str, lines: UserLines
) -> OutOfMemory | None:
    """Return the compiler's refusal of a program; None if a message is about something else.

    Args:
        message: The whole message of the compiler.
        module: The program that was refused; None if it is not known.
        assignment: XLA's text on its buffers; empty if it is not known.
        lines: The search for the user's line.
    """
    refusal = read_out_of_memory(message, module)
    if refusal is None:
        return None
    required, buffers = refusal.required_nbytes, refusal.buffers
    if module is not None and assignment:
        # The message of some versions has the temporary values only, or a single buffer.
        assigned = read_assignment(assignment, module)
        required = assigned.nbytes or required
        buffers = assigned.buffers or buffers
    return OutOfMemory(
        is_program_known=module is not None,
        message=printable(refusal.message[:_LONGEST]),
        required_nbytes=required,
        available_nbytes=refusal.available_nbytes,
        buffers=_listed(buffers, lines),
    )


def _listed(buffers: Iterable[ListedBuffer], lines: UserLines) -> tuple[LargeBuffer, ...]:
    """Return the rows of a table with the user's lines."""
    return tuple(
        LargeBuffer(
            nbytes=buffer.nbytes,
            shape=buffer.shape.dims,
            dtype=buffer.shape.dtype,
            op=buffer.op,
            origin=lines.origin(buffer.frames),
        )
        for buffer in buffers
    )


def logged_errors(counts: dict[Refusal, int], lines: UserLines) -> tuple[OutOfMemory, ...]:
    """Return the errors in a log, in its order.

    A warning of the allocator is left out where its error follows, which then has the warning's free bytes.

    Args:
        counts: Number of equal errors.
        lines: The search for the user's line.
    """
    free = {found.requested_nbytes: found.free_nbytes for found in counts if found.is_warning}
    failed = {_rounded(found) for found in counts if not found.is_warning}
    return tuple(
        OutOfMemory(
            message=printable(found.message[:_LONGEST]),
            required_nbytes=found.required_nbytes,
            available_nbytes=found.available_nbytes,
            requested_nbytes=found.requested_nbytes,
            free_nbytes=free.get(_rounded(found)) if found.free_nbytes is None else found.free_nbytes,
            buffers=_listed(found.buffers, lines),
            count=count,
        )
        for found, count in counts.items()
        if not (found.is_warning and _rounded(found) in failed)
    )


def _rounded(found: Refusal) -> int | None:
    """Return the bytes that the allocator for GPUs was asked for."""
    return None if found.requested_nbytes is None else -(-found.requested_nbytes // _ROUNDED) * _ROUNDED
