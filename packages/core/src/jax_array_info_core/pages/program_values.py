"""Arguments, outputs, constraints and donations of a program, as requested and as compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..layouts.dtypes import type_text
from ..quantities import counted, format_bytes
from ..reports import ProgramReport, ProgramValue
from .blocks import Column, Row, Table, counted_path, limited, more
from .folds import folded_paths, split_rows
from .program_words import sharding_words, without_indices

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
    for title, state in () if _is_on_one_device(report) else _STATES.items():
        if words := _number_words(report, **{state: True}):
            yield f"{title}: {words}"
    if report.constraints is None:
        yield "constraints inside: unknown for a lowered or compiled function"
    hosted = (one for one in (*report.arguments, *report.outputs) if one.is_in_host_memory)
    for kind in dict.fromkeys(one.memory_kind for one in hosted):
        yield f"in {kind}: {_number_words(report, is_in_host_memory=True, memory_kind=kind)}"
    if pruned := [one.path for one in report.arguments if one.is_pruned]:
        shown, rest = split_rows(folded_paths(pruned, [None] * len(pruned)), _MOST_PRUNED)
        listed = ", ".join(counted_path(path, len(members)) for path, members in shown)
        left = f" and {more(sum(len(members) for _, members in rest))}" if rest else ""
        yield f"removed by JAX as unused: {listed}{left}"
    if report.donations:
        reused = [one.nbytes for one in report.donations if one.output is not None]
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
            getattr(one, "count", 1)
            for one in values
            if all(getattr(one, name, None) == value for name, value in wanted.items())
        )
        for noun, values in every.items()
    }
    parts = [counted(count, noun, f"{noun}s") for noun, count in counts.items() if count]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def free_values_table(report: ProgramReport) -> Table:
    """Return the table of the shardings that XLA chose, or may have chosen."""
    values = () if _is_on_one_device(report) else (*report.arguments, *report.outputs)
    free = [one for one in values if one.is_free or one.is_unrecorded]
    facts = [replace(one, path="", like=None, reason=without_indices(one.reason or "")) for one in free]
    folds = folded_paths([one.path for one in free], facts)

    def row(fold: tuple[str, list[int]]) -> Row:
        path, members = fold
        value = free[members[0]]
        return {
            "value": counted_path(path, len(members)),
            "array": type_text(value.dtype, value.shape),
            "per device": "?" if value.nbytes is None else format_bytes(len(members) * value.nbytes),
            "sharding": _place(value),
        }

    def rest(left: Sequence[tuple[str, list[int]]]) -> Row:
        sizes = [free[member].nbytes or 0 for _, members in left for member in members]
        return {"value": more(len(sizes)), "per device": format_bytes(sum(sizes))}

    is_unrecorded = any(one.is_unrecorded for one in free)
    return Table(
        "shardings" if is_unrecorded else "shardings that XLA chose",
        (Column("value", "path"), Column("array"), Column("per device", "number"), Column("sharding")),
        [limited(folds, row, rest, is_apart=True)],
        (
            (("value",), ("array",), ("per device",), ("sharding",)),
            (("value", "array"), ("per device",), ("sharding",)),
            (("value", "array", "sharding"), ("per device",)),
        ),
    )


def _place(value: ProgramValue) -> str:
    """Return the sharding of a value, and its memory kind if it is in host memory."""
    place = " as returned" if value.is_padded_inside else ""
    return sharding_words(value.got) + place + (f" in {value.memory_kind}" if value.is_in_host_memory else "")
