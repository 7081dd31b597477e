"""Reports on programs that do not fit the memory of a device."""

from __future__ import annotations

from ..compat.topology_names import GPUS, Topology
from ..hlo.module import Module
from ..hlo.oom_tables import MOST_BUFFERS, read_assignment, read_out_of_memory
from ..origins.origins import UserLines
from ..quantities import format_bytes
from ..reports.program_memory import LargeBuffer, OutOfMemory, ProgramMemory
from ..text import printable

_LONGEST = 300


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
        buffers=tuple(
            LargeBuffer(
                nbytes=buffer.nbytes,
                shape=buffer.shape.dims,
                dtype=buffer.shape.dtype,
                op=buffer.op,
                origin=lines.origin(buffer.frames),
            )
            for buffer in buffers
        ),
    )


def gpu_shortage(topology: Topology, memory: ProgramMemory) -> OutOfMemory | None:
    """Return what a compiled program lacks on a GPU; None if it fits.

    The compiler for GPUs refuses no program.
    """
    needed, available = memory.required_nbytes, topology.memory_nbytes
    if needed is None or needed <= available:
        return None
    return OutOfMemory(
        message=f"the program needs {format_bytes(needed)} per device, and an {GPUS[topology.kind].name} "
        f"has {format_bytes(available)}",
        required_nbytes=needed,
        available_nbytes=available,
        is_program_known=True,
        buffers=tuple(
            LargeBuffer(nbytes=row.nbytes, shape=row.shape, dtype=row.dtype, origin=row.origin)
            for row in memory.temporaries
            for _ in range(row.count)
        )[:MOST_BUFFERS],
    )


def required_nbytes(memory: ProgramMemory) -> int | None:
    """Return the bytes that a program needs at one time; None if they are not known."""
    if memory.peak_nbytes is not None:
        return memory.peak_nbytes
    parts = (memory.argument_nbytes, memory.output_nbytes, memory.temporary_nbytes)
    known = [nbytes for nbytes in parts if nbytes is not None]
    return sum(known) - (memory.alias_nbytes or 0) if known else None
