"""Arguments, outputs, constraints and donations of a program, as requested and as compiled."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from ..grouping import by_key
from ..layouts.dtypes import type_text
from ..quantities import counted, format_bytes
from ..reports import ProgramReport, ProgramValue
from ..reports.array import same_sharding
from .blocks import Column, Row, Table, counted_path, limited, more
from .folds import folded, folded_paths, path_keys, split_rows
from .program_words import sharding_words, without_indices

_STATES = {
    "as requested": "is_as_asked",
    "chosen by XLA": "is_free",
    "requested shardings are not recorded in a Compiled": "is_unrecorded",
}
"""Property of the values that each line of the summary counts."""
_COLUMNS = (
    Column("value", "path", meaning="path of the argument or the output"),
    Column("array", meaning="dtype and global shape"),
    Column("per device", "number", meaning="bytes of one shard, summed over the leaves of the row"),
    Column("sharding", meaning="sharding in the compiled program, and that of the argument it replaces"),
)
TABLES = {"shardings": _COLUMNS}
"""Columns of the table, by the first word of its title."""
_MOST_PRUNED = 6
"""Maximum number of paths of unused arguments in the summary."""


def value_lines(report: ProgramReport) -> Iterator[str]:
    """Yield the numbers of values as requested, chosen by XLA, in host memory, pruned and donated."""
    if not _is_on_one_device(report):
        likes = _arguments_of(report)
        kept = sum(_keeps(one, likes) for one in report.outputs)
        known = sum(one.path in likes for one in report.outputs)
        for title, state in _STATES.items():
            if words := _number_words(report, **{state: True}):
                like = f"; {kept} of {known} with a known argument keep its sharding"
                yield f"{title}: {words}{like if kept and state == 'is_free' else ''}"
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
    """Return the table of the shardings that XLA chose, or may have chosen, the most bytes first.

    An output with the sharding of the argument that it takes the place of is left out.
    """
    values = () if _is_on_one_device(report) else (*report.arguments, *report.outputs)
    likes = _arguments_of(report)
    free = [one for one in values if (one.is_free or one.is_unrecorded) and not _keeps(one, likes)]

    def was(value: ProgramValue) -> list[str]:
        """Return the sharding of the argument that an output takes the place of."""
        argument = likes.get(value.path)
        return [] if argument is None else [f"was {sharding_words(argument.got)}"]

    def fact(value: ProgramValue) -> Hashable:
        alike = replace(value, path="", like=None, reason=without_indices(value.reason or ""))
        return alike, *was(value)

    def row(fold: tuple[str, list[ProgramValue]]) -> Row:
        path, found = fold
        value, count = found[0], len(found)
        return {
            "value": counted_path(path, count),
            "array": type_text(value.dtype, value.shape),
            "per device": "?" if value.nbytes is None else format_bytes(count * value.nbytes),
            "sharding": [_place(value), *was(value)],
        }

    def rest(left: Sequence[tuple[str, list[ProgramValue]]]) -> Row:
        sizes = [value.nbytes or 0 for _, found in left for value in found]
        return {"value": more(len(sizes)), "per device": format_bytes(sum(sizes))}

    folds = sorted(folded(free, fact), key=lambda fold: -len(fold[1]) * (fold[1][0].nbytes or 0))
    return Table(
        "shardings" if any(one.is_unrecorded for one in free) else "shardings that XLA chose",
        _COLUMNS,
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
    placed = ((one, path_keys(one.path)) for one in report.arguments if one.got is not None)
    named = by_key(((one.shape, one.dtype, keys[-1]), (one, keys)) for one, keys in placed)
    found = {}
    for output in report.outputs:
        keys = path_keys(output.path)
        alike = by_key(
            (_common_end(others, keys), one)
            for one, others in named.get((output.shape, output.dtype, keys[-1]), ())
        )
        best = alike[max(alike)] if alike else []
        if len(best) == 1:
            found[output.path] = best[0]
    return found


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of keys that two paths have in common at their ends."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _keeps(output: ProgramValue, likes: Mapping[str, ProgramValue]) -> bool:
    """Return whether an output has the sharding of the argument whose place it takes."""
    argument = likes.get(output.path)
    if argument is None or argument.memory_kind != output.memory_kind:
        return False
    return same_sharding(argument.got, output.got, len(output.shape)) is True


def _place(value: ProgramValue) -> str:
    """Return the sharding of a value, and its memory kind if it is in host memory."""
    place = " as returned" if value.is_padded_inside else ""
    return sharding_words(value.got) + place + (f" in {value.memory_kind}" if value.is_in_host_memory else "")
