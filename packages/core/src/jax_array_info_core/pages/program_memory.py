"""Memory of a program per device: its parts, its largest temporaries, and what its backward pass keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..layouts.dtypes import type_text
from ..quantities import counted, format_bytes, known_sum
from ..reports import BackwardLine, ProgramMemory, ProgramReport, Temporary
from ..text import UNKNOWN
from .blocks import Column, Listing, Row, Sentence, Table, counted_path, limited, listed, more, that_apply
from .program_words import kept_words, platform_words, scope_words
from .words import origin_words

_REUSED = "reused by donation"
TABLES = {
    "temporaries live at the highest point": (
        Column("bytes", "number", meaning="bytes of the values of the row on one device"),
        Column("array", meaning="dtype and shape on one device, and the number of equal values"),
        Column("line", meaning="line of your code that computes the value, and the line that called it"),
        Column("scope", "path", before="in ", meaning="names of jax.named_scope around the operation"),
        Column(
            "kept",
            before="kept ",
            meaning="whether a loop or the backward pass keeps the value, and its checkpoint_name",
        ),
    )
}
"""Columns of the table, by its title."""
_MOST = 4
"""Maximum number of temporaries in the summary; a table has more."""


def memory_lines(report: ProgramReport) -> Iterator[str]:
    """Yield the memory per device, and that of the host."""
    memory = report.memory
    if memory is None:
        yield from that_apply((report.out_of_memory is None, f"memory per device: {UNKNOWN}"))
        return
    yield f"memory per device: {_memory_words(memory, report.platform)}"
    on_host = (
        (memory.host_argument_nbytes, "arguments"),
        (memory.host_output_nbytes, "outputs"),
        (memory.host_temporary_nbytes, "temporaries"),
        (-(memory.host_alias_nbytes or 0), _REUSED),
    )
    if known := [part for part in on_host if part[0]]:
        total = f"{format_bytes(memory.host_nbytes)} = " if len(known) > 1 else ""
        yield f"host memory per device: {total}{_parts_words(known)}"


def temporaries_blocks(memory: ProgramMemory) -> Iterator[Listing]:
    """Yield the largest temporaries and what the backward pass needs."""
    if memory.temporaries:
        live = f"{format_bytes(memory.live_nbytes)} live at once"
        smaller = memory.live_nbytes - sum(one.nbytes * one.count for one in memory.temporaries)
        others = f", {format_bytes(smaller)} of them in smaller ones" if smaller > 0 else ""
        yield Sentence(f"largest temporaries, {live}{others} (estimated from the schedule{_excess(memory)})")
        yield listed(memory.temporaries, _entry, lambda left: ", ".join(_rest(left)), _MOST)
    yield from _backward(memory)


def _memory_words(memory: ProgramMemory, platform: str) -> str:
    """Return the memory that the program needs, and its parts: ``about 6.4 MiB = arguments 1.0 + …``."""
    if memory.needed_nbytes is None:
        return UNKNOWN
    needed, temporaries = format_bytes(memory.needed_nbytes), memory.temporary_nbytes
    words = _parts_words(
        part for part in memory_parts(memory, platform) if part[0] != 0 or part[1] == "arguments"
    )
    code = f"; code {format_bytes(memory.code_nbytes)}" if memory.code_nbytes else ""
    if memory.peak_nbytes is not None:
        allocated = f"; {format_bytes(temporaries)} allocated for temporaries" if temporaries else ""
        return f"{needed} at the peak ({words}){allocated}{code}"
    return f"about {needed} = {words} (the {platform_words(platform)} backend reports no peak){code}"


def memory_parts(memory: ProgramMemory, platform: str) -> list[tuple[int | None, str]]:
    """Return the bytes and the names of the parts that add up to ``needed_nbytes``.

    The temporaries of a peak are what is left of it. On TPU, XLA's peak is that of HBM or of VMEM.

    Args:
        memory: A memory whose ``needed_nbytes`` are known.
        platform: Platform of the program.

    Returns:
        Pairs. Bytes that are subtracted are negative; None is unknown.
    """
    arguments, outputs, temporaries = memory.argument_nbytes, memory.output_nbytes, memory.temporary_nbytes
    reused = None if memory.alias_nbytes is None else -memory.alias_nbytes
    name = "temporaries"
    if memory.peak_nbytes is not None:
        others = known_sum((arguments, outputs, reused))
        temporaries = None if others is None else memory.peak_nbytes - others
        name = "temporaries, VMEM and constants" if platform == "tpu" else "temporaries and constants"
        name = "not live at the peak" if (temporaries or 0) < 0 else name
    elif reused is not None:
        reused = max(reused, -sum(nbytes or 0 for nbytes in (arguments, outputs, temporaries)))
    return [(arguments, "arguments"), (outputs, "outputs"), (temporaries, name), (reused, _REUSED)]


def _parts_words(parts: Iterable[tuple[int | None, str]]) -> str:
    """Return parts of a memory that add up, each with its sign: ``arguments 1.0 MiB + outputs 2.0 MiB``."""
    words = (
        f"{'-' if (nbytes or 0) < 0 or name == _REUSED else '+'} {name} {_bytes(nbytes)}"
        for nbytes, name in parts
    )
    return " ".join(words).removeprefix("+ ")


def _bytes(nbytes: int | None) -> str:
    """Return bytes without their sign."""
    return UNKNOWN if nbytes is None else format_bytes(abs(nbytes))


def _excess(memory: ProgramMemory) -> str:
    """Return where the bytes are that XLA does not allocate for temporaries; empty if there are none."""
    excess = 0 if memory.temporary_nbytes is None else memory.live_nbytes - memory.temporary_nbytes
    is_in_outputs = excess <= (memory.output_nbytes or 0)
    where = "in the memory of outputs" if is_in_outputs else "more than XLA allocates"
    return f"; {format_bytes(excess)} {where}" if excess > 0 else ""


def _entry(one: Temporary) -> Sequence[str]:
    """Return the entry of temporaries in the summary."""
    return (
        format_bytes(one.nbytes * one.count),
        "",
        counted_path(type_text(one.dtype, one.shape), one.count),
        origin_words(one.origin, "line unknown"),
        f"in {scope_words(one.scopes)}" if one.scopes else "",
        kept_words(one),
    )


def _rest(left: Sequence[Temporary]) -> tuple[str, str]:
    """Return the number and the bytes of further temporaries."""
    return more(sum(one.count for one in left)), format_bytes(sum(one.nbytes * one.count for one in left))


def _backward(memory: ProgramMemory) -> Iterator[Listing]:
    """Yield what JAX saves for the backward pass, and what is live when that begins."""
    saved, live = memory.saved, memory.live_at_backward
    if saved is not None:
        reason = None if saved.reason is None else f"{UNKNOWN}: {saved.reason}"
        yield from _by_line("saved for the backward pass by JAX", saved.lines, reason)
        if saved.offloaded:
            yield from _by_line("offloaded to host memory for the backward pass", saved.offloaded)
    if live is not None:
        vmem = f"; {format_bytes(live.vmem_nbytes)} more in VMEM" if live.vmem_nbytes else ""
        # Next to a figure of all devices, this one is told to be of one.
        whose = " per device" if saved is None or saved.nbytes is None else ""
        known = f"{_bytes(live.nbytes)}{whose} (estimated from the schedule{vmem})"
        words = f"{UNKNOWN}: {live.reason}" if live.nbytes is None else known
        yield from _by_line("live when the backward pass begins", live.lines if saved is None else (), words)


def _by_line(name: str, lines: Sequence[BackwardLine], words: str | None = None) -> Iterator[Listing]:
    """Yield a figure with its lines.

    Args:
        name: Name of the figure.
        lines: The lines.
        words: The figure; None for the sum of the lines: on a device, if all are known there.
    """
    is_known = all(one.nbytes is not None for one in lines)

    def size(one: BackwardLine) -> int | None:
        return one.nbytes if is_known else one.global_nbytes

    def entry(one: BackwardLine) -> Sequence[str]:
        arrays = counted(one.count, "array", "arrays")
        return (
            _bytes(size(one)),
            "",
            origin_words(one.origin, "line unknown"),
            f"{arrays}, stacked by a loop" if one.is_in_loop else arrays,
            "" if one.checkpoint_name is None else f"named {one.checkpoint_name}",
        )

    def rest(left: Sequence[BackwardLine]) -> str:
        nbytes = sum(size(one) or 0 for one in left)
        return f"{more(len(left), 'line', 'lines')}, {format_bytes(nbytes)}"

    if words is None:
        total = known_sum(map(size, lines))
        where = " per device" if is_known else " on all devices together"
        words = UNKNOWN if total is None else format_bytes(total) + where
    yield Sentence(f"{name}: {words}")
    yield listed(sorted(lines, key=lambda one: -(size(one) or 0)), entry, rest)


def memory_table(memory: ProgramMemory) -> Table:
    """Return the table of temporaries; without rows if the summary has all."""
    temporaries = memory.temporaries

    def row(one: Temporary) -> Row:
        size, _, array, line, *_ = _entry(one)
        return {
            "bytes": size,
            "array": array,
            "line": line,
            "scope": scope_words(one.scopes),
            "kept": kept_words(one).removeprefix("kept "),
        }

    def rest(left: Sequence[Temporary]) -> Row:
        return dict(zip(("array", "bytes"), _rest(left), strict=True))

    return Table(
        "temporaries live at the highest point",
        TABLES["temporaries live at the highest point"],
        [limited(temporaries if len(temporaries) > _MOST else (), row, rest, is_apart=True)],
        (
            (("bytes",), ("array",), ("line",), ("scope",), ("kept",)),
            (("bytes",), ("array",), ("line", "scope"), ("kept",)),
            (("bytes",), ("array", "line", "scope", "kept")),
        ),
    )
