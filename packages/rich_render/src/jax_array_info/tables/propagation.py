"""Text for ``PropagationReport``: conflicts, lost mesh axes, then the values."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType

from jax_array_info.tables.folds import split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.layouts.spec import Spec, effective_spec
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import (
    Conflict,
    Loss,
    PropagatedLeaf,
    PropagatedValue,
    PropagationReport,
    ReplicatedValue,
)

from .. import style
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_words import UNKNOWN, folded_text, without_indices
from .words import mesh_words, origin_words

_WIDE: Grouping = (("per device",), ("value",), ("sharding",), ("from",), ("line",), ("op",))
_GROUPINGS: Sequence[Grouping] = (
    _WIDE,
    (("per device",), ("value", "op"), ("sharding", "from"), ("line",)),
    (("per device",), ("value", "op", "line"), ("sharding", "from")),
    (("per device",), ("value", "sharding", "from", "op", "line")),
)
_REASONS = {
    "contracted": "the operation sums the dimension",
    "conflict": "another operand is sharded in another way",
    "uneven": "the dimension does not divide by it",
    "constraint": "a constraint on the result leaves it out",
    "not propagated": "it was not propagated",
}


def propagation_table(
    report: PropagationReport, *, with_ways: bool = False, max_rows: int | None = 20, width: int = 80
) -> RenderableType:
    """Return the conflicts and the lost mesh axes of a program, then the table of its values.

    Args:
        report: The report.
        with_ways: Whether to list the values with the way of each mesh axis from its origin, without a table.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.
        width: Maximum line length in characters.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        page = Page(min(width, options.max_width), options.encoding)
        _write(page, report, max_rows)
        if with_ways:
            _write_ways(page, report, max_rows)
            return page.text()
        table = _values_table(report, max_rows, page)
        return page.text() if table is None else Group(page.text(), table)

    return style.ForConsole(make)


def _write_ways(page: Page, report: PropagationReport, max_rows: int | None) -> None:
    """Add the arguments, outputs and values of a line, each mesh axis with its way from its origin."""
    rows: list[PropagatedLeaf | PropagatedValue] = [*report.arguments, *report.outputs, *report.values]
    shown, rest = split_rows(rows, max_rows)
    for one in shown:
        if isinstance(one, PropagatedLeaf):
            head, where = f"{one.path}  {one.type}", ""
        else:
            head, where = f"{one.op}  {_type(one, page.marks.times)}", _where(one)
        spec = "" if one.spec is None else spec_words(one.spec)
        page.write_entry(size_words(one.nbytes), "", f"{head} {spec}".rstrip(), where)
        for axis in one.axes:
            way = f" by way of {', '.join(step.place for step in axis.via)}" if axis.via else ""
            page.write(f"{axis.mesh_axis}: from {axis}{way}", indent=4)
    if rest:
        page.write(f"and {len(rest)} more", indent=2)


class _Entry(NamedTuple):
    """An entry of a list."""

    nbytes: int | None
    """Bytes in front of it."""

    head: str
    """What it is."""

    where: str
    """Line and pass."""

    details: tuple[str, ...]
    """Lines below it."""

    times: int
    """Number of equal ones."""


def _write(page: Page, report: PropagationReport, max_rows: int | None) -> None:
    page.write(report.answer, look="bold")
    devices = counted(report.device_count, "device", "devices")
    mesh = "" if report.mesh is None else f": {mesh_words(report.mesh)}"
    page.write(f"{report.name}, lowered for {report.platform.upper()}, {devices}{mesh}")
    if report.ignored_codes:
        page.write(f"ignored codes: {', '.join(report.ignored_codes)}")
    entries: dict[str, Iterable[_Entry]] = {
        "conflict": map(_conflict, report.conflicts),
        "lost mesh axis": (_loss(one) for one in report.lost if one.nbytes != 0),
        "replicated value": map(_replicated, report.replicated),
    }
    for finding in report.findings:
        cost = f": {format_bytes(finding.nbytes)} per device" if finding.nbytes else ""
        page.write_rule(f"{finding.code} {finding.name}{cost}")
        page.write(finding.problem, hang=0)
        page.write(finding.remedy, hang=0)
        _write_entries(page, list(entries[finding.kind]), max_rows)
    for one in report.unread:
        page.write(f"nothing propagates through {one}", look=style.WARNING)
    for caveat in report.caveats:
        page.write(caveat, look=style.ASIDE)


def _write_entries(page: Page, entries: Sequence[_Entry], max_rows: int | None) -> None:
    """Add a list; entries that differ only in the indices of paths are one."""
    groups: dict[Hashable, list[_Entry]] = {}
    for one in entries:
        key = (one.nbytes, one.where, *map(without_indices, (one.head, *one.details)))
        groups.setdefault(key, []).append(one)
    shown, rest = split_rows(list(groups.values()), max_rows)
    for group in shown:
        first = group[0]
        count = sum(one.times for one in group)
        times = "" if count == 1 else f"{page.marks.times}{count}"
        page.write_entry(size_words(first.nbytes), "", f"{first.head} {times}".rstrip(), first.where)
        for lines in zip(*(one.details for one in group), strict=True):
            page.write(folded_text(lines), indent=4)
    if rest:
        page.write(f"and {len(rest)} more", indent=2)


def size_words(nbytes: int | None) -> str:
    """Return bytes as text, ``?`` for None."""
    return UNKNOWN if nbytes is None else format_bytes(nbytes)


def _where(one: Conflict | Loss | PropagatedValue) -> str:
    return f"{origin_words(one.origin)}{f' ({one.phase})' if one.phase else ''}"


def spec_words(spec: Spec) -> str:
    """Return a spec without trailing entries of None."""
    return str(effective_spec(spec, {}))


def _conflict(one: Conflict) -> _Entry:
    result = f"result {spec_words(one.result)}"
    if len(one.operands) == 1:
        (only,) = one.operands
        details: tuple[str, ...] = (
            f"{only.name} {spec_words(only.spec)}: needs all of '{only.letter}', sharded over"
            f" {only.axis_origin.mesh_axis} ({only.axis_origin})",
            result,
        )
    else:
        details = (
            *(
                f"{each.name} {spec_words(each.spec)}: '{each.letter}' over {each.axis_origin.mesh_axis}"
                f" ({each.axis_origin})"
                for each in one.operands
            ),
            result,
        )
    return _Entry(one.nbytes, f"{one.mesh_axis}: {one.op} {one.rule}", _where(one), details, one.count)


def _loss(one: Loss) -> _Entry:
    details = (
        f"{one.operand} {spec_words(one.before)} became {spec_words(one.after)}",
        _loss_words(one),
    )
    return _Entry(
        one.nbytes,
        f"{one.mesh_axis}: lost in {one.op} {type_text(one.dtype, one.shape)}",
        _where(one),
        details,
        one.count,
    )


def _loss_words(one: Loss) -> str:
    """Return why a mesh axis is lost, with the line of a constraint."""
    at = "" if one.constraint is None else f" ({origin_words(one.constraint)})"
    return f"{_REASONS[one.reason]}{at}"


def _replicated(one: ReplicatedValue) -> _Entry:
    loss = one.loss
    details = (
        f"{one.op} {spec_words(one.spec)}, replicated over {', '.join(one.mesh_axes)}",
        *(
            [f"{loss.mesh_axis} was lost in {loss.op} of {origin_words(loss.origin)}: {_loss_words(loss)}"]
            if loss
            else []
        ),
    )
    return _Entry(one.avoidable_nbytes, type_text(one.dtype, one.shape), _where(one), details, one.count)


def _values_table(report: PropagationReport, max_rows: int | None, page: Page) -> RenderableType | None:
    shown, rest = split_rows(report.values, max_rows)
    if not shown or report.mesh is None:
        return None
    times = page.marks.times
    columns = [
        StackedColumn("per device", [size_words(one.nbytes) for one in shown], is_number=True),
        StackedColumn("value", [_type(one, times) for one in shown]),
        StackedColumn("sharding", [spec_words(one.spec) for one in shown]),
        StackedColumn("from", [origins_words(one) for one in shown]),
        StackedColumn("line", [origin_words(one.origin) for one in shown]),
        StackedColumn("op", [" ".join(filter(None, (one.op, one.phase))) for one in shown]),
    ]
    more = {"per device": "", "value": f"{len(rest)} more"} if rest else None
    return stacked_table("values", columns, _GROUPINGS, width=page.width, encoding=page.encoding, rest=more)


def _type(value: PropagatedValue, times: str) -> str:
    count = "" if value.count == 1 else f" {times}{value.count}"
    return f"{type_text(value.dtype, value.shape)}{count}"


def origins_words(value: PropagatedValue | PropagatedLeaf) -> str:
    """Return the origin of each mesh axis: ``data: argument x; model: argument wi``."""
    return "; ".join(f"{one.mesh_axis}: {one}" for one in value.axes)
