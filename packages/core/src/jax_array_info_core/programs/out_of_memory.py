"""Reports on programs that do not fit the memory of a device."""

from __future__ import annotations

from collections.abc import Callable

from ..hlo.module import Module
from ..hlo.out_of_memory import read_assignment, read_out_of_memory
from ..origins.origins import innermost
from ..reports.program import LargeBuffer, OutOfMemory
from ..text import printable

_LONGEST = 300


def out_of_memory_of(
    message: str, module: Module | None, assignment: str, is_hidden: Callable[[str], bool]
) -> OutOfMemory | None:
    """Return the compiler's refusal of a program; None if a message is about something else.

    Args:
        message: The whole message of the compiler.
        module: The program that was refused; None if it is not known.
        assignment: XLA's text on its buffers; empty if it is not known.
        is_hidden: A function that returns whether to skip the frames of a file.
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
        message=printable(refusal.message[:_LONGEST]),
        required_nbytes=required,
        available_nbytes=refusal.available_nbytes,
        buffers=tuple(
            LargeBuffer(
                nbytes=buffer.nbytes,
                shape=buffer.shape.dims,
                dtype=buffer.shape.dtype,
                op=buffer.op,
                origin=innermost(buffer.frames, is_hidden),
            )
            for buffer in buffers
        ),
    )
