"""Memory of a program and of its backward pass; its arguments, outputs, constraints and donations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes, known_sum
from ...base.text import UNKNOWN, that_apply
from ...geometry.layouts.dtypes import type_text
from ..reports import BackwardLine, ProgramMemory, ProgramReport, ProgramValue, Temporary
from ..reports.array import same_sharding
from .blocks import Column, Listing, Row, Sentence, Table, counted_path, limited, listed, more
from .folds import folded, folded_paths, path_keys, split_rows, without_indices
from .program_words import kept_words, platform_words, scope_words, sharding_words
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
    ),
    "shardings": (
        Column("value", "path", meaning="path of the argument or the output"),
        Column("array", meaning="dtype and global shape"),
        Column("per device", "number", meaning="bytes of one shard, summed over the leaves of the row"),
        Column("sharding", meaning="sharding in the compiled program, and that of the argument it replaces"),
    ),
}
"""Columns of each table, by its title."""


def memory_lines(report: ProgramReport) -> Iterator[str]:
    """Yield the memory per device, and that of the host."""
    memory = report.memory
    if memory is None:
        yield from that_apply((report.out_of_memory is None, f"memory per device: {UNKNOWN}"))
        return
    yield f"memory per device: {_memory_words(memory, report.platform)}"
    if memory.vmem_nbytes:
        yield f"VMEM per device: {format_bytes(memory.vmem_nbytes)} at most (estimated from the schedule)"
    on_host = (
        (memory.host_argument_nbytes, "arguments"),
        (memory.host_output_nbytes, "outputs"),
        (memory.host_temporary_nbytes, "temporaries"),
        (-(memory.host_alias_nbytes or 0), _REUSED),
    )
    if known := [part for part in on_host if part[0]]:
        total = f"{format_bytes(memory.host_nbytes)} = " if len(known) > 1 else ""
        yield f"host memory per device: {total}{_parts_words(known)}"


def _memory_words(memory: ProgramMemory, platform: str) -> str:
    """Return the memory that the program needs, and its parts: ``about 6.4 MiB = arguments 1.0 + …``."""
    if memory.needed_nbytes is None:
        return UNKNOWN
    needed, temporaries = format_bytes(memory.needed_nbytes), memory.temporary_nbytes
    words = _parts_words(part for part in memory_parts(memory) if part[0] != 0 or part[1] == "arguments")
    code = f"; code {format_bytes(memory.code_nbytes)}" if memory.code_nbytes else ""
    if memory.peak_nbytes is not None:
        allocated = f"; {format_bytes(temporaries)} allocated for temporaries" if temporaries else ""
        return f"{needed} at the peak ({words}){allocated}{code}"
    if platform == "tpu":
        return f"{needed} of HBM = {words}{code}"
    return f"about {needed} = {words} (the {platform_words(platform)} backend reports no peak){code}"


def memory_parts(memory: ProgramMemory) -> list[tuple[int | None, str]]:
    """Return the bytes and the names of the parts that add up to ``needed_nbytes``.

    The temporaries of a peak are what is left of it.

    Args:
        memory: A memory whose ``needed_nbytes`` are known.

    Returns:
        Pairs. Bytes that are subtracted are negative; None is unknown.
    """
    arguments, outputs, temporaries = memory.argument_nbytes, memory.output_nbytes, memory.temporary_nbytes
    reused = None if memory.alias_nbytes is None else -memory.alias_nbytes
    name = "temporaries"
    if memory.peak_nbytes is not None:
        others = known_sum((arguments, outputs, reused))
        temporaries = None if others is None else memory.peak_nbytes - others
        name = "not live at the peak" if (temporaries or 0) < 0 else "temporaries and constants"
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
    excess = 0 if memory.temporary_nbytes is None else (memory.live_nbytes or 0) - memory.temporary_nbytes
    is_in_outputs = excess <= (memory.output_nbytes or 0)
    where = "in the memory of outputs" if is_in_outputs else "more than XLA allocates"
    return f"; {format_bytes(excess)} {where}" if excess > 0 else ""


def backward_blocks(memory: ProgramMemory) -> Iterator[Listing]:
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
    is_known = all(line.nbytes is not None for line in lines)

    def size(line: BackwardLine) -> int | None:
        return line.nbytes if is_known else line.global_nbytes

    def entry(line: BackwardLine) -> Sequence[str]:
        arrays = counted(line.count, "array", "arrays")
        return (
            _bytes(size(line)),
            "",
            origin_words(line.origin, "line unknown"),
            f"{arrays}, stacked by a loop" if line.is_in_loop else arrays,
            "" if line.checkpoint_name is None else f"named {line.checkpoint_name}",
        )

    def rest(hidden: Sequence[BackwardLine]) -> str:
        nbytes = sum(size(line) or 0 for line in hidden)
        return f"{more(len(hidden), 'line', 'lines')}, {format_bytes(nbytes)}"

    if words is None:
        total = known_sum(map(size, lines))
        where = " per device" if is_known else " on all devices together"
        words = UNKNOWN if total is None else format_bytes(total) + where
    yield Sentence(f"{name}: {words}")
    yield listed(sorted(lines, key=lambda line: -(size(line) or 0)), entry, rest, first=0)


def memory_table(memory: ProgramMemory) -> Table:
    """Return the table of the largest temporaries, with the bytes of all of them."""
    live, listed_ones = memory.live_nbytes or 0, memory.temporaries or ()
    smaller = live - sum(temporary.nbytes * temporary.count for temporary in listed_ones)
    others = f", {format_bytes(smaller)} of them in smaller ones" if smaller > 0 else ""

    def row(temporary: Temporary) -> Row:
        return {
            "bytes": format_bytes(temporary.nbytes * temporary.count),
            "array": counted_path(type_text(temporary.dtype, temporary.shape), temporary.count),
            "line": origin_words(temporary.origin, "line unknown"),
            "scope": scope_words(temporary.scopes),
            "kept": kept_words(temporary).removeprefix("kept "),
        }

    def rest(hidden: Sequence[Temporary]) -> Row:
        nbytes = sum(temporary.nbytes * temporary.count for temporary in hidden)
        count = sum(temporary.count for temporary in hidden)
        return {"array": more(count), "bytes": format_bytes(nbytes)}

    return Table(
        "temporaries live at the highest point",
        TABLES["temporaries live at the highest point"],
        [limited(listed_ones, row, rest, is_apart=True)],
        (
            (("bytes",), ("array",), ("line",), ("scope",), ("kept",)),
            (("bytes",), ("array",), ("line", "scope"), ("kept",)),
            (("bytes",), ("array", "line", "scope", "kept")),
        ),
        subtitle=f"{format_bytes(live)}{others} (estimated from the schedule{_excess(memory)})",
    )


_STATES = {
    "as requested": "is_as_asked",
    "chosen by XLA": "is_free",
    "requested shardings are not recorded in a Compiled": "is_unrecorded",
}
"""Property of the values that each line of the summary counts."""
_MOST_PRUNED = 6
"""Maximum number of paths of unused arguments in the summary."""


def value_lines(report: ProgramReport) -> Iterator[str]:
    """Yield the numbers of values as requested, chosen by XLA, in host memory, pruned and donated."""
    if not _is_on_one_device(report):
        likes = _arguments_of(report)
        kept = sum(_keeps(output, likes) for output in report.outputs)
        known = sum(output.path in likes for output in report.outputs)
        for title, state in _STATES.items():
            if words := _number_words(report, **{state: True}):
                like = f"; {kept} of {known} with a known argument keep its sharding"
                yield f"{title}: {words}{like if kept and state == 'is_free' else ''}"
    if report.constraints is None and not report.lacks("constraints"):
        yield "constraints inside: unknown for a lowered or compiled function"
    hosted = (value for value in (*report.arguments, *report.outputs) if value.is_in_host_memory)
    for kind in dict.fromkeys(value.memory_kind for value in hosted):
        yield f"in {kind}: {_number_words(report, is_in_host_memory=True, memory_kind=kind)}"
    if pruned := [argument.path for argument in report.arguments if argument.is_pruned]:
        shown, hidden = split_rows(folded_paths(pruned, [None] * len(pruned)), _MOST_PRUNED)
        listed = ", ".join(counted_path(path, len(members)) for path, members in shown)
        tail = f" and {more(sum(len(members) for _, members in hidden))}" if hidden else ""
        yield f"removed by JAX as unused: {listed}{tail}"
    if report.donations:
        reused = [donation.nbytes for donation in report.donations if donation.output is not None]
        nbytes = f", {format_bytes(sum(reused))} per device" if reused else ""
        donated = counted(len(report.donations), "argument", "arguments")
        yield f"donated: {len(reused)} of {donated} reused{nbytes}"


def _is_on_one_device(report: ProgramReport) -> bool:
    """Return whether there is nothing to shard."""
    return report.device_count == 1 and report.mesh is None


def _number_words(report: ProgramReport, **wanted: object) -> str:
    """Return the numbers of values with certain properties: ``3 arguments, 1 output and 2 constraints``.

    Args:
        report: The program.
        **wanted: The properties, which only values or only constraints may have.
    """
    every = {"argument": report.arguments, "output": report.outputs, "constraint": report.constraints or ()}
    counts = {
        noun: sum(
            getattr(listed_value, "count", 1)
            for listed_value in values
            if all(getattr(listed_value, name, None) == value for name, value in wanted.items())
        )
        for noun, values in every.items()
    }
    parts = [counted(count, noun, f"{noun}s") for noun, count in counts.items() if count]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def free_values_table(report: ProgramReport) -> Table:
    """Return the table of the shardings that XLA chose, or may have chosen, the most bytes first.

    An output with the sharding of the argument that it takes the place of is left out.
    """
    values = () if _is_on_one_device(report) else (*report.arguments, *report.outputs)
    likes = _arguments_of(report)
    free = [value for value in values if (value.is_free or value.is_unrecorded) and not _keeps(value, likes)]

    def was(value: ProgramValue) -> list[str]:
        """Return the sharding of the argument that an output takes the place of."""
        argument = likes.get(value.path)
        return [] if argument is None else [f"was {sharding_words(argument.got)}"]

    def fact(value: ProgramValue) -> Hashable:
        alike = replace(value, path="", like=None, reason=without_indices(value.reason or ""))
        return alike, *was(value)

    def row(fold: tuple[str, list[ProgramValue]]) -> Row:
        path, alike = fold
        value, count = alike[0], len(alike)
        return {
            "value": counted_path(path, count),
            "array": type_text(value.dtype, value.shape),
            "per device": "?" if value.nbytes is None else format_bytes(count * value.nbytes),
            "sharding": [_place(value), *was(value)],
        }

    def rest(hidden: Sequence[tuple[str, list[ProgramValue]]]) -> Row:
        sizes = [value.nbytes or 0 for _, alike in hidden for value in alike]
        return {"value": more(len(sizes)), "per device": format_bytes(sum(sizes))}

    folds = sorted(folded(free, fact), key=lambda fold: -len(fold[1]) * (fold[1][0].nbytes or 0))
    return Table(
        "shardings" if any(value.is_unrecorded for value in free) else "shardings that XLA chose",
        TABLES["shardings"],
        [limited(folds, row, rest, is_apart=True)],
        (
            (("value",), ("array",), ("per device",), ("sharding",)),
            (("value", "array"), ("per device",), ("sharding",)),
            (("value", "array", "sharding"), ("per device",)),
        ),
    )


def _arguments_of(report: ProgramReport) -> dict[str, ProgramValue]:
    """Return the argument whose place each output takes, by the output's path.

    It has the same shape and dtype, and the longest end of its path in common with the output's.
    """
    placed = (
        (argument, path_keys(argument.path)) for argument in report.arguments if argument.got is not None
    )
    named = by_key(
        ((argument.shape, argument.dtype, keys[-1]), (argument, keys)) for argument, keys in placed
    )
    likes = {}
    for output in report.outputs:
        keys = path_keys(output.path)
        alike = by_key(
            (_common_end(others, keys), argument)
            for argument, others in named.get((output.shape, output.dtype, keys[-1]), ())
        )
        best = alike[max(alike)] if alike else []
        if len(best) == 1:
            likes[output.path] = best[0]
    return likes


def _common_end(keys: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of keys that two paths have in common at their ends."""
    pairs = zip(reversed(keys), reversed(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _keeps(output: ProgramValue, likes: Mapping[str, ProgramValue]) -> bool:
    """Return whether an output has the sharding of the argument whose place it takes."""
    argument = likes.get(output.path)
    if argument is None or argument.memory_kind != output.memory_kind:
        return False
    return same_sharding(argument.got, output.got) is True


def _place(value: ProgramValue) -> str:
    """Return the sharding of a value, and its memory kind if it is in host memory."""
    place = " as returned" if value.is_padded_inside else ""
    return sharding_words(value.got) + place + (f" in {value.memory_kind}" if value.is_in_host_memory else "")
