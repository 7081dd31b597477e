"""The page of the differences between two programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

from ...base.quantities import counted, decimal_words, format_bytes, grouped, known_sum
from ...base.text import UNKNOWN, that_apply
from ...geometry.layouts.dtypes import type_text
from ..reports import (
    Change,
    Donation,
    DonationChange,
    FigureChange,
    ProgramDiff,
    SentChange,
    SentLine,
    ShardingChange,
    ShardingDescription,
    TemporaryChange,
)
from ..reports.changes import rule_lines
from ..reports.collectives import axes_words
from .blocks import (
    Block,
    Column,
    Grouping,
    Limited,
    Row,
    Sentence,
    Table,
    counted_path,
    limited,
    more,
    said,
)
from .folds import folded, folded_text, without_indices
from .program_words import kept_words
from .words import change_words, more_or_less, origin_words, rule_results

_FIGURES = {
    "argument_nbytes": "arguments",
    "output_nbytes": "outputs",
    "alias_nbytes": "reused by donation",
    "temporary_nbytes": "temporaries",
    "code_nbytes": "code",
    "peak_nbytes": "peak",
    "host_argument_nbytes": "host arguments",
    "host_output_nbytes": "host outputs",
    "host_alias_nbytes": "host reused by donation",
    "host_temporary_nbytes": "host temporaries",
    "dot_flops": "matmul and convolution FLOPs",
    "known_dot_flops": "known FLOPs",
    "fft_flops": "FFT FLOPs",
    "decomposition_flops": "decomposition FLOPs",
    "repeated_flops": "FLOPs beyond the share of the device",
}
"""Printed name of each figure."""
_SIGNS = {"argument_nbytes": 1, "output_nbytes": 1, "temporary_nbytes": 1, "alias_nbytes": -1}
"""Figures that make up the memory of a program without a peak."""
_UNCOUNTED = (
    "From the schedule, with values in the memory of outputs, which XLA's figure of temporaries leaves out."
)
_MOST_LINES = 3
"""Maximum number of lines below a kind of collectives; one more row has the sum of the others."""
_CHANGE = ("before", "after", "difference")
_CHANGE_COLUMNS = (
    Column("before", "number", "before: ", meaning="figure of the first program"),
    Column("after", "number", "after: ", meaning="figure of the second program"),
    Column("difference", "number", "difference: ", meaning="second figure minus the first"),
)
_LEAF_COLUMNS = (
    Column("of", "path", head="path"),
    Column("before", before="before: ", meaning="sharding or donation in the first program"),
    Column("its", head="detail before", meaning="sharding, if the type differs, or bytes of a donation"),
    Column("after", before="after: ", meaning="sharding or donation in the second program"),
    Column("their", head="detail after", meaning="sharding, if the type differs, or bytes of a donation"),
)
TABLES: dict[str, Sequence[Column]] = {
    "sent per device and call": (
        Column("of", head="collective", meaning="kind of collective, and below it the lines that changed"),
        Column("over", before="over ", meaning="mesh axes over which data moves"),
        *_CHANGE_COLUMNS,
    ),
    "memory and flops per device": (
        Column("of", head="figure", meaning="bytes or FLOPs of one call on one device"),
        *_CHANGE_COLUMNS,
    ),
    "renamed arguments and outputs": (
        Column("of", "path", head="before", meaning="path in the first program"),
        Column("after", "path", "after: ", meaning="path in the second program"),
    ),
    "arguments and outputs": _LEAF_COLUMNS,
    "donations": _LEAF_COLUMNS,
    "temporaries at the peak": (
        Column("of", head="array", meaning="dtype and shape on one device"),
        Column("line", meaning="line of your code that computes the value"),
        Column(
            "kept",
            before="kept ",
            meaning="whether a loop or the backward pass keeps the value, and its checkpoint_name",
        ),
        *_CHANGE_COLUMNS,
        Column("note", meaning="program that has such values, but not at its peak"),
    ),
}
"""Columns of each table, by its title."""
_NUMBERS: Sequence[Grouping] = (
    (("of",), ("over",), *((name,) for name in _CHANGE)),
    (("of", "over"), *((name,) for name in _CHANGE)),
    (("of", "over", *_CHANGE),),
)
_TEMPORARIES: Sequence[Grouping] = (
    (("of",), ("line",), ("kept",), *((name,) for name in _CHANGE), ("note",)),
    (("of", "line", "kept", "note"), *((name,) for name in _CHANGE)),
    (("of", "line", "kept", *_CHANGE, "note"),),
)
_LEAF = ("of", "before", "its", "after", "their")
_LEAVES: Sequence[Grouping] = ((("of",), ("before", "its"), ("after", "their")), (_LEAF,))


def program_diff_page(report: ProgramDiff) -> Iterator[Block]:
    """Yield the answer and the bytes sent, then a table of each kind of differences.

    Args:
        report: The differences.
    """
    before, after = report.before_name, report.after_name
    yield from rule_results(rule_lines(report.rules))
    yield Sentence(_answer(report), "answer")
    yield Sentence(before if before == after else f"from {before} to {after}")
    yield Sentence(f"sent per device and call: {change_words(report.sent_nbytes)}")
    shares = [_share_words(share) for share in (report.work_share_before, report.work_share_after)]
    if len({*shares}) > 1:
        yield Sentence(f"share of work: {shares[0]} before, {shares[1]} after")
    if report.unknown:
        yield Sentence("not compared:", "alarm")
    yield from said(report.unknown, indent=2)
    yield from _tables(report)


def _share_words(share: float | None) -> str:
    """Return the share of the work that each device does, in words."""
    return "unknown" if share is None else f"{decimal_words(share, decimals=2)} times"


def _answer(report: ProgramDiff) -> str:
    """Return what the second program sends and needs in addition, and the numbers of other differences."""
    if report.is_empty:
        return "no differences, as far as known" if report.unknown else "no differences"
    sent = report.sent_nbytes.difference
    memory = _memory_difference(report.figures)
    new = sum(change.before_type is None for change in report.shardings)
    gone = sum(change.after_type is None for change in report.shardings)
    leaves = ((len(report.renamed), "renamed"), (new, "new"), (gone, "absent"))
    counts = ((len(report.shardings) - new - gone, "sharding"), (len(report.donations), "donation"))
    differ = " and ".join(counted(count, noun, f"{noun}s") for count, noun in counts if count)
    verb = "differs" if sum(count for count, _ in counts) == 1 else "differ"
    parts = that_apply(
        (sent, f"sends {more_or_less(sent or 0)} per device and call"),
        (sent is None and report.sent, "sends other bytes, in part unknown"),
        (memory, f"needs {more_or_less(memory or 0)} memory per device"),
        *((count, f"{counted(count, 'leaf is', 'leaves are')} {word}") for count, word in leaves),
        (differ, f"{differ} {verb}"),
    )
    return "; ".join(parts) or "other figures differ: see below"


def _memory_difference(figures: Sequence[FigureChange]) -> int | None:
    """Return the bytes that the second program needs in addition; None if unknown."""
    changes = {figure.name: figure.difference for figure in figures}
    signs = {"peak_nbytes": 1} if "peak_nbytes" in changes else _SIGNS
    signed = [(changes[name], sign) for name, sign in signs.items() if name in changes]
    return known_sum(None if change is None else sign * change for change, sign in signed)


def _tables(report: ProgramDiff) -> Iterator[Table]:
    """Yield a table of each kind of differences; of those without any, too."""
    yield Table(
        "sent per device and call",
        TABLES["sent per device and call"],
        [
            Limited(
                report.sent,
                lambda shown: [row for change in shown for row in _sent_rows(change)],
                lambda others: [_more(others)],
                is_apart=True,
            )
        ],
        _NUMBERS,
    )
    yield Table(
        "memory and flops per device",
        TABLES["memory and flops per device"],
        [limited(report.figures, _figure, _more, is_apart=True)],
        _NUMBERS,
    )
    yield Table(
        "renamed arguments and outputs",
        TABLES["renamed arguments and outputs"],
        [limited(report.renamed, lambda paths: {"of": paths[0], "after": paths[1]}, _more, is_apart=True)],
        [[["of"], ["after"]], [["of", "after"]]],
    )
    yield _leaves("arguments and outputs", [*map(_shardings, report.shardings)])
    yield _leaves("donations", [*map(_donations, report.donations)])
    yield Table(
        "temporaries at the peak",
        TABLES["temporaries at the peak"],
        [limited(report.temporaries, _temporary, _more, is_apart=True)],
        _TEMPORARIES,
        caption=_UNCOUNTED if report.has_uncounted_temporaries else "",
    )


def _more(others: Sequence[object]) -> Row:
    return {"of": more(len(others))}


def _change(change: Change, *, is_bytes: bool = True) -> dict[str, str]:
    """Return the cells of a number before and after, and of the difference if both are known."""
    difference, write = change.difference, format_bytes if is_bytes else grouped
    words = [UNKNOWN if number is None else write(number) for number in (change.before, change.after)]
    if difference is not None:
        sign = "+" if difference > 0 else "-" if difference < 0 else ""
        words.append(f"{sign}{write(abs(difference))}")
    return dict(zip(_CHANGE, words, strict=False))


def _sent_rows(change: SentChange) -> Iterator[Row]:
    """Yield the row of a kind and axes, and those of the lines that it changed in."""
    yield {"of": change.kind, "over": axes_words(change.axes), **_change(change)}
    yield from chain(*limited(change.lines, _line, _more_lines).first(_MOST_LINES))


def _line(line: SentLine) -> Row:
    return {"of": f"  {origin_words(line.origin, 'line unknown')}", **_change(line)}


def _more_lines(others: Sequence[SentLine]) -> Row:
    sums = Change(
        before=known_sum(line.before for line in others), after=known_sum(line.after for line in others)
    )
    return {"of": f"  {more(len(others), 'line', 'lines')}", **_change(sums)}


def _figure(change: FigureChange) -> Row:
    is_bytes = not change.name.endswith("_flops")
    return {"of": _FIGURES.get(change.name, change.name), **_change(change, is_bytes=is_bytes)}


def _temporary(change: TemporaryChange) -> Row:
    """Return the row of temporary values, with a note if those of one program are not live at its peak."""
    value = change.value
    elsewhere = that_apply(
        (change.is_elsewhere_before, "before: not at the peak"),
        (change.is_elsewhere_after, "after: not at the peak"),
    )
    return {
        "of": type_text(value.dtype, value.shape),
        "line": origin_words(value.origin, "line unknown"),
        "kept": kept_words(value).removeprefix("kept "),
        **_change(change.nbytes),
        "note": elsewhere[:1],
    }


_Side: TypeAlias = tuple[str, str]
"""What a leaf is before or after, and a line below it, which may be empty."""
_Leaf: TypeAlias = tuple[str, str, str, str, str]
"""The path of a leaf, and its sides before and after."""


def _leaves(title: str, leaves: Sequence[_Leaf]) -> Table:
    """Return a table of leaves, those that differ only in the indices of their paths in one row."""

    def row(fold: tuple[str, list[_Leaf]]) -> Row:
        path, alike = fold
        _, *columns = zip(*alike, strict=True)
        return dict(zip(_LEAF, (counted_path(path, len(alike)), *map(folded_text, columns)), strict=True))

    return Table(
        title,
        TABLES[title],
        [
            limited(
                folded(leaves, lambda leaf: tuple(map(without_indices, leaf[1:])), itemgetter(0)),
                row,
                lambda others: _more([leaf for _, alike in others for leaf in alike]),
                is_apart=True,
            )
        ],
        _LEAVES,
    )


def _shardings(change: ShardingChange) -> _Leaf:
    """Return the type and the sharding of a leaf before and after."""
    old, new = change.before_type, change.after_type
    return (
        change.path,
        *_sharding(old, new, change.before, change.after, change.before_memory_kind),
        *_sharding(new, old, change.after, change.before, change.after_memory_kind),
    )


def _sharding(
    type_: str | None,
    other_type: str | None,
    sharding: ShardingDescription | None,
    other_sharding: ShardingDescription | None,
    memory_kind: str | None,
) -> _Side:
    """Return the type and the sharding of a leaf before or after, without a type that does not change."""
    if type_ is None:
        return "absent", ""
    place = f" in {memory_kind}" if memory_kind else ""
    words = (UNKNOWN if sharding is None else sharding.beside(other_sharding)) + place
    return (words, "") if type_ == other_type else (type_, words)


def _donations(change: DonationChange) -> _Leaf:
    """Return what happens to an argument before and after."""
    return (
        change.path,
        *_donation(change.before, is_absent=change.is_absent_before),
        *_donation(change.after, is_absent=change.is_absent_after),
    )


def _donation(donation: Donation | None, *, is_absent: bool) -> _Side:
    """Return the output that reuses a donated argument, else the reason, and the bytes."""
    if donation is None:
        return "absent" if is_absent else "not donated", ""
    nbytes = format_bytes(donation.nbytes)
    if donation.output is None:
        return "not reused", f"{nbytes}, {donation.reason or 'reason unknown'}"
    is_named_alike = donation.output == f"outputs/{donation.path}"
    return "reused" if is_named_alike else f"reused for {donation.output}", nbytes
