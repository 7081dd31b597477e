"""Functions that print what XLA made of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax_array_info_core import ProgramReport, log_report, program_diff, program_report
from jax_array_info_core.delivery import deliver
from jax_array_info_core.reports.rows import check_max_rows

from ..style import ForConsole
from ..tables.log import log_table
from ..tables.program import program_table
from ..tables.program_diff import program_diff_table
from .show import show_rendered, silent_at_exit

if TYPE_CHECKING:
    from ..export.document import Part


@silent_at_exit
def print_program(
    f: Any, /, *args: Any, topology: str | None = None, fresh: bool = False, **kwargs: Any
) -> None:
    """Print what XLA made of a function: what it sends, what is not as asked, and its memory.

    Args:
        f: A function, jitted or not, a Lowered or a Compiled; or a ``ProgramReport``, without other
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: Topology to compile for, such as ``"v5p:2x2x2"``. None for the devices of this process.
        fresh: Whether to compile again, so that XLA prints its warnings for a program compiled before.
        **kwargs: Keyword arguments of the function.

    Raises:
        TopologyError: If the topology is unknown or its compiler is not installed.
        TypeError: If arguments are given with a ``ProgramReport``.
    """
    if isinstance(f, ProgramReport):
        if args or kwargs or topology is not None or fresh:
            raise TypeError("a ProgramReport is printed as it is: remove the other arguments")
        report = f
    else:
        report = program_report(f, *args, topology=topology, fresh=fresh, **kwargs)
    deliver(report, show_program)


def show_program(report: ProgramReport) -> None:
    """Print the report on a program, if this process prints."""
    table = ForConsole(lambda _, options: program_table(report, width=options.max_width))

    def parts() -> list[Part]:
        from ..export.document import parts_of

        return parts_of([report])

    show_rendered(table, parts=parts)


@silent_at_exit
def print_program_diff(before: ProgramReport, after: ProgramReport, *, max_rows: int | None = 100) -> None:
    """Print what differs between two programs: bytes sent, memory, flops, shardings and donations.

    Args:
        before: The report on a program, from ``program_report`` or ``from_json``.
        after: The report to compare it with.
        max_rows: Maximum number of rows of each table. One more row has the number of the others. None shows
            all.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    deliver(
        program_diff(before, after),
        lambda report: show_rendered(
            ForConsole(
                lambda _, options: program_diff_table(report, max_rows=max_rows, width=options.max_width)
            )
        ),
    )


@silent_at_exit
def print_log(source: Any, *, mesh: Any = None, max_rows: int | None = 100) -> None:
    """Print the rematerialization and donation warnings in the log of a finished run, the most bytes first.

    XLA prints "Involuntary full rematerialization" if it has no direct way from one sharding to another: each
    device then holds the whole array for a while. JAX warns of donated buffers that no output can reuse.
    ``×2`` counts equal warnings.

    >>> from jax_array_info import print_log
    >>> line = (
    ...     "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding"
    ...     " {devices=[2,1,4]<=[4,2]T(1,0)} to {devices=[1,8,1]<=[8]} efficiently for HLO operation"
    ...     " %copy.1 = f32[8,16,4]{2,1,0} copy(%sin.2)."
    ... )
    >>> print_log([line, line], mesh={"x": 4, "y": 2})

    Args:
        source: Path of the log, an open file, or an iterable of lines. A log of any size is read in bounded
            memory.
        mesh: Mesh of the run, for specs: a Mesh, an AbstractMesh, or the size of each mesh axis by name. None
            prints shardings as XLA does.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.

    Raises:
        FileFormatError: (a ValueError) If the file is not text.
        OSError: If the file cannot be read.
        SpecError: (a ValueError) If the mesh has an invalid size.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh.
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    deliver(
        log_report(source, mesh=mesh),
        lambda report: show_rendered(
            ForConsole(lambda _, options: log_table(report, max_rows=max_rows, width=options.max_width))
        ),
    )
