"""Memory of a program per device: its parts, its largest temporaries, and rematerializations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType

from jax_array_info.tables.folds import split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.layouts.spec import Spec
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import (
    LargeBuffer,
    OutOfMemory,
    ProgramMemory,
    ProgramReport,
    Rematerialization,
    Temporary,
)

from .. import style
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_words import UNKNOWN, counted_path, kept_words, scope_words, spec_words
from .words import origin_words


def write_rematerialized(
    page: Page, found: Sequence[Rematerialization], mesh: MeshAxes | None, max_rows: int | None
) -> None:
    """Add an entry for each value: bytes of the whole, type on a device, specs, line and operation."""
    shown, rest = split_rows(found, max_rows)
    sizes = ["?" if one.nbytes is None else format_bytes(one.nbytes) for one in shown]
    widest = max(map(len, sizes), default=0)
    for size, one in zip(sizes, shown, strict=True):
        page.write_entry(
            size.rjust(widest),
            "",
            # Logs of very old versions do not name the operation.
            counted_path(type_text(one.dtype, one.shape) if one.dtype else "?", one.count, page.marks),
            f"from {_words(one.before, one.before_text, mesh)} to {_words(one.after, one.after_text, mesh)}",
            origin_words(one.origin),
            one.op,
        )
    if rest:
        page.write_entry("", "", f"and {counted(len(rest), 'more value', 'more values')}")


def _words(spec: Spec | None, text: str, mesh: MeshAxes | None) -> str:
    return text if spec is None else spec_words(spec, mesh)


_MOST = 4
"""Maximum number of entries of each list in the summary."""
_GROUPINGS: Sequence[Grouping] = (
    (("bytes",), ("array",), ("line",), ("scope",), ("op",), ("kept",)),
    (("bytes",), ("array",), ("line", "scope"), ("op",), ("kept",)),
    (("bytes",), ("array", "line", "scope", "op", "kept")),
)


def write_memory(page: Page, report: ProgramReport) -> None:
    """Add the memory per device, the largest temporaries, or the compiler's refusal."""
    if report.out_of_memory is not None:
        _write_out_of_memory(page, report.out_of_memory)
    if report.memory is not None:
        if report.out_of_memory is None:
            _write_fit(page, report.memory)
        _write_parts(page, report.memory)
        _write_temporaries(page, report.memory)
    elif report.out_of_memory is None:
        page.write(f"memory per device: {UNKNOWN}")


def _write_fit(page: Page, memory: ProgramMemory) -> None:
    """Add the bytes that the program needs, and those that a device of the topology has."""
    if memory.required_nbytes is None or memory.available_nbytes is None:
        return
    required, available = format_bytes(memory.required_nbytes), format_bytes(memory.available_nbytes)
    unit = available.rpartition(" ")[2]
    page.write(f"fits: {required.removesuffix(f' {unit}')} of {available} per device")


def _write_parts(page: Page, memory: ProgramMemory) -> None:
    parts = (
        (memory.argument_nbytes, "arguments"),
        (memory.output_nbytes, "outputs"),
        (memory.alias_nbytes, "aliased"),
        (memory.temporary_nbytes, "temporaries"),
        (memory.code_nbytes, "code"),
        (memory.peak_nbytes, "peak"),
    )
    words = ", ".join(
        f"{name} {UNKNOWN if nbytes is None else format_bytes(nbytes)}" for nbytes, name in parts
    )
    page.write(f"memory per device: {words}")
    on_host = (
        (memory.host_argument_nbytes, "arguments"),
        (memory.host_output_nbytes, "outputs"),
        (memory.host_alias_nbytes, "aliased"),
        (memory.host_temporary_nbytes, "temporaries"),
    )
    known = [f"{name} {format_bytes(nbytes)}" for nbytes, name in on_host if nbytes]
    if known:
        total = f", {format_bytes(memory.host_nbytes)} in total" if len(known) > 1 else ""
        page.write(f"host memory per device: {', '.join(known)}{total}")


def _write_temporaries(page: Page, memory: ProgramMemory) -> None:
    shown, rest = split_rows(memory.temporaries, _MOST)
    if not shown:
        return
    page.write(f"live at the peak: {format_bytes(memory.live_nbytes)}, estimated from the schedule")
    sizes = [format_bytes(one.nbytes * one.count) for one in shown]
    widest = max(map(len, sizes))
    for size, one in zip(sizes, shown, strict=True):
        page.write_entry(size.rjust(widest), "", *_facts(one, page.marks))
    if rest:
        page.write_entry("", "", f"and {_more(rest)}")


def _facts(temporary: Temporary, marks: style.Marks) -> tuple[str, ...]:
    return (
        counted_path(type_text(temporary.dtype, temporary.shape), temporary.count, marks),
        origin_words(temporary.origin, "line unknown"),
        f"in {scope_words(temporary.scopes)}" if temporary.scopes else "",
        kept_words(temporary),
    )


def _more(rest: Sequence[Temporary]) -> str:
    """Return the number and the bytes of further temporaries."""
    nbytes = format_bytes(sum(one.nbytes * one.count for one in rest))
    return f"{sum(one.count for one in rest)} more, {nbytes}"


def _write_out_of_memory(page: Page, refusal: OutOfMemory) -> None:
    required, available = (
        UNKNOWN if nbytes is None else format_bytes(nbytes)
        for nbytes in (refusal.required_nbytes, refusal.available_nbytes)
    )
    words = f"does not fit: needs {required} of {available} per device"
    if refusal.requested_nbytes is not None:
        words = f"allocation failed: {format_bytes(refusal.requested_nbytes)} requested"
        words += "" if refusal.free_nbytes is None else f", {format_bytes(refusal.free_nbytes)} free"
        words += "" if refusal.required_nbytes is None else f", the program needs {required}"
        words += " per device"
    page.write(counted_path(words, refusal.count, page.marks), look=f"bold {style.WARNING}")
    page.write(refusal.message, indent=2)


_MOST_KINDS = 6
"""Maximum number of different buffers of an error in a log."""


def write_errors(page: Page, errors: Sequence[OutOfMemory], max_rows: int | None) -> None:
    """Add out-of-memory errors of a log: bytes, message, largest buffers and a remedy."""
    shown, rest = split_rows(errors, max_rows)
    for error in shown:
        _write_out_of_memory(page, error)
        _write_buffers(page, error.buffers, None if max_rows is None else min(max_rows, _MOST_KINDS))
        page.write(_remedy(error), indent=2)
    if rest:
        page.write(f"and {counted(len(rest), 'more out-of-memory error', 'more out-of-memory errors')}")


def _write_buffers(page: Page, buffers: Sequence[LargeBuffer], most: int | None) -> None:
    """Add an entry for each kind of buffer: bytes of one, type, line and operation."""
    shown, rest = split_rows(list(Counter(buffers).items()), most)
    if not buffers:
        return
    page.write("largest buffers:", indent=2)
    rows = [(_buffer_row(buffer), count) for buffer, count in shown]
    widest = max((len(row.nbytes) for row, _ in rows), default=0)
    for row, count in rows:
        array = counted_path(row.array, count, page.marks)
        page.write_entry(row.nbytes.rjust(widest), "", array, row.line, row.op, indent=4)
    if rest:
        nbytes = format_bytes(sum(buffer.nbytes * count for buffer, count in rest))
        page.write_entry("", "", f"and {sum(count for _, count in rest)} more, {nbytes}", indent=4)


def _remedy(error: OutOfMemory) -> str:
    """Return what to change first, or how to find it."""
    if error.buffers:
        row = _buffer_row(error.buffers[0])
        place = f" at {row.line}" if row.line else f" of {row.op}" if row.op else ""
        return f"Shard or rematerialize {row.array}{place} first."
    if error.requested_nbytes is None:
        return "print_program(function, *arguments) shows what the program allocates."
    return "Free or shard arrays: jai-cli run prints those that are live when an allocation fails."


def write_rematerializations(page: Page, report: ProgramReport) -> None:
    """Add the values that XLA replicates and shards again, or why they are unknown."""
    found, known = report.rematerializations, report.rematerializations_known
    if found:
        words = "rematerialized in full, that is replicated and sharded again:"
        page.write(words, look=f"bold {style.WARNING}")
    elif known == "known" and report.out_of_memory is None:
        page.write("rematerialized: none")
    write_rematerialized(page, found, report.mesh, _MOST)
    if known == "compiled before":
        page.write("rematerialized: unknown, XLA prints no warnings for a program that was compiled before")
    elif known == "not captured":
        page.write(
            "rematerialized: unknown, XLA's warnings could not be read: standard error is closed, or"
            " TF_CPP_MIN_LOG_LEVEL hides them"
        )


class _Row(NamedTuple):
    """A temporary or a large buffer."""

    nbytes: str
    array: str
    line: str
    scope: str = ""
    op: str = ""
    kept: str = ""


def memory_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of temporaries, or of the compiler's largest buffers; None if the summary has all."""
    marks = style.marks(encoding)
    last = None
    if report.out_of_memory is not None and report.out_of_memory.buffers:
        title = "largest buffers"
        buffers, more = split_rows(report.out_of_memory.buffers, max_rows)
        rows = list(map(_buffer_row, buffers))
        if more:
            left = format_bytes(sum(one.nbytes for one in more))
            last = {"array": f"{len(more)} more", "bytes": left}
    elif report.memory is not None and len(report.memory.temporaries) > _MOST:
        title = "temporaries at the peak"
        shown, rest = split_rows(report.memory.temporaries, max_rows)
        rows = [_temporary_row(one, marks) for one in shown]
        if rest:
            left = format_bytes(sum(one.nbytes * one.count for one in rest))
            last = {"array": f"{sum(one.count for one in rest)} more", "bytes": left}
    else:
        return None
    if not rows:
        return None
    columns = [
        StackedColumn("bytes", [row.nbytes for row in rows], is_number=True),
        StackedColumn("array", [row.array for row in rows]),
        StackedColumn("line", [row.line for row in rows]),
        StackedColumn("scope", [row.scope for row in rows], "in ", is_path=True),
        StackedColumn("op", [row.op for row in rows]),
        StackedColumn("kept", [row.kept for row in rows], "kept "),
    ]
    return stacked_table(title, columns, _GROUPINGS, width=width, encoding=encoding, rest=last)


def _buffer_row(buffer: LargeBuffer) -> _Row:
    return _Row(
        format_bytes(buffer.nbytes),
        type_text(buffer.dtype, buffer.shape),
        origin_words(buffer.origin),
        op=buffer.op or "",
    )


def _temporary_row(temporary: Temporary, marks: style.Marks) -> _Row:
    array, line, *_ = _facts(temporary, marks)
    kept = kept_words(temporary).removeprefix("kept ")
    return _Row(
        format_bytes(temporary.nbytes * temporary.count),
        array,
        line,
        scope_words(temporary.scopes),
        kept=kept,
    )
