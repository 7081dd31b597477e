"""The assertion that no operation has operands whose shardings exclude each other."""

from __future__ import annotations

from ..errors import CheckError, UnsupportedValueError, require_report
from ..layouts.notation import as_nbytes
from ..quantities import counted, format_bytes
from ..reports.propagation import Conflict, PropagationReport
from ..text import printable


def assert_no_conflict(
    report: PropagationReport, *, mesh_axis: str | None = None, min_nbytes: int | str = 0
) -> None:
    """Raise CheckError if operands of an operation are sharded in ways that exclude each other.

    What is unknown fails the assertion: a program for which Shardy gave no answer, parts that were not
    understood, and conflicts of an unknown number of bytes.

    Args:
        report: A report from ``propagation_report``.
        mesh_axis: Mesh axis. If given, only conflicts over this axis count, also over a part of it, or
            between it and another axis.
        min_nbytes: Bytes per device of the smallest operand from which a conflict counts.

    Raises:
        CheckError: (an AssertionError) If there are any. The message lists each with its bytes and line, and
            the number of those below ``min_nbytes``.
        UnsupportedValueError: (a ValueError) If the mesh of the program has no such axis, or ``min_nbytes``
            is not an integer or a size.

    A gather of weights that are sharded over the axis of the batch, as in FSDP, is a conflict.

    >>> from jax_array_info.reports import PropagationReport
    >>> assert_no_conflict(PropagationReport(name="step", platform="tpu"))
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    require_report(report, PropagationReport)
    names = report.mesh.names if report.mesh is not None else ()
    if mesh_axis is not None and report.mesh is not None and mesh_axis not in names:
        known = ", ".join(map(repr, names))
        raise UnsupportedValueError(f"{mesh_axis!r} is not a mesh axis: the mesh has {known}")
    least = as_nbytes("min_nbytes", min_nbytes)
    over = [one for one in report.conflicts if mesh_axis is None or mesh_axis in one.mesh_axes]
    small = [one for one in over if one.nbytes is not None and one.nbytes < least]
    lines = [
        *([report.answer] if report.reason is not None else []),
        *(f"not understood: {one}" for one in report.unread),
        *(_words(one) for one in over if one not in small),
    ]
    if not lines:
        return
    if small:
        number = counted(sum(one.count for one in small), "conflict", "conflicts")
        size = format_bytes(sum((one.nbytes or 0) * one.count for one in small))
        lines.append(f"not counted, below {least:,} bytes each: {number}, {size}")
    what = "" if mesh_axis is None else f" over mesh axis {mesh_axis!r}"
    problem = f"conflicts{what} in {report.name}:"
    raise CheckError("\n".join(map(printable, [problem, *(f"- {line}" for line in lines)])), report)


def _words(one: Conflict) -> str:
    """Return a conflict in one line."""
    size = "unknown bytes" if one.nbytes is None else format_bytes(one.nbytes * one.count)
    times = "" if one.count == 1 else f" ×{one.count}"
    operands = ", ".join(
        f"{each.name} {each.spec} ({each.letter}: {each.axis_origin})" for each in one.operands
    )
    line = f", {one.origin}" if one.origin else ""
    return f"{one.mesh_axis}: {one.op} {one.rule}{times}: {size}: {operands}{line}"
