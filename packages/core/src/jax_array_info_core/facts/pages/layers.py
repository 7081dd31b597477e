"""The page of the costs of a program, by parameter or by named scope."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal, get_args

from ...base.grouping import by_key
from ...base.quantities import format_bytes, format_count, percent_words
from ...base.text import plain_text
from ...geometry.layouts.dtypes import type_text
from ..reports.layers import FLOPS_CAVEATS, LayerRow, LayersReport, summed
from .blocks import Column, Listing, Note, Row, Sentence, Table, counted_path, limited, more, said
from .folds import path_keys
from .program_words import sharding_words, title_words

Sort = Literal["tree", "parameters", "held", "sent", "flops", "saved"]
"""Order of the rows: that of the arguments, or by a column, the largest first."""
_FIELDS = {
    "parameters": "parameter_count",
    "held": "held_nbytes",
    "moments": "moment_nbytes",
    "gradient": "gradient_nbytes",
    "sent": "sent_nbytes",
    "forward": "forward_sent_nbytes",
    "backward": "backward_sent_nbytes",
    "reduced": "reduced_nbytes",
    "flops": "flops",
    "flops forward": "forward_flops",
    "flops backward": "backward_flops",
    "recomputed": "recomputed_flops",
    "saved": "saved_nbytes",
}
"""Field of each column of numbers."""
_NUMBERS = ("parameters", "flops", "flops forward", "flops backward", "recomputed")
"""Columns that are no bytes."""
_COLUMNS = (
    Column("name", "path", head="parameter", is_kept=True, meaning="path of the parameters"),
    Column("name", "path", head="scope", is_kept=True, meaning="names of jax.named_scope"),
    Column("type", meaning="dtype and global shape of each parameter"),
    Column("spec", meaning="partition spec of each parameter, or the class of another sharding"),
    Column("parameters", "number", after=" parameters", meaning="number of elements, without replicas"),
    Column("held", "number", meaning="bytes of the parameters and of their moments on a device"),
    Column("moments", "number", after=" moments", meaning="those of the moments in an optimizer's state"),
    Column(
        "gradient",
        "number",
        before="+ ",
        after=" gradient",
        meaning="bytes of the gradients, in addition: as outputs and at the highest point of the schedule",
    ),
    Column("sent", "number", after=" sent", meaning="bytes that a device sends in one call"),
    Column(
        "forward",
        "number",
        head="sent forward",
        after=" forward",
        meaning="those sent outside of the backward pass, to gather the parameters",
    ),
    Column(
        "backward",
        "number",
        head="sent backward",
        after=" backward",
        meaning="those sent in the backward pass, to gather the parameters again",
    ),
    Column("reduced", "number", after=" reduced", meaning="those sent to sum the gradients"),
    Column(
        "flops",
        "number",
        head="FLOPs",
        after=" FLOPs",
        meaning="operations of matrix products and convolutions on a device, rounded down",
    ),
    Column(
        "flops forward", "number", head="FLOPs forward", after=" forward", meaning="those of the forward pass"
    ),
    Column(
        "flops backward",
        "number",
        head="FLOPs backward",
        after=" backward",
        meaning="those of the backward pass",
    ),
    Column("recomputed", "number", after=" recomputed", meaning="those that jax.checkpoint computes again"),
    Column("saved", "number", after=" saved", meaning="bytes that a device saves for the backward pass"),
)
TABLES = {"costs per device and call": _COLUMNS}
"""Columns of the table, by its title."""
_GROUPINGS = (
    [[name] for name in ("name", "type", "spec", *_FIELDS)],
    [["name", "type", "spec"], *([name] for name in _FIELDS)],
    [
        ["name", "type", "spec"],
        ["parameters"],
        ["held", "moments", "gradient"],
        ["sent", "forward", "backward", "reduced"],
        ["flops", "flops forward", "flops backward", "recomputed"],
        ["saved"],
    ],
    [["name", "type", "spec", "parameters"], ["held"], ["sent"], ["flops"], ["saved"]],
    [["name", "type", "spec"], ["held", "sent", "flops", "saved"]],
)
_ANSWERED = {"sent": "bytes sent", "flops": "FLOPs", "held": "bytes held"}
"""Columns that the first line is about."""
_MOST = 3
"""Maximum number of rows that it names."""
_TIMES = 10
"""If the rest takes so many times more than these rows, it stands in their place."""
_INDICES = re.compile(r"(?<![^/._])[0-9]+(?:[-,:][0-9]+)+(?![^/._])")
"""Folded indices in a path."""


def layers_page(report: LayersReport, *, sort: Sort = "tree") -> Iterator[Listing]:
    """Yield the rows that cost most, then all rows with their sums, and what the figures lack.

    Args:
        report: The costs.
        sort: ``tree`` for the order of the arguments; or a column: ``parameters``, ``held``, ``sent``,
            ``flops`` or ``saved``, the largest first.

    Raises:
        ValueError: If ``sort`` is not an order.
    """
    if sort not in get_args(Sort):
        raise ValueError(f"sort must be one of {', '.join(get_args(Sort))}, got {plain_text(sort, repr)}")
    yield Sentence(layers_words(report), "answer")
    yield Sentence(title_words(report))
    yield _table(report, sort)
    yield from said(report.caveats, "aside")


def layers_words(report: LayersReport) -> str:
    """Return what takes most: ``layers/*/up and down take 61% of the bytes sent and 53% of the FLOPs``."""
    if not report.rows:
        return f"no {report.by}s"
    is_bound = {
        "sent": report.total.unknown_count > 0,
        "flops": any(caveat.startswith(FLOPS_CAVEATS) for caveat in report.caveats),
        "held": False,
    }
    parts = []
    for column, noun in _ANSWERED.items():
        whole, rest = _figure(report.total, column), _figure(report.rest, column)
        if not whole:
            continue
        most = _most(report, column)
        number = sum(_figure(row, column) for row in most)
        is_rest = _TIMES * number <= rest
        names = f"what is {report.rest.name}" if is_rest else _together(report, most)
        share = f"{percent_words(rest if is_rest else number, whole, decimals=0)} of the {noun}"
        if is_bound[column]:
            share += " that are known"
        if not is_rest and rest > number:
            share += f" ({percent_words(rest, whole, decimals=0)} {report.rest.name})"
        verb = "takes" if is_rest or (len(most) == 1 and "*" not in names) else "take"
        parts.append((f"{names} {verb}", share))
    answers = (f"{names} {_and(shares)}" for names, shares in by_key(parts).items())
    return "; ".join(answers) or "no costs are known"


def _figure(row: LayerRow, column: str) -> int:
    """Return a number of a row; 0 if it is not known."""
    return getattr(row, _FIELDS[column]) or 0


def _most(report: LayersReport, column: str) -> list[LayerRow]:
    """Return the rows with the most of a column, as few as take half of what all rows take, with equal ones.

    A row that has less than half of the first is not among them.
    """
    rows = sorted(report.rows, key=lambda row: -_figure(row, column))
    half = sum(_figure(row, column) for row in rows) / 2
    most: list[LayerRow] = []
    for row in rows[:_MOST]:
        taken, number = sum(_figure(one, column) for one in most), _figure(row, column)
        is_equal = bool(most) and number == _figure(most[-1], column)
        if not is_equal and (taken >= half or (most and 2 * number < _figure(rows[0], column))):
            break
        most.append(row)
    return most


def _together(report: LayersReport, rows: Sequence[LayerRow]) -> str:
    """Return the names of rows, in their order, with the keys that all begin with written once."""
    names = [
        _INDICES.sub("*", row.name) if report.by == "scope" or len(row.paths) > 1 else row.name
        for row in report.rows
        if row in rows
    ]
    keys = [path_keys(name) for name in names]
    shared = zip(*(path[:-1] for path in keys), strict=False)
    common = len([*takewhile(lambda same: len({*same}) == 1, shared)])
    return _and([names[0], *("/".join(path[common:]) for path in keys[1:])])


def _and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _table(report: LayersReport, sort: Sort) -> Table:
    total = report.total
    rows = sorted(report.rows, key=lambda row: 0 if sort == "tree" else -_figure(row, sort))
    # Without a backward pass, all is of the forward pass.
    whole = {"forward": "sent", "flops forward": "flops"}
    alike = [part for part in whole if _figure(total, part) == _figure(total, whole[part])]
    shown = [name for name in _FIELDS if _figure(total, name) and name not in alike]

    def row(one: LayerRow) -> Row:
        if report.by == "scope":
            return {"name": one.name, **_sums(one, shown)}
        return {
            "name": counted_path(one.name, len(one.paths)),
            "type": "" if one.dtype is None or one.shape is None else type_text(one.dtype, one.shape),
            "spec": "" if one.sharding is None else sharding_words(one.sharding),
            **_sums(one, shown),
        }

    def sums(one: LayerRow) -> Row:
        return {"name": Note(one.name, kind="words"), **_sums(one, shown)}

    def others(hidden: Sequence[LayerRow]) -> Row:
        return sums(summed(more(len(hidden), "row", "rows"), hidden))

    main = next((column for column in _ANSWERED if _figure(total, column)), "parameters")
    size = None if sort != "tree" else lambda one: _figure(one, main)
    return Table(
        "costs per device and call",
        [column for column in _COLUMNS if column.name != "name" or column.head == report.by],
        [limited(rows, row, others, size=size), [sums(report.rest), sums(total)]],
        _GROUPINGS,
        breaks="first",
        is_compact=True,
    )


def _sums(row: LayerRow, shown: Sequence[str]) -> dict[str, str]:
    """Return the cells of the columns that have a figure in any row."""
    cells = {}
    for column in shown:
        number = getattr(row, _FIELDS[column])
        words = format_count(number or 0) if column in _NUMBERS else format_bytes(number or 0)
        cells[column] = words if number else ""
    if row.unknown_count:
        cells["sent"] = f"{cells.get('sent') or format_bytes(0)} + ?"
    return cells
