"""Arguments, outputs, constraints and donations of a program, as asked and as compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import RenderableType

from jax_array_info_core import Constraint, Donation, ProgramReport, ProgramValue, format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports.folded_paths import folded_paths
from jax_array_info_core.reports.rows import split_rows

from .. import style
from .pages import Page
from .program_words import axes_words, count_words, sharding_words
from .stacking import Grouping, StackedColumn, stacked_table

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


def write_values(page: Page, report: ProgramReport, max_rows: int | None = _MOST) -> None:
    """Add the arguments, outputs and constraints that are not as asked, and the numbers of the others."""
    entries = [*_entries(report, page.marks)]
    if entries:
        page.write(f"not as asked: {_differing(report)}", look=f"bold {style.WARNING}")
        shown, rest = split_rows(entries, max_rows)
        for entry in shown:
            page.write_entry("", entry.path, *entry.facts, note=entry.note)
        if rest:
            page.write_entry("", "", f"and {len(rest)} more")
    words = ", ".join(_as_asked(report)) or "none"
    page.write(f"as asked: {words}")
    if report.constraints is None:
        page.write("constraints inside: unknown, because only a function can be traced")
    _write_named(page, "left to the compiler", [one for one in _all(report) if _is_free(one)])
    _write_named(page, "unused arguments, removed by JAX", [one for one in _all(report) if one.is_pruned])


def _all(report: ProgramReport) -> tuple[ProgramValue, ...]:
    return (*report.arguments, *report.outputs)


def _is_free(value: ProgramValue) -> bool:
    """Return whether a sharding was left to the compiler, and differs from nothing that it is compared with."""
    return value.asked is None and not value.is_pruned and not differs(value)


def differs(value: ProgramValue | Constraint) -> bool:
    """Return whether a sharding is not as asked, or an output lost mesh axes of its argument."""
    if value.reason is not None:
        return True
    if isinstance(value, ProgramValue) and value.is_pruned:
        return False
    if isinstance(value, ProgramValue) and value.lost_axes:
        return True
    asked, got = value.asked, value.got
    if asked is None or got is None or asked.spec is None or got.spec is None:
        return False
    return not asked.spec.unconstrained and sharding_words(asked) != sharding_words(got)


def _differing(report: ProgramReport) -> str:
    constraints = [one for one in report.constraints or () if differs(one)]
    return _counts(
        sum(map(differs, report.arguments)),
        sum(map(differs, report.outputs)),
        sum(one.count for one in constraints),
    )


def _as_asked(report: ProgramReport) -> Iterator[str]:
    """Yield the numbers of values that are as asked."""
    numbers = _counts(
        *(
            sum(one.asked is not None and not one.is_pruned and not differs(one) for one in values)
            for values in (report.arguments, report.outputs)
        ),
        sum(one.count for one in report.constraints or () if not differs(one)),
    )
    if numbers:
        yield numbers


def _counts(arguments: int, outputs: int, constraints: int) -> str:
    parts = [
        counted(count, noun, f"{noun}s")
        for count, noun in ((arguments, "argument"), (outputs, "output"), (constraints, "constraint"))
        if count
    ]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _entries(report: ProgramReport, marks: style.Marks) -> Iterator[_Entry]:
    """Yield what is not as asked: values that differ only in the indices of their paths together."""
    constraints = sorted((one for one in report.constraints or () if differs(one)), key=lambda one: -one.count)
    for constraint in constraints:
        line = "" if constraint.origin is None else str(constraint.origin)
        facts = (
            count_words(constraint.count, marks),
            type_text(constraint.dtype, constraint.shape),
            _change(constraint),
        )
        yield _Entry(line or "constraint", facts, constraint.reason or "")
    for values in (report.arguments, report.outputs):
        different = [one for one in values if differs(one)]
        for path, members in _folded(different):
            value = different[members[0]]
            facts = (count_words(len(members), marks), type_text(value.dtype, value.shape), _change(value))
            likes = [different[member].like or "" for member in members]
            yield _Entry(path, facts, _note(value, likes))


def _change(value: ProgramValue | Constraint) -> str:
    """Return the sharding that was asked and the one that the value has."""
    got = sharding_words(value.got)
    if value.asked is None:
        return got
    return f"asked {sharding_words(value.asked)}, got {got}"


def _note(value: ProgramValue, likes: Sequence[str]) -> str:
    """Return the reason of a difference, with the folded path of the arguments in it."""
    if value.like is None:
        return value.reason or f"lost: {axes_words(value.lost_axes)}"
    [(like, _), *_] = folded_paths(likes, [None] * len(likes))
    if value.reason is not None:
        return value.reason.replace(value.like, like)
    axes = axes_words(value.lost_axes)
    return f"sharded over fewer mesh axes than {like}: {axes} {'is' if len(value.lost_axes) == 1 else 'are'} lost"


def _folded(values: Sequence[ProgramValue]) -> list[tuple[str, list[int]]]:
    """Return the paths of values, those that differ only in indices in one."""

    def facts(value: ProgramValue) -> ProgramValue:
        reason, like = value.reason, value.like
        if like is not None:
            reason = None if reason is None else reason.replace(like, "")
            like = "".join(char for char in like if not char.isdigit())
        return replace(value, path="", reason=reason, like=like)

    return folded_paths([value.path for value in values], list(map(facts, values)))


def _write_named(page: Page, title: str, values: Sequence[ProgramValue]) -> None:
    """Add a line with the paths of values."""
    if not values:
        return
    folded = folded_paths([value.path for value in values], [None] * len(values))
    shown, rest = split_rows(folded, _MOST)
    names = [" ".join(filter(None, (path, count_words(len(members), page.marks)))) for path, members in shown]
    more = f" and {sum(len(members) for _, members in rest)} more" if rest else ""
    page.write(f"{title}: {', '.join(names)}{more}")


def write_donations(page: Page, donations: Sequence[Donation], max_rows: int | None = _MOST) -> None:
    """Add the donated arguments whose memory is not reused, and the number of the others."""
    if not donations:
        return
    unused = sorted((one for one in donations if one.output is None), key=lambda one: -one.nbytes)
    reused = sum(one.nbytes for one in donations if one.output is not None)
    count = len(donations) - len(unused)
    words = f"donated: {count} of {counted(len(donations), 'argument', 'arguments')} reused"
    nbytes = f", {format_bytes(reused)} per device" if reused else ""
    page.write(words + nbytes, look=f"bold {style.WARNING}" if unused else "")
    folded = folded_paths([one.path for one in unused], [replace(one, path="") for one in unused])
    shown, rest = split_rows(folded, max_rows)
    sizes = [format_bytes(sum(unused[member].nbytes for member in members)) for _, members in shown]
    widest = max(map(len, sizes), default=0)
    for size, (path, members) in zip(sizes, shown, strict=True):
        reason = unused[members[0]].reason or "not reused, reason unknown"
        page.write_entry(size.rjust(widest), path, count_words(len(members), page.marks), note=reason)
    if rest:
        page.write_entry("", "", _more_donations(unused[member] for _, members in rest for member in members))


def _more_donations(rest: Iterable[Donation]) -> str:
    sizes = [one.nbytes for one in rest]
    return f"and {len(sizes)} more, {format_bytes(sum(sizes))}"


def free_values_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of the shardings that were left to the compiler; None if there are none."""
    values = [value for value in _all(report) if _is_free(value)]
    folded = _folded(values)
    shown, rest = split_rows(folded, max_rows)
    if not shown:
        return None
    marks = style.marks(encoding)
    firsts = [values[members[0]] for _, members in shown]
    names = [" ".join(filter(None, (path, count_words(len(more), marks)))) for path, more in shown]
    sizes = [_size(firsts[number], len(members)) for number, (_, members) in enumerate(shown)]
    columns = [
        StackedColumn("value", names, is_path=True),
        StackedColumn("array", [type_text(value.dtype, value.shape) for value in firsts]),
        StackedColumn("per device", sizes, is_number=True),
        StackedColumn("sharding", [sharding_words(value.got) for value in firsts]),
    ]
    left = [values[member] for _, members in rest for member in members]
    last = {"value": f"{len(left)} more", "per device": format_bytes(sum(one.nbytes or 0 for one in left))}
    return stacked_table(
        "shardings left to the compiler",
        columns,
        _GROUPINGS,
        width=width,
        encoding=encoding,
        rest=last if left else None,
    )


def _size(value: ProgramValue, count: int) -> str:
    """Return the bytes per device of a number of equal values."""
    return "?" if value.nbytes is None else format_bytes(count * value.nbytes)
