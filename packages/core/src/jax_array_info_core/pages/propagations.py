"""The page of a propagation: conflicts, lost mesh axes and replicated values, then all values by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from ..layouts.dtypes import type_text
from ..quantities import counted
from ..reports import PropagatedLeaf, PropagatedValue, PropagationReport
from .blocks import (
    SKIPPED_COLUMNS,
    Block,
    Column,
    Entries,
    Limited,
    Listing,
    Note,
    Row,
    Sentence,
    Source,
    Table,
    counted_path,
    limited,
    more,
    said,
    some,
)
from .findings import heading
from .folds import path_keys
from .links import Pieces, text_of_pieces, words_of
from .propagation_words import (
    MOST_OPS,
    Entry,
    ValueRow,
    finding_entries,
    leaf_spec_words,
    place_words,
    size_words,
    value_rows,
    value_spec_words,
    where_words,
)
from .words import mesh_words

_MOST_KEYS = 40
"""Maximum number of keys that a shortened path has."""
_WIDE = ("per device", "value", "sharding", "from", "line", "op", "function")
_LINES = ("short line", "short origins")
TABLES = {
    "values": (
        Column("per device", "number", meaning="bytes of the values of the row on one device"),
        Column(
            "value",
            meaning="dtype and global shape, of one shard inside shard_map, and the number of equal values",
        ),
        Column("sharding", meaning="partition spec after propagation"),
        Column("from", meaning="argument, output, constraint or shard_map that each mesh axis comes from"),
        Column("line", meaning="line of your code that computes the value"),
        Column("function"),
        Column("op", meaning="operations of the line, and their pass"),
        Column("short line", head="line, op and origin", replaces=("line", "op")),
        Column("short origins", replaces=("from",)),
        Column("last function", head="function", is_optional=True, replaces=("function",)),
    )
}
"""Columns of the table, by its title."""
_T = TypeVar("_T")


def propagation_page(report: PropagationReport, *, with_ways: bool = False) -> Iterator[Listing]:
    """Yield the answer, the conflicts, lost mesh axes and replicated values, then the table of all values.

    Args:
        report: The propagation.
        with_ways: Whether to list the values with the way of each mesh axis from its origin, without a table.
    """
    devices = counted(report.device_count, "device", "devices")
    mesh = "" if report.mesh is None else f": {mesh_words(report.mesh)}"
    yield Sentence(report.answer, "answer")
    yield Sentence(f"{report.name}, lowered for {report.platform.upper()}, {devices}{mesh}")
    yield from said(report.accepted)
    yield Source(report)
    for finding in report.findings:
        # What the compiled program sends for a conflict is another figure, in the output of print_program.
        yield from heading(finding, of="smallest operands, " if finding.kind == "conflict" else "")
        yield _listed(finding_entries(report, finding.kind), _entry)
    yield from said((f"nothing propagates through {operation}" for operation in report.unread), "warning")
    yield from said(report.caveats, "aside")
    if with_ways:
        rows: list[PropagatedLeaf | PropagatedValue] = [*report.arguments, *report.outputs, *report.values]
        yield _listed(rows, _ways)
    else:
        yield _values(report)


def _listed(rows: Sequence[_T], blocks: Callable[[_T], Iterator[Block]]) -> Limited[_T, Block]:
    """Return the blocks of rows, and the number of those that are left out."""
    return Limited(
        rows,
        lambda shown: chain.from_iterable(map(blocks, shown)),
        lambda left: [Sentence(f"and {more(len(left))}", indent=2)],
    )


def _entry(one: Entry) -> Iterator[Block]:
    """Yield an entry of a finding, with its details below it."""
    yield Entries([(one.size, "", counted_path(one.head, one.times), where_words(one.fact))])
    for *pieces, last in one.details:
        if pieces:
            yield Sentence("".join(map(words_of, pieces)), indent=4, end=words_of(last))
        else:
            yield Sentence(words_of(last), indent=4)


def _ways(one: PropagatedLeaf | PropagatedValue) -> Iterator[Block]:
    """Yield an argument, an output or values, and each mesh axis with its way from its origin."""
    if isinstance(one, PropagatedLeaf):
        size, where = size_words(one.nbytes), ""
        words = f"{one.path}  {one.type} {leaf_spec_words(one)}".rstrip()
    else:
        size, where = size_words(one.nbytes, one.count), where_words(one)
        array = counted_path(type_text(one.dtype, one.shape), one.count)
        words = f"{one.op}  {array} {value_spec_words(one)}"
    yield Entries([(size, "", words, where)])
    for axis in one.axes:
        way = f" by way of {', '.join(step.place for step in axis.via)}" if axis.via else ""
        yield Sentence(f"{axis.mesh_axis}: from {axis}{way}", indent=4)


def _values(report: PropagationReport) -> Table:
    """Return the table of the values; with less room, one column has line, operations and origins."""
    return Table(
        "values",
        TABLES["values"],
        [
            limited(
                value_rows(report.values) if report.mesh else (),
                _value,
                lambda left: {"value": more(sum(row.times for row in left))},
                is_apart=True,
            )
        ],
        [
            [[name] for name in _WIDE],
            [[name] for name in _WIDE[:-1]],
            [["per device"], ["value", "sharding"], _LINES, ["last function"]],
            [["per device"], ["value", "sharding"], _LINES],
            [["per device"], ["value", "sharding", "line", "from"]],
        ],
    )


def _value(row: ValueRow) -> Row:
    value, origin = row.value, row.value.origin
    line, function = ("", "") if origin is None else (place_words(origin), origin.function)
    return {
        "per device": size_words(value.nbytes, row.times),
        "value": row.type_words,
        "sharding": value_spec_words(value),
        "from": "; ".join(map(text_of_pieces, row.origins)),
        "line": line,
        "op": some(row.ops, MOST_OPS),
        "function": function,
        "short line": _short_line(line, row),
        "short origins": [*map(_short_origin, row.origins)],
        "last function": function,
    }


def _short_line(line: str, row: ValueRow) -> Note:
    """Return a line with as many of its operations as there is room for."""
    texts = [f"{line} {some(row.ops, most)}" for most in range(MOST_OPS, 0, -1)]
    if len(row.ops) == 1:
        texts.append(f"{line} {row.value.op}")  # without its pass
    number = f"{line}, {counted(len(row.ops), 'operation', 'operations')}"
    return Note(texts[0], shorter=[*texts[1:], number])


def _short_origin(pieces: Pieces) -> Note:
    """Return an origin; with less room without its kind, without the begin of its path, or the function."""
    axes, origin = map(words_of, pieces)
    kind, _, name = origin.partition(" ")
    keys = path_keys(name)[-_MOST_KEYS:] if kind == "argument" else ()
    ends = [f"{SKIPPED_COLUMNS}/{'/'.join(keys[start:])}" for start in range(1, len(keys))]
    return Note(axes + origin, shorter=[axes + text for text in (name, *ends, name.partition(" ")[0])])
