"""Memory of a program per device: its parts, its largest temporaries, and missing warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import (
    BackwardLine,
    ProgramMemory,
    ProgramReport,
    Temporary,
)

from .. import style
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_words import UNKNOWN, counted_path, kept_words, scope_words
from .words import origin_words

_REUSED = "reused by donation"
_MOST = 4
"""Maximum number of entries of each list in the summary."""
_GROUPINGS: Sequence[Grouping] = (
    (("bytes",), ("array",), ("line",), ("scope",), ("kept",)),
    (("bytes",), ("array",), ("line", "scope"), ("kept",)),
    (("bytes",), ("array", "line", "scope", "kept")),
)


def write_memory(page: Page, report: ProgramReport) -> None:
    """Add the memory per device and the largest temporaries."""
    if report.memory is not None:
        page.write(f"memory per device: {_memory_words(report.memory, report.platform)}")
        _write_host(page, report.memory)
        _write_temporaries(page, report.memory)
        _write_backward(page, report.memory)
    elif report.out_of_memory is None:
        page.write(f"memory per device: {UNKNOWN}")


def _memory_words(memory: ProgramMemory, platform: str) -> str:
    """Return the memory that the program needs, and its parts: ``about 6.4 MiB = arguments 1.0 + …``."""
    needed = memory.needed_nbytes
    if needed is None:
        return UNKNOWN
    parts = memory_parts(memory, platform)
    words = _parts_words(one for one in parts if one[0] != 0 or one[1] == "arguments")
    code = f"; code {format_bytes(memory.code_nbytes)}" if memory.code_nbytes else ""
    if memory.peak_nbytes is not None:
        temporaries = memory.temporary_nbytes
        allocated = f"; {format_bytes(temporaries)} allocated for temporaries" if temporaries else ""
        return f"{format_bytes(needed)} at the peak ({words}){allocated}{code}"
    backend = f"the {platform.upper() if platform in ('cpu', 'gpu', 'tpu') else platform} backend"
    return f"about {format_bytes(needed)} = {words} ({backend} reports no peak){code}"


def memory_parts(memory: ProgramMemory, platform: str) -> list[tuple[int | None, str]]:
    """Return the bytes and the names of the parts that add up to ``needed_nbytes``.

    The temporaries of a peak are what is left of it. On TPU, XLA's peak is that of HBM or of VMEM.

    Args:
        memory: A memory whose ``needed_nbytes`` are known.
        platform: Platform of the program.

    Returns:
        Pairs. Bytes that are subtracted are negative; None is unknown.
    """
    arguments, outputs, reused = memory.argument_nbytes, memory.output_nbytes, memory.alias_nbytes
    temporaries, name = memory.temporary_nbytes, "temporaries"
    if memory.peak_nbytes is not None:
        name = "temporaries, VMEM and constants" if platform == "tpu" else "temporaries and constants"
        if arguments is None or outputs is None or reused is None:
            temporaries = None
        else:
            temporaries = memory.peak_nbytes - arguments - outputs + reused
            name = name if temporaries >= 0 else "not live at the peak"
    elif reused is not None:
        reused = min(reused, sum(nbytes or 0 for nbytes in (arguments, outputs, temporaries)))
    return [
        (arguments, "arguments"),
        (outputs, "outputs"),
        (temporaries, name),
        (None if reused is None else -reused, _REUSED),
    ]


def _write_host(page: Page, memory: ProgramMemory) -> None:
    """Add the parts in host memory."""
    on_host = (
        (memory.host_argument_nbytes, "arguments"),
        (memory.host_output_nbytes, "outputs"),
        (memory.host_temporary_nbytes, "temporaries"),
        (-(memory.host_alias_nbytes or 0), _REUSED),
    )
    known = [(nbytes, name) for nbytes, name in on_host if nbytes]
    if known:
        total = f"{format_bytes(memory.host_nbytes)} = " if len(known) > 1 else ""
        page.write(f"host memory per device: {total}{_parts_words(known)}")


def _parts_words(parts: Iterable[tuple[int | None, str]]) -> str:
    """Return parts of a memory that add up, each with its sign: ``arguments 1.0 MiB + outputs 2.0 MiB``."""
    words = (
        f"{'-' if (nbytes or 0) < 0 or name == _REUSED else '+'} {name} "
        f"{UNKNOWN if nbytes is None else format_bytes(abs(nbytes))}"
        for nbytes, name in parts
    )
    return " ".join(words).removeprefix("+ ")


def _write_temporaries(page: Page, memory: ProgramMemory) -> None:
    shown, rest = split_rows(memory.temporaries, _MOST)
    if not shown:
        return
    live = format_bytes(memory.live_nbytes)
    page.write(f"largest temporaries, {live} live at once (estimated from the schedule{_excess(memory)}):")
    sizes = [format_bytes(one.nbytes * one.count) for one in shown]
    widest = max(map(len, sizes))
    for size, one in zip(sizes, shown, strict=True):
        page.write_entry(size.rjust(widest), "", *_facts(one, page.marks))
    if rest:
        page.write_entry("", "", f"and {_more(rest)}")


def _write_backward(page: Page, memory: ProgramMemory) -> None:
    """Add what JAX saves for the backward pass, and what is live when that begins."""
    saved, live = memory.saved, memory.live_at_backward
    if saved is not None:
        reason = None if saved.reason is None else f"{UNKNOWN}: {saved.reason}"
        _write_lines(page, "saved for the backward pass by JAX", saved.lines, reason)
        if saved.offloaded:
            _write_lines(page, "offloaded to host memory for the backward pass", saved.offloaded)
    if live is not None:
        vmem = f"; {format_bytes(live.vmem_nbytes)} more in VMEM" if live.vmem_nbytes else ""
        # Next to a figure of all devices, this one is told to be of one.
        whose = " per device" if saved is None or saved.nbytes is None else ""
        words = f"{UNKNOWN}: {live.reason}"
        if live.nbytes is not None:
            words = f"{format_bytes(live.nbytes)}{whose} (estimated from the schedule{vmem})"
        _write_lines(page, "live when the backward pass begins", live.lines if saved is None else (), words)


def _write_lines(page: Page, name: str, lines: Sequence[BackwardLine], words: str | None = None) -> None:
    """Add a figure with its lines.

    Args:
        page: The page.
        name: Name of the figure.
        lines: The lines.
        words: The figure; None for the sum of the lines: on a device, if all are known there.
    """
    sums = [one.nbytes for one in lines]
    where = "per device" if None not in sums else "on all devices together"
    if None in sums:
        sums = [one.global_nbytes for one in lines]
    sizes = [one or 0 for one in sums]
    if words is None:
        words = UNKNOWN if None in sums else f"{format_bytes(sum(sizes))} {where}"
    page.write(f"{name}: {words}{', by line:' if lines else ''}")
    shown, rest = split_rows(lines, _MOST)
    texts = [UNKNOWN if one is None else format_bytes(one) for one in sums[: len(shown)]]
    for text, one in zip(texts, shown, strict=True):
        arrays = counted(one.count, "array", "arrays")
        facts = f"{arrays}, stacked by a loop" if one.is_in_loop else arrays
        named = "" if one.checkpoint_name is None else f"named {one.checkpoint_name}"
        line = origin_words(one.origin, "line unknown")
        page.write_entry(text.rjust(max(map(len, texts))), "", line, facts, named)
    if rest:
        more = counted(len(rest), "more line", "more lines")
        page.write_entry("", "", f"and {more}, {format_bytes(sum(sizes[len(shown) :]))}")


def _excess(memory: ProgramMemory) -> str:
    """Return where the bytes are that XLA does not allocate for temporaries; empty if there are none."""
    excess = 0 if memory.temporary_nbytes is None else memory.live_nbytes - memory.temporary_nbytes
    if excess <= 0:
        return ""
    is_in_outputs = excess <= (memory.output_nbytes or 0)
    where = "in the memory of outputs" if is_in_outputs else "more than XLA allocates"
    return f"; {format_bytes(excess)} {where}"


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


def memory_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of temporaries; None if the summary has all."""
    memory = report.memory
    if memory is None or len(memory.temporaries) <= _MOST:
        return None
    shown, rest = split_rows(memory.temporaries, max_rows)
    if not shown:
        return None
    last = None
    if rest:
        left = format_bytes(sum(one.nbytes * one.count for one in rest))
        last = {"array": f"{sum(one.count for one in rest)} more", "bytes": left}
    facts = [_facts(one, style.marks(encoding)) for one in shown]
    columns = [
        StackedColumn("bytes", [format_bytes(one.nbytes * one.count) for one in shown], is_number=True),
        StackedColumn("array", [array for array, *_ in facts]),
        StackedColumn("line", [line for _, line, *_ in facts]),
        StackedColumn("scope", [scope_words(one.scopes) for one in shown], "in ", is_path=True),
        StackedColumn("kept", [kept_words(one).removeprefix("kept ") for one in shown], "kept "),
    ]
    return stacked_table(
        "temporaries live at the highest point",
        columns,
        _GROUPINGS,
        width=width,
        encoding=encoding,
        rest=last,
    )
