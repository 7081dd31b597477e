"""The page of a propagation: conflicts, lost mesh axes and replicated values, then all values by line."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeVar

from ...base.config import config
from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes
from ...base.text import UNKNOWN
from ...geometry.layouts.dtypes import type_text
from ...geometry.layouts.spec import Spec, effective_spec
from ..reports import (
    AxisOrigin,
    Conflict,
    ConflictOperand,
    Loss,
    Origin,
    PropagatedLeaf,
    PropagatedValue,
    PropagationReport,
    ReplicatedValue,
)
from ..reports.lost_batch import LostBatch
from ..reports.origin import OperationFact
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
from .folds import folded_text, path_keys, without_indices
from .program_words import (
    Link,
    Pieces,
    Target,
    folded_pieces,
    line_target,
    text_of_pieces,
    words_of,
)
from .words import manual_words, mesh_words, origin_words

MOST_OPS = 4
"""Maximum number of operations of alike values."""
_REASONS = {
    "contracted": "the operation sums the dimension, or needs all of it",
    "conflict": "another operand is sharded in another way",
    "constraint": "the requested sharding leaves it out",
    "not propagated": "it was not propagated",
}
_CONSTRAINTS = ("sharding_constraint", "reshard", "mesh_cast")
"""Operations of JAX that are constraints."""


_PREFIXES = ("smallest operands, ", "values that follow, ")
"""Words before the bytes of conflicts: of what they are."""
_EXPECTED = "Each gathers a parameter for the batch, or costs no more than a parameter with the mesh axis."
_AGAIN = (
    "Constraints leave out a mesh axis of the batch, and later values have it again. For a norm on parts of a"
    " sequence, this is meant:"
)


class Entry(NamedTuple):
    """A conflict, a loss or replicated values, in words; equal ones are one."""

    head: str
    """What it is."""
    details: tuple[Pieces, ...]
    """Lines below it. Before the last piece of a line, it can be broken."""
    fact: OperationFact
    """The first of them; its pass and its columns are those of all, if they agree."""
    nbytes: int | None
    """Bytes per device of one of them."""
    times: int
    """Number of equal ones."""

    @property
    def size(self) -> str:
        """Bytes of all of them as text."""
        return size_words(None if self.nbytes is None else self.total_nbytes)

    @property
    def total_nbytes(self) -> int:
        """Bytes of all of them; 0 if unknown."""
        return (self.nbytes or 0) * self.times


def size_words(nbytes: int | None, count: int = 1) -> str:
    """Return bytes as text; of alike values, those of one: they need not be there at the same time."""
    return UNKNOWN if nbytes is None else f"{format_bytes(nbytes)}{' each' if count > 1 else ''}"


def where_words(fact: OperationFact) -> str:
    """Return the line and the pass of an operation."""
    return f"{origin_words(fact.origin)}{f' ({fact.phase})' if fact.phase else ''}"


def spec_words(spec: Spec) -> str:
    """Return a spec without trailing entries of None."""
    return str(effective_spec(spec, {}))


def leaf_spec_words(leaf: PropagatedLeaf) -> str:
    """Return the spec of an argument or an output; empty if it is unknown."""
    return "" if leaf.spec is None else spec_words(leaf.spec)


def value_spec_words(value: PropagatedValue) -> str:
    """Return the spec of a value; inside a ``shard_map``, with the manual axes, which are not in it."""
    words, axes = spec_words(value.spec), value.manual_axes
    if axes is None:
        return f"{words} in shard_map" if value.in_shard_map else words
    spec = f"{words}, " if any(value.spec.axes) else ""
    invariant = value.invariant_axes
    return spec + (f"manual over {mesh_words(axes)}" if invariant is None else manual_words(axes, invariant))


def origin_target(axis: AxisOrigin) -> Target | None:
    """Return the path or the line that a mesh axis comes from; None if unknown."""
    return axis.path if axis.origin is None else line_target(axis.origin)


def place_words(origin: Origin) -> str:
    """Return file and line; with their functions and callers only if the settings ask for other lines."""
    return origin_words(origin) if config.callers > 1 or origin.skipped else origin.place


def origin_pieces(axis: AxisOrigin) -> Pieces:
    """Return the origin of a mesh axis, as a link to it."""
    target = origin_target(axis)
    words = str(axis) if axis.origin is None else f"{axis.kind} {place_words(axis.origin)}"
    return (words,) if target is None else (Link(words, target),)


def finding_entries(report: PropagationReport, kind: str) -> list[Entry]:
    """Return what a finding of a kind is about, the most bytes first.

    Conflicts and losses that differ only in the indices of paths are one, as are the replicated values of
    several operations.
    """
    match kind:
        case "conflict":
            entries = _folded(_conflict(row) for row in report.conflicts if not row.is_meant)
        case "lost mesh axis":
            entries = _folded(_loss(row) for row in report.lost if row.nbytes != 0 and not row.is_meant)
        case "lost batch":
            entries = map(_lost_batch, report.lost_batches)
        case _:
            entries = map(_replicated, by_key((_facts(row), row) for row in report.replicated).values())
    return sorted(entries, key=lambda entry: -entry.total_nbytes)


def _folded(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries; those that differ only in the indices of paths are one."""

    def key(entry: Entry) -> Hashable:
        texts = (entry.head, *map(text_of_pieces, entry.details))
        return entry.nbytes, where_words(entry.fact), *map(without_indices, texts)

    for group in by_key((key(entry), entry) for entry in entries).values():
        details = zip(*(entry.details for entry in group), strict=True)
        yield group[0]._replace(
            head=folded_text([entry.head for entry in group]),
            details=tuple(map(folded_pieces, details)),
            times=sum(entry.times for entry in group),
        )


def _conflict(conflict: Conflict) -> Entry:
    operands = (_operand(operand, is_whole=len(conflict.operands) == 1) for operand in conflict.operands)
    details = (*operands, (f"result {spec_words(conflict.result)}",))
    return Entry(
        f"{conflict.mesh_axis}: {conflict.op} {conflict.rule}",
        details,
        conflict,
        conflict.cost_nbytes if conflict.following_nbytes is not None else conflict.nbytes,
        conflict.count if conflict.following_nbytes is None else 1,
    )


def _operand(operand: ConflictOperand, *, is_whole: bool) -> Pieces:
    """Return an operand of a conflict: its letter, the mesh axis with its origin, and its spec."""
    axis = operand.axis_origin
    is_own = axis.path == operand.name  # an argument of its own: its path is there already
    origin = (str(axis.kind),) if is_own else origin_pieces(axis)
    needs = "needs all of " if is_whole else ""
    words = f" {needs}'{operand.letter}' over {axis.mesh_axis} ("
    return (_name(operand.name), words, *origin, ")", f", {spec_words(operand.spec)}")


def _name(name: str) -> Link:
    """Return the path of an operand, or its operation and line, as a link."""
    return Link(name, name.rpartition(" of ")[2])


def _loss(loss: Loss) -> Entry:
    operand = (_name(loss.operand), f" {spec_words(loss.before)} became {spec_words(loss.after)}")
    head = f"{_lost(loss)} {type_text(loss.dtype, loss.shape)}"
    again = loss.again
    later = () if again is None else (("again at ", Link(place_words(again), line_target(again))),)
    return Entry(head, (operand, _why(loss), *later), loss, loss.nbytes, loss.count)


def _lost_batch(row: LostBatch) -> Entry:
    head = f"{row.mesh_axis}: batch lost in {row.op} {type_text(row.dtype, row.shape)}"
    return Entry(head, ((_name(row.path), f" {row.change}"), (row.remedy,)), row, row.nbytes, 1)


def _lost(loss: Loss) -> str:
    """Return what is lost where: ``data: lost in dot_general``."""
    if loss.reason != "constraint":
        return f"{loss.mesh_axis}: lost in {loss.op}"
    by = "constraint" if loss.op in _CONSTRAINTS else f"constraint on {loss.op}"
    return f"{loss.mesh_axis}: left out by the {'requested output' if loss.op == 'return' else by}"


def _why(loss: Loss) -> Pieces:
    """Return why a mesh axis is lost, with the line of a constraint."""
    if loss.reason == "constraint" and loss.constraint is not None:
        return (Link(f"constraint {place_words(loss.constraint)}", line_target(loss.constraint)),)
    return (_uneven(loss) if loss.reason == "uneven" else _REASONS[loss.reason],)


def _uneven(loss: Loss) -> str:
    """Return what does not divide: ``24 does not divide by model=16: ...``."""
    if loss.size is None or loss.divisor is None:
        return "the dimension does not divide by it"
    words = f"{loss.size} does not divide by {mesh_words(loss.divisor)}"
    axis, _, part = loss.mesh_axis.partition(":(")
    kept = next((name for dim in loss.after.axes for name in dim if name.startswith(f"{axis}:(")), None)
    if not part or kept is None:
        return words
    major, _, minor = part.partition(")")
    return f"{words}: a factor of {major} stays ({kept}), one of {minor} is lost"


def _loss_detail(loss: Loss | None) -> tuple[Pieces, ...]:
    """Return the loss that explains a replicated value."""
    if loss is None:
        return ()
    origin = loss.origin
    at = () if origin is None else (" at ", Link(place_words(origin), line_target(origin)))
    return ((_lost(loss), *at, ": ", *_why(loss)),)


def _facts(value: ReplicatedValue) -> Hashable:
    """Return what the values of several operations have in common to be one entry."""
    return (
        type_text(value.dtype, value.shape),
        value.spec,
        value.mesh_axes,
        value.avoidable_nbytes,
        origin_words(value.origin),
        *(without_indices(text_of_pieces(line)) for line in _loss_detail(value.loss)),
    )


def _replicated(group: Sequence[ReplicatedValue]) -> Entry:
    first = group[0]
    ops = list(dict.fromkeys(value.op if value.path is None else f"argument {value.path}" for value in group))
    words = (
        f"{spec_words(first.spec)}, replicated over {', '.join(first.mesh_axes)}: {some(ops, MOST_OPS)}",
    )
    return Entry(
        type_text(first.dtype, first.shape),
        (words, *_loss_detail(first.loss)),
        replace(
            first,
            phase=first.phase if len({value.phase for value in group}) == 1 else None,
            columns=first.columns if len({value.columns for value in group}) == 1 else None,
        ),
        first.avoidable_nbytes,
        sum(value.count for value in group),
    )


class ValueRow(NamedTuple):
    """Values of a line that differ at most in their operations and in the indices of their origins' paths."""

    value: PropagatedValue
    """The first of them."""
    origins: tuple[Pieces, ...]
    """Mesh axes, and the link to their origin: ``data, fsdp: argument x``."""
    ops: tuple[str, ...]
    """Their operations, each with its pass."""
    times: int
    """Number of values."""

    @property
    def type_words(self) -> str:
        """Type of the values with their number."""
        return counted_path(type_text(self.value.dtype, self.value.shape), self.times)


def value_rows(values: Iterable[PropagatedValue]) -> list[ValueRow]:
    """Return values, the most bytes first; alike ones of a line are one row."""

    def key(value: PropagatedValue) -> Hashable:
        return (
            value.shape,
            value.dtype,
            value_spec_words(value),
            origin_words(value.origin),
            *(without_indices(text_of_pieces(pieces)) for pieces in _origins(value)),
        )

    rows = [
        ValueRow(
            group[0],
            tuple(map(folded_pieces, zip(*map(_origins, group), strict=True))),
            tuple(dict.fromkeys(f"{value.op} {value.phase or ''}".strip() for value in group)),
            sum(value.count for value in group),
        )
        for group in by_key((key(value), value) for value in values).values()
    ]
    return sorted(rows, key=lambda row: -(row.value.nbytes or 0) * row.times)


def _origins(value: PropagatedValue) -> list[Pieces]:
    """Return the mesh axes of each origin, and the link to it."""
    groups = by_key(((axis.kind, axis.path, axis.origin), axis) for axis in value.axes)
    return [
        (f"{', '.join(axis.mesh_axis for axis in group)}: ", *origin_pieces(group[0]))
        for group in groups.values()
    ]


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
    is_followed = any(row.following_nbytes for row in report.conflicts if not row.is_meant)
    for finding in report.findings:
        # What the compiled program sends for a conflict is another figure, in the output of print_program.
        yield from heading(finding, prefix=_PREFIXES[is_followed] if finding.kind == "conflict" else "")
        entries = finding_entries(report, finding.kind)
        # The heading is about the first lost batch.
        yield _listed(entries[1:] if finding.kind == "lost batch" else entries, _entry)
    yield from _meant(report)
    yield from said((f"nothing propagates through {operation}" for operation in report.unread), "warning")
    yield from said(report.caveats, "aside")
    if with_ways:
        rows: list[PropagatedLeaf | PropagatedValue] = [*report.arguments, *report.outputs, *report.values]
        yield _listed(rows, _ways)
    else:
        yield _values(report)


def _meant(report: PropagationReport) -> Iterator[Listing]:
    """Yield the number of expected conflicts, and the constraints that leave out an axis of the data."""
    if count := sum(row.count for row in report.conflicts if row.is_meant):
        words = counted(count, "expected conflict", "expected conflicts")
        yield Sentence(f"not listed: {words}. {_EXPECTED}", "aside")
    if constraints := [*_folded(_loss(row) for row in report.lost if row.again is not None)]:
        yield Sentence(_AGAIN, hang=0)
        yield _listed(constraints, _entry)


def _listed(rows: Sequence[_T], blocks: Callable[[_T], Iterator[Block]]) -> Limited[_T, Block]:
    """Return the blocks of rows, and the number of those that are left out."""
    return Limited(
        rows,
        lambda shown: chain.from_iterable(map(blocks, shown)),
        lambda hidden: [Sentence(f"and {more(len(hidden))}", indent=2)],
    )


def _entry(entry: Entry) -> Iterator[Block]:
    """Yield an entry of a finding, with its details below it."""
    yield Entries([(entry.size, "", counted_path(entry.head, entry.times), where_words(entry.fact))])
    for *pieces, last in entry.details:
        if pieces:
            yield Sentence("".join(map(words_of, pieces)), indent=4, end=words_of(last))
        else:
            yield Sentence(words_of(last), indent=4)


def _ways(row: PropagatedLeaf | PropagatedValue) -> Iterator[Block]:
    """Yield an argument, an output or values, and each mesh axis with its way from its origin."""
    if isinstance(row, PropagatedLeaf):
        size, where = size_words(row.nbytes), ""
        words = f"{row.path}  {row.type} {leaf_spec_words(row)}".rstrip()
    else:
        size, where = size_words(row.nbytes, row.count), where_words(row)
        array = counted_path(type_text(row.dtype, row.shape), row.count)
        words = f"{row.op}  {array} {value_spec_words(row)}"
    yield Entries([(size, "", words, where)])
    for axis in row.axes:
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
                lambda hidden: {"value": more(sum(row.times for row in hidden))},
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
