"""Arguments, outputs, constraints and donations of a program, as asked and as compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import RenderableType

from jax_array_info.tables.folds import folded_paths, split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import Constraint, Donation, ProgramReport, ProgramValue

from .. import style
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_words import (
    axes_words,
    counted_path,
    folded_text,
    sharding_words,
    without_indices,
)
from .words import origin_words

_ALARM = f"bold {style.WARNING}"
_UNRECORDED = "requested shardings are not recorded in a Compiled"
_LEAST_DONATABLE = 2**20
"""Bytes per device below which missing donations are not listed."""
_MOST = 6
"""Maximum number of entries of each list in the summary."""
_GROUPINGS: Sequence[Grouping] = (
    (("value",), ("array",), ("per device",), ("sharding",)),
    (("value", "array"), ("per device",), ("sharding",)),
    (("value", "array", "sharding"), ("per device",)),
)


class _Entry(NamedTuple):
    """A value or a constraint that differs from what was asked."""

    path: str
    facts: tuple[str, ...]
    note: str
    number: int
    """Number of values."""


def write_values(page: Page, report: ProgramReport) -> None:
    """Add the values that are not as asked, the padded and unknown constraints, and numbers of the others."""
    lost = [value for value in report.outputs if value.lost_axes]
    if lost:
        names = dict.fromkeys(name for value in lost for name in value.lost_axes)
        words = f"{_lost_words(tuple(names))} in {counted(len(lost), 'output', 'outputs')}:"
        page.write(words, look=_ALARM)
        _write_entries(page, list(_value_entries(lost, page.marks)))
    for title, belongs in (
        ("padded inside the program", _has("is_padded")),
        ("not found in the program", _has("is_unknown")),
    ):
        if found := [one for one in report.constraints or () if belongs(one)]:
            page.write(f"{title}: {_number_words(report, belongs)}:", look=_ALARM)
            _write_entries(page, list(_constraint_entries(found, page.marks)))
    different: list[_Entry] = []
    for values in (report.arguments, report.outputs):
        different += _value_entries([one for one in values if one.differs and not one.lost_axes], page.marks)
    if different:
        page.write(f"not as asked: {_number_words(report, _has('differs'))}:", look=_ALARM)
        _write_entries(page, different)
    kinds = (("as asked", "is_as_asked"), ("left to the compiler", "is_free"), (_UNRECORDED, "is_unrecorded"))
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


def write_not_fixed(page: Page, report: ProgramReport) -> None:
    """Add the arguments that return with another sharding, so that the next call compiles again."""
    arguments = {one.path: one.got for one in report.arguments}
    moved = [one for one in report.outputs if one.replaces is not None]
    facts = [(sharding_words(one.got), sharding_words(arguments.get(one.replaces or ""))) for one in moved]
    folded = folded_paths([one.replaces or "" for one in moved], facts)
    shown, rest = split_rows(folded, _MOST)
    for path, members in shown:
        returned, given = facts[members[0]]
        words = counted_path(path, len(members), page.marks)
        verbs = ("returns", "is") if len(members) == 1 else ("return", "are")
        change = f"{words} {verbs[0]} as {returned} and {verbs[1]} {given}"
        page.write(f"not a fixed point: {change}: will recompile at the next call", look=_ALARM)
    if rest:
        number = sum(len(members) for _, members in rest)
        page.write(f"not a fixed point: {number} more", look=_ALARM)


def _is_on_one_device(report: ProgramReport) -> bool:
    """Return whether there is nothing to shard."""
    return report.device_count == 1 and report.mesh is None


def _write_entries(page: Page, entries: Sequence[_Entry]) -> None:
    shown, rest = split_rows(entries, _MOST)
    for entry in shown:
        page.write_entry("", entry.path, *entry.facts, note=entry.note)
    if rest:
        page.write_entry("", "", f"and {sum(entry.number for entry in rest)} more")


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


def _constraint_entries(constraints: Sequence[Constraint], marks: style.Marks) -> Iterator[_Entry]:
    """Yield constraints with the reason why they need attention, those of the most values first."""
    for one in sorted(constraints, key=lambda one: -one.count):
        place = "constraint" if one.origin is None else f"constraint in {origin_words(one.origin)}"
        facts = (type_text(one.dtype, one.shape), sharding_words(one.asked))
        yield _Entry(counted_path(place, one.count, marks), facts, one.reason or "", one.count)


def _value_entries(values: Sequence[ProgramValue], marks: style.Marks) -> Iterator[_Entry]:
    """Yield values that are not as asked, those that differ only in the indices of their paths together."""
    for path, members in _folded(values):
        value = values[members[0]]
        facts = (type_text(value.dtype, value.shape), _change(value))
        note = folded_text([_note(values[member]) for member in members])
        yield _Entry(counted_path(path, len(members), marks), facts, note, len(members))


def _change(value: ProgramValue) -> str:
    """Return the sharding that was asked and the one that the value has."""
    got = sharding_words(value.got)
    if value.asked is None:
        return got
    return f"asked {sharding_words(value.asked)}, got {got}"


def _note(value: ProgramValue) -> str:
    """Return the reason of a difference; empty if it is not known."""
    if value.reason is not None or not value.lost_axes:
        return value.reason or ""
    return f"{_lost_words(value.lost_axes)}, compared with {value.like or 'an argument'}"


def _lost_words(names: Sequence[str]) -> str:
    return f"{axes_words(names)} {'is' if len(names) == 1 else 'are'} lost"


def _folded(values: Sequence[ProgramValue]) -> list[tuple[str, list[int]]]:
    """Return the paths of values, those that differ only in indices in one."""
    facts = [replace(one, path="", like=None, reason=without_indices(_note(one))) for one in values]
    return folded_paths([one.path for one in values], facts)


def write_donations(page: Page, donations: Sequence[Donation]) -> None:
    """Add the donated arguments whose memory is not reused, and the number of the others."""
    if not donations:
        return
    unused = sorted((one for one in donations if one.output is None), key=lambda one: -one.nbytes)
    reused = sum(one.nbytes for one in donations if one.output is not None)
    count = len(donations) - len(unused)
    words = f"donated: {count} of {counted(len(donations), 'argument', 'arguments')} reused"
    nbytes = f", {format_bytes(reused)} per device" if reused else ""
    page.write(words + nbytes, look=_ALARM if unused else "")
    reasons = [one.reason or "not reused, reason unknown" for one in unused]
    facts = [(one.nbytes, without_indices(reason)) for one, reason in zip(unused, reasons, strict=True)]
    folded = folded_paths([one.path for one in unused], facts)
    folded.sort(key=lambda fold: -sum(unused[member].nbytes for member in fold[1]))
    shown, rest = split_rows(folded, _MOST)
    sizes = [format_bytes(sum(unused[member].nbytes for member in members)) for _, members in shown]
    widest = max(map(len, sizes), default=0)
    for size, (path, members) in zip(sizes, shown, strict=True):
        reason = folded_text([reasons[member] for member in members])
        page.write_entry(size.rjust(widest), counted_path(path, len(members), page.marks), note=reason)
    if rest:
        page.write_entry("", "", _more_donations(unused[member] for _, members in rest for member in members))


def write_donatable(page: Page, donatable: Sequence[Donation]) -> None:
    """Add the bytes of the arguments that could be donated, and the arguments by their first keys."""
    nbytes = sum(one.nbytes for one in donatable)
    if nbytes < _LEAST_DONATABLE:
        return
    names = list(dict.fromkeys(one.path.partition("/")[0] for one in donatable))
    shown, rest = split_rows(names, _MOST)
    more = f" and {len(rest)} more" if rest else ""
    page.write(f"{format_bytes(nbytes)} per device could be donated: {', '.join(shown)}{more}", look=_ALARM)


def _more_donations(rest: Iterable[Donation]) -> str:
    sizes = [one.nbytes for one in rest]
    return f"and {len(sizes)} more, {format_bytes(sum(sizes))}"


def free_values_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of the shardings that were left to the compiler, or can be; None if there are none."""
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
        "shardings" if any(one.is_unrecorded for one in values) else "shardings left to the compiler",
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
