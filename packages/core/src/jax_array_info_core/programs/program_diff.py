"""Differences between two compiled programs, and the temporary values that one of them has alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TypeVar

from ..base.errors import require_report
from ..base.grouping import by_key, sums_by_key
from ..base.quantities import counted, known_sum
from ..facts.reports.array import same_sharding
from ..facts.reports.changes import (
    Change,
    DonationChange,
    FigureChange,
    ProgramDiff,
    SentChange,
    SentLine,
    ShardingChange,
    TemporaryChange,
)
from ..facts.reports.collectives import Collective
from ..facts.reports.origin import Origin
from ..facts.reports.program import ProgramReport, unknown_bytes
from ..facts.reports.program_memory import ProgramMemory, Temporary
from ..facts.reports.program_values import (
    Donation,
    ProgramValue,
    uncounted_words,
)
from ..geometry.layouts.spec import other_types
from .memory import MOST_TEMPORARIES

_Place = tuple[str, str]
_Line = tuple[_Place, int]
_MOST_ALIGNED = 1000
"""Maximum number of lines of a function that are aligned, which takes quadratic time; more are compared by
their numbers."""
_TemporaryKey = tuple[object, ...]


def temporary_changes(before: ProgramReport, after: ProgramReport) -> tuple[TemporaryChange, ...]:
    """Return the temporary values whose number differs, the largest difference first."""
    none = ProgramMemory(temporaries=None)
    memories = before.memory or none, after.memory or none
    old, new = (memory.temporaries for memory in memories)
    if old is None or new is None:
        return ()
    old_counts, new_counts = _counts(old), _counts(new)
    # A value that only one report has may be below the last row of the other.
    least_before, least_after = _least(old), _least(new)
    elsewhere = [set(map(_key, memory.elsewhere or ())) for memory in memories]
    changes = []
    for key, value in {_key(temporary): temporary for temporary in (*reversed(new), *reversed(old))}.items():
        counts = old_counts[key], new_counts[key]
        most = value.nbytes * max(counts)
        is_cut = (not counts[0] and most <= least_before) or (not counts[1] and most <= least_after)
        if counts[0] != counts[1] and not is_cut:
            change = TemporaryChange(
                value=replace(value, count=1),
                before=counts[0],
                after=counts[1],
                is_elsewhere_before=not counts[0] and key in elsewhere[0],
                is_elsewhere_after=not counts[1] and key in elsewhere[1],
            )
            changes.append(change)
    return tuple(sorted(changes, key=lambda row: _largest_first(row.nbytes)))


def _counts(values: tuple[Temporary, ...]) -> Counter[_TemporaryKey]:
    return sums_by_key((_key(value), value.count) for value in values)


def _key(value: Temporary) -> _TemporaryKey:
    """Return what equal values of two programs have in common: lines change with every edit."""
    return _place(value.origin), value.shape, value.dtype, value.nbytes, value.is_kept, value.checkpoint_name


def _place(origin: Origin | None) -> _Place | None:
    """Return the file and the function of a line. A notebook cell that runs again has another file."""
    return None if origin is None else (origin.file if origin.cell is None else "", origin.function)


def _line(origin: Origin | None) -> _Line | None:
    place = _place(origin)
    return None if origin is None or place is None else (place, origin.line)


def _least(values: tuple[Temporary, ...]) -> int:
    """Return the bytes of the last row of a report that may have more; 0 if it is complete."""
    return values[-1].nbytes * values[-1].count if len(values) == MOST_TEMPORARIES else 0


_T = TypeVar("_T")
_Key = tuple[str, tuple[str, ...] | None]
_Pair = tuple[ProgramValue | None, ProgramValue | None]

_MEMORY = (
    "argument_nbytes",
    "output_nbytes",
    "alias_nbytes",
    "temporary_nbytes",
    "code_nbytes",
    "peak_nbytes",
    "host_argument_nbytes",
    "host_output_nbytes",
    "host_alias_nbytes",
    "host_temporary_nbytes",
)


def program_diff_report(before: ProgramReport, after: ProgramReport) -> ProgramDiff:
    """Return the figures that differ between two compiled programs: bytes sent, memory, flops, shardings.

    Bytes are those of a device. Bytes sent are compared by kind and mesh axes, with the lines whose bytes
    differ: the number of collectives differs between versions of XLA.

    Args:
        before: A report from ``program_report``.
        after: Another one.

    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    >>> diff = program_diff_report(program_report(lambda x: x, x), program_report(lambda x: x @ x, x))
    >>> [(figure.name, figure.before, figure.after) for figure in diff.figures if "flops" in figure.name]
    [('dot_flops', 0, 524288)]
    """
    for report in (before, after):
        require_report(report, ProgramReport)
    pairs = all_values(before, after)
    renamed = tuple(
        (old.path, other.path)
        for old, other in pairs
        if old is not None and other is not None and old.path != other.path
    )
    return ProgramDiff(
        before_name=before.name,
        after_name=after.name,
        sent=_sent_changes(before, after),
        sent_nbytes_before=before.sent_nbytes,
        sent_nbytes_after=after.sent_nbytes,
        work_share_before=_share(before),
        work_share_after=_share(after),
        figures=tuple(_figure_changes(before, after)),
        shardings=tuple(_sharding_changes(pairs)),
        renamed=renamed,
        donations=tuple(_donation_changes(before, after, dict(renamed))),
        temporaries=temporary_changes(before, after),
        unknown=tuple(
            f"{word} program: {part}"
            for word, report in (("first", before), ("second", after))
            for part in _unknown(report)
        )
        + tuple(_work_unknown(before, after)),
    )


def _sent_changes(before: ProgramReport, after: ProgramReport) -> tuple[SentChange, ...]:
    """Return the bytes sent by kind and axes where they differ, the largest difference first."""
    old, new = _by_kind_and_axes(before), _by_kind_and_axes(after)
    # Of a program that is known in part, a kind that it does not show is not one that it lacks.
    rest_before, rest_after = (0 if report.is_sent_known else None for report in (before, after))
    numbers = _same_lines(before.collectives or (), after.collectives or ())
    changes = [
        SentChange(
            kind=key[0],
            axes=key[1],
            before=old.get(key, rest_before),
            after=new.get(key, rest_after),
            lines=tuple(_sent_lines(key, before, after, numbers)),
        )
        for key in dict.fromkeys([*old, *new])
        if key not in old or key not in new or old[key] != new[key]
    ]
    return tuple(sorted(changes, key=lambda change: (*_largest_first(change), change.kind)))


def _of(key: _Key, report: ProgramReport) -> list[Collective]:
    return [
        collective for collective in report.collectives or () if (collective.kind, collective.axes) == key
    ]


def _sent_lines(
    key: _Key, before: ProgramReport, after: ProgramReport, numbers: Mapping[_Line, int]
) -> list[SentLine]:
    """Return the lines whose bytes differ, the largest difference first."""
    rows: dict[object, tuple[list[Collective], list[Collective]]] = {}
    for row in _of(key, before):
        line = _line(row.origin)
        # A line that only the first program has differs from that of the second with the same number.
        place = None if line is None else (line[0], numbers[line]) if line in numbers else (line, "removed")
        rows.setdefault(place, ([], []))[0].append(row)
    for row in _of(key, after):
        rows.setdefault(_line(row.origin), ([], []))[1].append(row)
    lines = [
        SentLine(
            origin=(new or old)[0].origin,
            before=sent_nbytes(old) if before.is_sent_known else None,
            after=sent_nbytes(new) if after.is_sent_known else None,
        )
        for old, new in rows.values()
    ]
    changed = [line for line in lines if line.before != line.after]
    return sorted(changed, key=lambda line: (*_largest_first(line), str(line.origin)))


def _same_lines(before: Sequence[Collective], after: Sequence[Collective]) -> dict[_Line, int]:
    """Return the lines of the first program that the second one has too, with their numbers in the second.

    A line that an edit moves, or that is edited alone, is the same line. The lines of a function are aligned
    by their text; where that is unknown, by the distance that more of them moved.
    """
    old, new = _codes(before), _codes(after)
    matched: dict[_Line, int] = {}
    for place in old.keys() & new.keys():
        numbers = sorted(old[place]), sorted(new[place])
        if max(map(len, numbers)) > _MOST_ALIGNED:
            matched |= {(place, number): number for number in old[place].keys() & new[place].keys()}
            continue
        texts = [old[place][number] for number in numbers[0]], [new[place][number] for number in numbers[1]]
        moved = _distance(*numbers)
        keys = texts if all(map(all, texts)) else ([number + moved for number in numbers[0]], numbers[1])
        for tag, *(i, i_stop, j, j_stop) in SequenceMatcher(None, *keys).get_opcodes():
            if tag == "equal" or (tag == "replace" and i_stop - i == j_stop - j):
                pairs = zip(numbers[0][i:i_stop], numbers[1][j:j_stop], strict=True)
                matched |= {(place, number): other for number, other in pairs}
    return matched


def _codes(collectives: Sequence[Collective]) -> dict[_Place, dict[int, str]]:
    """Return the text of the lines of each function, by their numbers."""
    origins = (collective.origin for collective in collectives if collective.origin is not None)
    lines = ((_line(origin), origin.code.strip()) for origin in origins)
    codes = by_key((line[0], (line[1], code)) for line, code in lines if line is not None)
    return {place: dict(of_place) for place, of_place in codes.items()}


def _distance(old: Sequence[int], new: Sequence[int]) -> int:
    """Return the distance that the lines of a function moved: none, that of the first or of the last one."""
    known = set(new)
    distances = (0, new[0] - old[0], new[-1] - old[-1])
    return max(distances, key=lambda moved: sum(number + moved in known for number in old))


def sent_nbytes(collectives: Iterable[Collective]) -> int | None:
    """Return the bytes that collectives send per device; None if part of them is unknown."""
    return known_sum(collective.total_nbytes for collective in collectives)


def _largest_first(change: Change) -> tuple[bool, int]:
    return change.difference is not None, -abs((change.after or 0) - (change.before or 0))


def _by_kind_and_axes(report: ProgramReport) -> dict[_Key, int | None]:
    return {
        (sent.kind or "", sent.axes): sent.nbytes if report.is_sent_known and not sent.unknown_count else None
        for sent in (report.sent.by_kind_and_axes if report.sent else ())
    }


def _figure_changes(before: ProgramReport, after: ProgramReport) -> Iterator[FigureChange]:
    none = ProgramMemory()
    memories = before.memory or none, after.memory or none
    are_counted = None not in (before.dot_flops, after.dot_flops)
    works = (before.work, after.work) if None not in (_share(before), _share(after)) else (None, None)
    flops = ("dot_flops", "fft_flops", "decomposition_flops", *(() if are_counted else ("known_dot_flops",)))
    for names, owners in ((_MEMORY, memories), (flops, (before, after)), (("repeated_flops",), works)):
        for name in names:
            old, new = (getattr(owner, name, None) for owner in owners)
            if old != new:
                yield FigureChange(name=name, before=old, after=new)


def _share(report: ProgramReport) -> float | None:
    """Return the share of work of each device; None if it is unknown."""
    return None if report.work is None else report.work.share


def _work_unknown(before: ProgramReport, after: ProgramReport) -> Iterator[str]:
    """Yield why the share of work of one program is unknown, if that of the other is known."""
    return (
        f"{word} program: share of work: {report.work.reason}"
        for word, report, other in (("first", before, after), ("second", after, before))
        if _share(other) is not None and report.work is not None and report.work.reason is not None
    )


def _sharding_changes(pairs: Iterable[_Pair]) -> Iterator[ShardingChange]:
    for old, other in pairs:
        known = other or old
        if known is not None and (old is None or other is None or not _same(old, other)):
            yield ShardingChange(
                path=known.path,
                before=None if old is None else old.got,
                after=None if other is None else other.got,
                before_type=None if old is None else old.type,
                after_type=None if other is None else other.type,
                before_memory_kind=None if old is None else old.host_memory_kind,
                after_memory_kind=None if other is None else other.host_memory_kind,
            )


def all_values(before: ProgramReport, after: ProgramReport) -> list[_Pair]:
    """Return the arguments and the outputs of two programs in pairs."""
    return [*_by_path(before.arguments, after.arguments), *_by_path(before.outputs, after.outputs)]


def _by_path(old: Sequence[ProgramValue], new: Sequence[ProgramValue]) -> Iterator[_Pair]:
    """Yield the values with the same path, and those that can only have been renamed."""
    before, after = {value.path: value for value in old}, {value.path: value for value in new}
    renamed = _renamed(
        [value for value in old if value.path not in after],
        [value for value in new if value.path not in before],
    )
    to = set(renamed.values())
    return (
        (former, after[renamed[path]] if path in renamed else other)
        for path, former, other in _pairs(before, after)
        if path not in to
    )


def _renamed(old: Sequence[ProgramValue], new: Sequence[ProgramValue]) -> dict[str, str]:
    """Return the paths of values that can only have been renamed, as ``outputs/w1`` to ``outputs/0/w1``.

    They end alike, and no other value of their type ends like that. An only output has no name of its own.
    """
    names: dict[str, str] = {}
    ends = [[(value, value.path.split("/")) for value in values] for values in (old, new)]
    most = max((len(parts) for values in ends for _, parts in values), default=0) if old and new else 0
    for length in range(most, -1, -1):
        alike: list[dict[object, list[str]]] = [{}, {}]
        for values, by_end, known in zip(ends, alike, (names.keys(), set(names.values())), strict=True):
            for value, parts in values:
                if len(parts) >= length and value.path not in known:
                    by_end.setdefault((value.type, *parts[len(parts) - length :]), []).append(value.path)
        for end, paths in alike[0].items():
            others = alike[1].get(end, [])
            if len(paths) == len(others) == 1 and (length or "outputs" in (paths[0], others[0])):
                names[paths[0]] = others[0]
    return names


def _pairs(old: Mapping[str, _T], new: Mapping[str, _T]) -> Iterator[tuple[str, _T | None, _T | None]]:
    for key in dict.fromkeys([*old, *new]):
        yield key, old.get(key), new.get(key)


def _same(value: ProgramValue, other: ProgramValue) -> bool:
    """Return whether two values have the same type and memory, and equivalent shardings."""
    is_alike = value.type == other.type and value.is_pruned == other.is_pruned
    return is_alike and is_placed_alike(value, other)


def is_placed_alike(value: ProgramValue, other: ProgramValue) -> bool:
    """Return whether two values have the same memory and equal shardings, over axes of the same types."""
    if value.host_memory_kind != other.host_memory_kind:
        return False
    if value.got is None or other.got is None:
        return value.got is other.got
    is_alike = value.got == other.got or same_sharding(value.got, other.got) is True
    return is_alike and not other_types(value.got.mesh, other.got.mesh)


def _donation_changes(
    before: ProgramReport, after: ProgramReport, renamed: Mapping[str, str]
) -> Iterator[DonationChange]:
    if before.donations is None or after.donations is None:
        return
    old = {renamed.get(donation.path, donation.path): donation for donation in before.donations}
    new = {donation.path: donation for donation in after.donations}
    paths = (
        {renamed.get(argument.path, argument.path) for argument in before.arguments},
        {argument.path for argument in after.arguments},
    )
    for path, donation, other in _pairs(old, new):
        if _is_reused(donation) != _is_reused(other):
            yield DonationChange(
                path=path,
                before=donation,
                after=other,
                is_absent_before=path not in paths[0],
                is_absent_after=path not in paths[1],
            )


def _is_reused(donation: Donation | None) -> bool | None:
    """Return whether the memory of an argument is reused; None if it is not donated.

    By which of several equal outputs does not matter, and its bytes follow from its sharding.
    """
    return None if donation is None else donation.output is not None


def _unknown(report: ProgramReport) -> Iterator[str]:
    if report.out_of_memory is not None:
        yield "it does not fit the memory of a device"
    if report.reason is not None:
        yield report.reason
    yield from (part.words for part in report.left_out)
    if report.unread:
        yield f"{counted(len(report.unread), 'line', 'lines')} could not be read"
    yield from unknown_bytes(report)
    yield from (f"flops: {words}" for words in uncounted_words(report.uncounted_flops or ()))
    for kind, totals in (
        ("flops", report.dot_totals),
        ("FFT flops", report.fft_totals),
        *((f"{totals.operation} flops", totals) for totals in report.decompositions or ()),
    ):
        if totals is not None and totals.bound is not None and totals.exact is None:
            yield f"{kind}: {totals.words}"
