"""Arguments, outputs, constraints and donations of a program, as requested and as compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import RenderableType

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.folds import folded_paths, split_rows
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import Constraint, ProgramReport, ProgramValue

from .. import style
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_words import (
    counted_path,
    sharding_words,
    without_indices,
)

_UNRECORDED = "requested shardings are not recorded in a Compiled"
_MOST = 6
"""Maximum number of entries of each list in the summary."""
_GROUPINGS: Sequence[Grouping] = (
    (("value",), ("array",), ("per device",), ("sharding",)),
    (("value", "array"), ("per device",), ("sharding",)),
    (("value", "array", "sharding"), ("per device",)),
)


def write_values(page: Page, report: ProgramReport) -> None:
    """Add the numbers of values that are as requested, chosen by XLA, in host memory, pruned and donated."""
    kinds = (("as requested", "is_as_asked"), ("chosen by XLA", "is_free"), (_UNRECORDED, "is_unrecorded"))
    for title, state in () if _is_on_one_device(report) else kinds:
        if words := _number_words(report, _has(state)):
            page.write(f"{title}: {words}")
    if report.constraints is None:
        page.write("constraints inside: unknown for a lowered or compiled function")
    hosted = (one for one in (*report.arguments, *report.outputs) if one.is_in_host_memory)
    for kind in dict.fromkeys(one.memory_kind for one in hosted):
        page.write(f"in {kind}: {_number_words(report, functools.partial(_is_hosted, kind=kind))}")
    pruned = [one.path for one in report.arguments if one.is_pruned]
    if pruned:
        folded = folded_paths(pruned, [None] * len(pruned))
        shown, rest = split_rows(folded, _MOST)
        listed = [counted_path(path, len(members), page.marks) for path, members in shown]
        more = f" and {sum(len(members) for _, members in rest)} more" if rest else ""
        page.write(f"removed by JAX as unused: {', '.join(listed)}{more}")
    reused = [one.nbytes for one in report.donations if one.output is not None]
    if report.donations:
        words = f"{len(reused)} of {counted(len(report.donations), 'argument', 'arguments')} reused"
        nbytes = f", {format_bytes(sum(reused))} per device" if reused else ""
        page.write(f"donated: {words}{nbytes}")


def _is_on_one_device(report: ProgramReport) -> bool:
    """Return whether there is nothing to shard."""
    return report.device_count == 1 and report.mesh is None


def _has(state: str) -> Callable[[ProgramValue | Constraint], bool]:
    """Return a function that reads a property, which only values or only constraints may have."""
    return lambda value: getattr(value, state, False)


def _is_hosted(value: ProgramValue | Constraint, kind: str | None) -> bool:
    """Return whether a value is in a kind of host memory."""
    return isinstance(value, ProgramValue) and value.is_in_host_memory and value.memory_kind == kind


def _number_words(report: ProgramReport, belongs: Callable[[ProgramValue | Constraint], bool]) -> str:
    """Return the numbers of arguments, outputs and constraints of a kind: ``3 arguments and 1 output``."""
    numbers = (
        (sum(map(belongs, report.arguments)), "argument"),
        (sum(map(belongs, report.outputs)), "output"),
        (sum(one.count for one in report.constraints or () if belongs(one)), "constraint"),
    )
    parts = [counted(count, noun, f"{noun}s") for count, noun in numbers if count]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _folded(values: Sequence[ProgramValue]) -> list[tuple[str, list[int]]]:
    """Return the paths of values, those that differ only in indices in one."""
    facts = [replace(one, path="", like=None, reason=without_indices(one.reason or "")) for one in values]
    return folded_paths([one.path for one in values], facts)


def free_values_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of the shardings that XLA chose, or may have chosen; None if there are none."""
    if _is_on_one_device(report):
        return None
    values = [one for one in (*report.arguments, *report.outputs) if one.is_free or one.is_unrecorded]
    folded = _folded(values)
    shown, rest = split_rows(folded, max_rows)
    if not shown:
        return None
    marks = style.marks(encoding)
    firsts = [values[members[0]] for _, members in shown]
    names = [counted_path(path, len(members), marks) for path, members in shown]
    sizes = [_size(firsts[number], len(members)) for number, (_, members) in enumerate(shown)]
    columns = [
        StackedColumn("value", names, is_path=True),
        StackedColumn("array", [type_text(value.dtype, value.shape) for value in firsts]),
        StackedColumn("per device", sizes, is_number=True),
        StackedColumn("sharding", [_place(value) for value in firsts]),
    ]
    left = [values[member] for _, members in rest for member in members]
    last = {"value": f"{len(left)} more", "per device": format_bytes(sum(one.nbytes or 0 for one in left))}
    return stacked_table(
        "shardings" if any(one.is_unrecorded for one in values) else "shardings that XLA chose",
        columns,
        _GROUPINGS,
        width=width,
        encoding=encoding,
        rest=last if left else None,
    )


def _place(value: ProgramValue) -> str:
    """Return the sharding of a value, and its memory kind if it is in host memory."""
    place = " as returned" if value.is_padded_inside else ""
    return sharding_words(value.got) + place + (f" in {value.memory_kind}" if value.is_in_host_memory else "")


def _size(value: ProgramValue, count: int) -> str:
    """Return the bytes per device of a number of equal values."""
    return "?" if value.nbytes is None else format_bytes(count * value.nbytes)
