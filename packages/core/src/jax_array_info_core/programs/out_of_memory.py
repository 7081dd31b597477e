"""Programs that do not fit the memory of a device, and allocations that failed while they ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..hlo.assignment import read_assignment
from ..hlo.module import Module
from ..hlo.oom_logs import ListedBuffer, Refusal, read_out_of_memory
from ..origins.origins import UserLines
from ..reports.program_memory import LargeBuffer, OutOfMemory
from ..text import printable

_LONGEST = 300
_ROUNDED = 256
"""Unit to which the allocator for GPUs rounds bytes up."""


def out_of_memory_of(
    message: str, module: Module | None, assignment: Any, lines: UserLines
) -> OutOfMemory | None:
    """Return the compiler's refusal of a program; None if a message is about something else.

    Args:
        message: The whole message of the compiler.
        module: The program that was refused; None if it is not known.
        assignment: XLA's ``BufferAssignmentProto`` of it; None if it is not known.
        lines: The search for the user's line.
    """
    refusal = read_out_of_memory(message)
    if refusal is None:
        return None
    required, buffers = refusal.required_nbytes, refusal.buffers
    if module is not None and assignment is not None:
        # The message of some versions has the temporary values only, or a single buffer.
        assigned = read_assignment(assignment, module, lines.nearest)
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

    What precedes an error in the log is left out where the error follows. The error then has the free bytes
    of the allocator's warning, and the buffers of libtpu's report.

    Args:
        counts: Number of equal errors.
        lines: The search for the user's line.
    """
    firsts = [found for found in counts if found.is_warning]
    errors = [found for found in counts if not found.is_warning]
    pairs = [(first, error) for first in firsts for error in errors if _precedes(first, error)]
    left_out, before = {first for first, _ in pairs}, {error: first for first, error in pairs}
    rows = ((before.get(found, found), found, count) for found, count in counts.items())
    return tuple(
        OutOfMemory(
            message=printable(found.message[:_LONGEST]),
            required_nbytes=found.required_nbytes,
            available_nbytes=found.available_nbytes,
            requested_nbytes=found.requested_nbytes,
            free_nbytes=first.free_nbytes if found.free_nbytes is None else found.free_nbytes,
            buffers=_listed(found.buffers or first.buffers, lines),
            count=count,
        )
        for first, found, count in rows
        if found not in left_out
    )


def _precedes(first: Refusal, error: Refusal) -> bool:
    """Return whether the line of a log is that before an error: of the same allocation, or program."""
    if first.requested_nbytes is not None:
        return _rounded(first) == _rounded(error)
    sizes = [(one.requested_nbytes, one.required_nbytes, one.available_nbytes) for one in (first, error)]
    return sizes[0] == sizes[1] and error.module in ("", first.module)


def _rounded(found: Refusal) -> int | None:
    """Return the bytes that the allocator for GPUs was asked for."""
    return None if found.requested_nbytes is None else -(-found.requested_nbytes // _ROUNDED) * _ROUNDED
