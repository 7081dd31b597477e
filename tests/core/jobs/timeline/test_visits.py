"""Figures of the marked parts of a program, from their own marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import timeline_report
from jax_array_info_core.facts.reports.record import RecordEnd, RecordLine, RecordSample
from jax_array_info_core.reports import TimelineReport

from .samples import MIB, START, record_group, record_mark, record_start, write_record

pytestmark = pytest.mark.newest

ONE, OTHER = record_group(1, 7), record_group(2, 8)


def _sample(second: float, one: int, other: int = 0, **fields: object) -> RecordSample:
    """Return a sample with a number of arrays of two lines, one MiB each."""
    alive = {group.id: count for group, count in ((ONE, one), (OTHER, other)) if count}
    plain: dict[str, object] = {"in_use": ((one + other) * MIB,)}
    return RecordSample(
        time=START + second,
        groups=tuple(alive),
        counts=tuple(alive.values()),
        **{**plain, **fields},  # type: ignore[arg-type]
    )


def _report(folder: Path, lines: Sequence[RecordLine]) -> TimelineReport:
    in_order = sorted(lines, key=lambda line: line.time)  # type: ignore[union-attr]
    write_record(folder, [record_start(), ONE, OTHER, *in_order])
    return timeline_report(folder)


def _part(start: float, stop: float, begin: int | None, finish: int | None) -> list[RecordLine]:
    """Return the begin and end of a part, with MiB in use; None for unknown."""
    found: list[RecordLine] = []
    for second, mib in ((start, begin), (stop, finish)):
        in_use = () if mib is None else (mib * MIB,)
        found.append(record_mark(second, "eval", is_end=second == stop, in_use=in_use))
    return found


def test_parts_between_samples_keep_the_sum_of_all(tmp_path: Path) -> None:
    """Ten loads of 32 MiB each keep 320 MiB. By how much the use rose in them is unknown."""
    parts = [_part(n + 0.2, n + 0.3, 32 * n, 32 * (n + 1)) for n in range(10)]
    lines = [line for n in range(10) for line in (_sample(n, 32 * n), *parts[n])]
    report = _report(tmp_path, [*lines, _sample(10, 320)])
    [mark] = report.marks
    assert (mark.count, mark.kept_nbytes, mark.added_nbytes) == (10, 320 * MIB, None)
    assert mark.peak_nbytes == 320 * MIB
    assert mark.groups == ()


def test_what_was_allocated_before_a_part_is_not_its_own(tmp_path: Path) -> None:
    """Neither bytes, arrays, peak nor jump of a part are those from before its begin."""
    lines = [_sample(n, 10) for n in range(10)]
    # Between two samples, the program allocates 500 arrays, and begins.
    lines += [_sample(n, 10, 500) for n in range(10, 30)]
    report = _report(tmp_path, [*lines, *_part(9.5, 19.5, 510, 510)])
    [mark] = report.marks
    assert (mark.added_nbytes, mark.kept_nbytes, mark.groups) == (0, 0, ())
    [jump] = report.jumps
    assert (jump.nbytes, jump.mark) == (500 * MIB, None)


@pytest.mark.parametrize(
    ("begin", "finish", "expected"),
    [(10, 510, "eval"), (300, 510, None), (200, 510, "eval"), (None, 510, None), (10, None, None)],
)
def test_a_jump_is_in_the_part_whose_bytes_have_it(
    tmp_path: Path, begin: int | None, finish: int | None, expected: str | None
) -> None:
    """A part between two samples has at least half of the rise, or none of it."""
    lines = [*(_sample(n, 10) for n in range(10)), *_part(9.2, 9.8, begin, finish)]
    report = _report(tmp_path, [*lines, *(_sample(n, 510) for n in range(10, 20))])
    assert report.jumps[0].mark == expected


def test_arrays_of_a_part_are_those_that_explain_its_rise(tmp_path: Path) -> None:
    """If others of the same size were replaced before it, what it added is not known by line."""
    lines: list[RecordLine] = [_sample(n, 100) for n in range(5)]
    replaced = [*lines, *_part(4.5, 9.5, 100, 150), *(_sample(n, 50, 100) for n in range(5, 10))]
    [mark] = _report(tmp_path / "replaced", replaced).marks
    assert (mark.added_nbytes, mark.groups) == (50 * MIB, ())
    plain = [*lines, *_part(4.5, 9.5, 100, 150), *(_sample(n, 100, 50) for n in range(5, 10))]
    [mark] = _report(tmp_path / "plain", plain).marks
    assert (mark.added_nbytes, mark.groups[0].origin) == (50 * MIB, OTHER.origin)


def test_arrays_from_until_the_begin_may_be_of_any_line(tmp_path: Path) -> None:
    """Two of one line or of another are from before: of 50 arrays, 48 are of the part at least."""
    lines = [*(_sample(n, 100) for n in range(5)), *_part(4.5, 9.5, 102, 152)]
    [mark] = _report(tmp_path, [*lines, *(_sample(n, 102, 50) for n in range(5, 10))]).marks
    assert mark.added_nbytes == 50 * MIB
    assert [(group.origin, group.count, group.nbytes) for group in mark.groups] == [
        (OTHER.origin, 48, 48 * MIB)
    ]


def test_bytes_that_are_unknown_at_a_mark(tmp_path: Path) -> None:
    """A sum with an unknown part is unknown, and so is a rise above an unknown begin."""
    lines = [_sample(0, 10), *_part(0.5, 1.5, 10, 20), *_part(1.6, 1.7, 20, None), _sample(2, 20)]
    [mark] = _report(tmp_path / "a", lines).marks
    assert (mark.kept_nbytes, mark.added_nbytes, mark.peak_nbytes) == (None, None, 20 * MIB)
    [mark] = _report(tmp_path / "b", [_sample(0, 1), *_part(0.5, 2, None, None), _sample(1, 9)]).marks
    assert (mark.kept_nbytes, mark.added_nbytes, mark.peak_nbytes) == (None, None, 9 * MIB)


def test_a_new_peak_of_the_backend_is_a_rise_in_a_part(tmp_path: Path) -> None:
    """Without a sample in it, the allocator knows the most bytes, if they are a new peak."""
    begin = record_mark(0.5, "eval", in_use=(10 * MIB,), peak=(60 * MIB,))
    for peak, expected in ((90, 80 * MIB), (60, None)):
        end = record_mark(0.6, "eval", is_end=True, in_use=(10 * MIB,), peak=(peak * MIB,))
        samples = [_sample(n, 10, peak=((peak if n else 60) * MIB,)) for n in range(3)]
        report = _report(tmp_path / str(peak), [samples[0], begin, end, *samples[1:]])
        [mark] = report.marks
        assert mark.added_nbytes == expected
        assert (report.peak.nbytes // MIB, report.peak.mark) == ((90, "eval") if expected else (10, None))


def test_the_peak_of_a_record_may_be_at_a_mark(tmp_path: Path) -> None:
    """What no sample has seen is in the marks: the peak is then that of the mark."""
    lines = [_sample(0, 10), *_part(0.3, 0.7, 10, 400), *(_sample(n, 10) for n in range(1, 5))]
    report = _report(tmp_path, lines)
    assert (report.peak.nbytes, report.peak.time, report.peak.mark) == (400 * MIB, START + 0.7, "eval")
    assert report.peak.sampled_nbytes == 10 * MIB
    assert report.processes[0].devices[0].peak_nbytes == 400 * MIB


def test_a_part_until_the_end_of_the_record_ends_with_its_last_sample(tmp_path: Path) -> None:
    """A mark without a block is over at the next one, and at the end of the record."""
    lines = [
        record_mark(0.5, "train", in_use=(10 * MIB,)),
        _sample(1, 10),
        record_mark(1.5, "eval", in_use=(15 * MIB,)),
        _sample(2, 40),
    ]
    end = RecordEnd(time=START + 2.0, reason="stopped")
    found = {mark.name: mark for mark in _report(tmp_path / "a", [*lines, end]).marks}
    assert (found["train"].kept_nbytes, found["eval"].kept_nbytes) == (5 * MIB, 25 * MIB)
    found = {mark.name: mark for mark in _report(tmp_path / "b", lines).marks}
    assert (found["train"].kept_nbytes, found["eval"].kept_nbytes) == (5 * MIB, None)  # it lasts


def _nested(*events: tuple[float, float | None, int]) -> list[RecordLine]:
    """Return marks of one name: second, second of the begin that ends there, and MiB in use."""
    return [
        record_mark(
            second,
            "eval",
            is_end=begin is not None,
            begin=None if begin is None else START + begin,
            in_use=(mib * MIB,),
        )
        for second, begin, mib in events
    ]


def test_a_plain_mark_in_a_block_of_the_same_name(tmp_path: Path) -> None:
    """The end is that of the block, so what comes after it is in no mark."""
    marks = _nested((1.1, None, 1), (1.2, None, 1), (2.1, 1.1, 1))
    report = _report(tmp_path, [*(_sample(n, 1) for n in range(3)), *marks, _sample(3, 100), _sample(4, 100)])
    [mark] = report.marks
    assert (mark.count, mark.added_nbytes, mark.kept_nbytes) == (2, 0, 0)
    assert report.peak.mark is None


def test_parts_of_one_name_that_overlap_keep_their_bytes_once(tmp_path: Path) -> None:
    """Recursive calls, threads and tasks."""
    recursive = _nested(
        (1.1, None, 0), (1.2, None, 4), (1.3, None, 8), (1.4, 1.3, 12), (1.5, 1.2, 12), (1.6, 1.1, 12)
    )
    threads = _nested((2.1, None, 12), (2.2, None, 20), (2.3, 2.1, 20), (2.4, 2.2, 28))
    after = _nested((3.1, None, 28), (3.2, 3.1, 30))
    lines = [*(_sample(n, m) for n, m in enumerate((0, 0, 12, 28, 30))), *recursive, *threads, *after]
    [mark] = _report(tmp_path, lines).marks
    assert (mark.count, mark.kept_nbytes) == (6, 30 * MIB)


def test_the_most_of_all_is_unknown_if_one_kept_more(tmp_path: Path) -> None:
    """One part has a sample and adds nothing. Another has none, and keeps 32 MiB."""
    lines = [
        *_part(0.5, 1.5, 10, 10),
        *_part(2.1, 2.2, 10, 42),
        *(_sample(n, 10 if n < 3 else 42) for n in range(5)),
    ]
    [mark] = _report(tmp_path, lines).marks
    assert (mark.added_nbytes, mark.kept_nbytes) == (None, 32 * MIB)


def test_a_clock_that_is_set_back_within_a_part(tmp_path: Path) -> None:
    """Its end seems to be before its begin, and is known by its begin."""
    begin = record_mark(3.5, "eval", in_use=(MIB,))
    end = record_mark(2.9, "eval", is_end=True, begin=START + 3.5, in_use=(MIB,))
    lines = [
        record_start(),
        ONE,
        *(_sample(n, 1) for n in range(4)),
        begin,
        end,
        _sample(4, 100),
        _sample(5, 100),
    ]
    write_record(tmp_path, lines)
    [mark] = timeline_report(tmp_path).marks
    assert (mark.added_nbytes, mark.kept_nbytes) == (None, 0)


def test_figures_of_a_part_that_began_before_the_window_are_unknown(tmp_path: Path) -> None:
    """The samples at its begin are not read."""
    lines = [_sample(0, 0), *_part(0.5, 9.5, 0, 0), _sample(1, 200), *(_sample(n, 0) for n in range(2, 11))]
    write_record(tmp_path, [record_start(), ONE, *sorted(lines, key=lambda line: line.time)])  # type: ignore[union-attr]
    [mark] = timeline_report(tmp_path).marks
    assert (mark.added_nbytes, mark.kept_nbytes, mark.peak_nbytes) == (200 * MIB, 0, 200 * MIB)
    [mark] = timeline_report(tmp_path, last=3).marks
    assert (mark.added_nbytes, mark.kept_nbytes, mark.peak_nbytes) == (None, 0, None)


_EVENTS = st.lists(st.tuples(st.sampled_from(["sample", "allocate", "free", "part"]), st.integers(0, 50)))


@given(_EVENTS)
def test_what_parts_keep_is_what_they_changed(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]]
) -> None:
    """Whatever else a program allocates, and whenever samples are taken."""
    lines: list[RecordLine] = [_sample(0, 0)]
    use = kept = rise = count = 0
    for number, (event, size) in enumerate(events, 1):
        if event == "sample":
            lines.append(_sample(number, use))
        elif event == "part":
            change = size - 25 if use + size >= 25 else 0
            lines += _part(number, number + 0.5, use, use + change)
            use, kept, rise, count = use + change, kept + change, max(rise, change), count + 1
        else:
            use = use + size if event == "allocate" else max(use - size, 0)
    report = _report(tmp_path_factory.mktemp("record"), [*lines, _sample(len(events) + 1, use)])
    marks = {mark.name: mark for mark in report.marks}
    assert [mark.count for mark in marks.values()] == [count] * bool(count)
    for mark in marks.values():
        assert (mark.kept_nbytes, mark.added_nbytes) == (kept * MIB, None)
