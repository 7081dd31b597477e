"""Peaks, growth, jumps and marks that a timeline finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jax_array_info_core import timeline_report
from jax_array_info_core.reports import TimelineReport

from .samples import (
    MIB,
    START,
    record_group,
    record_mark,
    record_start,
    report_of,
    samples_of,
    write_record,
)

pytestmark = pytest.mark.newest

STEADY = [record_group(number, 100 + number) for number in range(200)]
LEAK, CACHE, EVALUATION = record_group(300, 7), record_group(301, 8), record_group(302, 9)


def _report(folder: Path, length: int = 900, *, steps_per_sample: int = 5) -> TimelineReport:
    """Return the report on 200 steady arrays, a leak, a cache, and an evaluation each minute."""
    groups = [*STEADY, LEAK, CACHE, EVALUATION]
    counts = {group.id: (lambda _: 1) for group in STEADY}
    counts |= {
        # 1 MiB every 7th step.
        LEAK.id: lambda number: number * steps_per_sample // 7,
        CACHE.id: lambda number: min(number * steps_per_sample, 100),
        EVALUATION.id: lambda number: 200 + 100 * 3 if number % 60 >= 50 else 0,
    }
    lines: list[object] = [*groups]
    samples = samples_of(groups, counts, length, steps_per_sample=steps_per_sample)
    for number, sample in enumerate(samples):
        if number % 60 == 50:
            lines.append(record_mark(number - 0.1, "eval", in_use=samples[number - 1].in_use))
        lines.append(sample)
        if number % 60 == 59:
            in_use = (sample.in_use[0] - 500 * MIB,)
            lines.append(record_mark(number + 0.5, "eval", is_end=True, in_use=in_use))
    return report_of(folder, *lines)


def test_a_leak_is_found(tmp_path: Path) -> None:
    """A leak of 1 MiB every 7th step has its line, and a slope within 5 %."""
    [leak, *_] = _report(tmp_path).growth
    assert leak.origin == LEAK.origin
    assert leak.stopped_at is None
    assert leak.nbytes_per_step == pytest.approx(MIB / 7, rel=0.05)
    assert leak.nbytes_per_minute == pytest.approx(60 * 5 * MIB / 7, rel=0.05)


def test_a_cache_is_no_leak(tmp_path: Path) -> None:
    """A cache that fills for 100 steps and stays does not grow: it did, until it was full."""
    report = _report(tmp_path, steps_per_sample=1)
    growing = [grown.origin for grown in report.growth if grown.stopped_at is None]
    assert growing == [LEAK.origin]
    [cache] = [grown for grown in report.growth if grown.stopped_at is not None]
    assert cache.origin == CACHE.origin
    assert START + 90 <= cache.stopped_at <= START + 110
    assert cache.end_nbytes == 100 * MIB


def test_an_evaluation_is_named_by_its_mark(tmp_path: Path) -> None:
    """An evaluation that doubles the memory for ten seconds of each minute is no leak but a mark."""
    report = _report(tmp_path)
    [mark] = report.marks
    assert (mark.name, mark.count) == ("eval", 15)
    assert mark.groups[0].origin == EVALUATION.origin
    assert mark.groups[0].nbytes == 500 * MIB
    assert mark.added_nbytes >= 500 * MIB
    # The leak grew meanwhile, by 50 steps each time.
    assert mark.kept_nbytes == pytest.approx(15 * 50 / 7 * MIB, rel=0.05)
    assert report.peak.mark == "eval"
    assert report.jumps[0].mark == "eval"
    assert report.jumps[0].count > 10


def test_series_add_up(tmp_path: Path) -> None:
    """At each point, the series have the bytes in use, and the peak is one of the points."""
    report = _report(tmp_path)
    assert len(report.times) == 480
    sums = [sum(values) for values in zip(*(series.nbytes for series in report.series), strict=True)]
    assert sums == list(report.in_use)
    assert report.peak.nbytes == max(report.in_use)
    assert report.peak.nbytes == sum(group.nbytes for group in report.peak.groups)


def test_a_leak_of_arrays_that_the_record_does_not_name(tmp_path: Path) -> None:
    """What grows outside of the groups, or outside of arrays, grows too."""
    samples = [
        replace(sample, in_use=(sample.in_use[0] + 7 * number * MIB,), other_nbytes=(2 * number * MIB,))
        for number, sample in enumerate(samples_of([STEADY[0]], {0: lambda _: 50}, 60))
    ]
    report = report_of(tmp_path, STEADY[0], *samples)
    assert [(grown.kind, round(grown.nbytes_per_step or 0)) for grown in report.growth] == [
        ("not arrays", 5 * MIB),
        ("other arrays", 2 * MIB),
    ]
    assert [series.kind for series in report.series] == ["origin", "other arrays", "not arrays"]


def test_a_peak_between_two_samples(tmp_path: Path) -> None:
    """The backend knows it: the peak has the time of both samples, and the arrays of the fuller one."""
    start = record_start(in_use_source="allocator")
    samples = [
        replace(sample, peak=(90 * MIB if number >= 6 else 50 * MIB,))
        for number, sample in enumerate(samples_of([LEAK], {LEAK.id: lambda number: 10 + number % 2}, 10))
    ]
    mark = record_mark(5.5, "compile", in_use=(11 * MIB,), peak=(50 * MIB,))
    write_record(tmp_path, [start, LEAK, *samples[:6], mark, *samples[6:]])
    report = timeline_report(tmp_path)
    peak = report.peak
    assert (peak.nbytes, peak.since, peak.time) == (90 * MIB, START + 5, START + 6)
    assert (peak.sampled_at, peak.sampled_nbytes, peak.mark) == (START + 5, 11 * MIB, "compile")
    assert "between" in report.answer[0]
    assert (report.marks[0].peak_nbytes, report.marks[0].added_nbytes) == (90 * MIB, 79 * MIB)


def test_the_peak_of_the_backend_from_before_the_record_is_no_moment_of_it(tmp_path: Path) -> None:
    """The backend counts since its start. Only a rise is a peak between two samples."""
    samples = [replace(one, peak=(900 * MIB,)) for one in samples_of([LEAK], {LEAK.id: lambda _: 3}, 10)]
    write_record(tmp_path, [record_start(in_use_source="allocator"), LEAK, *samples])
    report = timeline_report(tmp_path)
    assert (report.peak.nbytes, report.peak.since) == (3 * MIB, None)
    assert report.processes[0].devices[0].peak_nbytes == 900 * MIB


def test_a_jump_without_a_mark(tmp_path: Path) -> None:
    """Bytes that come at one moment and stay are a jump, with their line. A spike is none."""
    counts = {0: lambda _: 10, LEAK.id: lambda number: 40 if number >= 30 else 25 * (number == 12)}
    groups = [STEADY[0], LEAK]
    [jump] = report_of(tmp_path, *groups, *samples_of(groups, counts, 60)).jumps
    assert (jump.since, jump.time, jump.nbytes, jump.step) == (START + 29, START + 30, 40 * MIB, 29)
    assert (jump.mark, jump.groups[0].origin, jump.groups[0].count) == (None, LEAK.origin, 40)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([(1, "a", False)], {0: None, 1: "a", 30: "a"}),
        ([(1, "a", False), (9, "b", False)], {8: "a", 9: "b", 30: "b"}),
        ([(1, "a", False), (9, "a", True)], {8: "a", 9: None}),
        ([(1, "out", False), (4, "in", False), (9, "out", True)], {3: "out", 8: "in", 9: None}),
        ([(1, "a", False), (3, "a", False), (5, "a", True), (9, "a", True)], {4: "a", 6: "a", 9: None}),
        ([(1, "a", False), (3, "b", False), (5, "b", True)], {2: "a", 4: "b", 6: "a"}),
        ([(2, "b", True), (3, "a", False)], {2: None, 3: "a"}),
    ],
)
def test_the_end_of_a_mark(
    tmp_path: Path, marks: list[tuple[int, str, bool]], expected: dict[int, str | None]
) -> None:
    """A mark ends with its block, else at the next mark that has none, or with the block around it."""
    from jax_array_info_core.jobs.timeline.history import History, Room
    from jax_array_info_core.jobs.timeline.marks import OpenMarks

    history = History(Room())
    segment = history.begin(record_start())
    for second, name, is_end in marks:
        history.add(record_mark(second, name, is_end=is_end), segment)
    marks = OpenMarks(history.spans())
    found = {second: marks.at(START + second) for second in expected}
    assert found == expected


def test_short_records(tmp_path: Path) -> None:
    """One sample, or a few, have a peak and no growth."""
    for length in (1, 2, 7):
        folder = tmp_path / str(length)
        report = report_of(folder, LEAK, *samples_of([LEAK], {LEAK.id: lambda number: number + 1}, length))
        assert report.peak.nbytes == length * MIB
        assert (report.growth, report.jumps) == ((), ())


def test_an_empty_process(tmp_path: Path) -> None:
    """A process without arrays has a timeline of zeros."""
    report = report_of(tmp_path, *samples_of([], {}, 30))
    assert report.series == ()
    assert report.peak.nbytes == 0
    assert report.growth == ()


def test_a_leak_in_a_function_that_returns(tmp_path: Path) -> None:
    """At its end, all of its arrays are freed: it was growing until then. What comes after does not hide it."""
    counts = {0: lambda number: 40 if number < 300 else 0, LEAK.id: lambda n: n // 2 if n < 300 else 0}
    groups = [STEADY[0], LEAK]
    report = report_of(tmp_path, *groups, *samples_of(groups, counts, 500))
    [leak] = report.growth
    assert (leak.origin, leak.stopped_at) == (LEAK.origin, None)
    assert leak.nbytes_per_minute == pytest.approx(30 * MIB, rel=0.05)
    assert START + 295 <= leak.freed_at <= START + 310
    assert any(line.startswith("growing until it was freed at ") for line in report.answer)


def test_a_leak_whose_line_also_makes_other_arrays(tmp_path: Path) -> None:
    """Arrays of the same line, dtype and shape that come and go do not hide what stays."""
    counts = {LEAK.id: lambda number: number // 5 + (3, 1, 0, 2, 1, 1, 0, 2)[number % 8]}
    [leak] = report_of(tmp_path, LEAK, *samples_of([LEAK], counts, 400)).growth
    assert leak.nbytes_per_minute == pytest.approx(12 * MIB, rel=0.05)


def test_many_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups past the limit are other arrays, so that the bytes add up."""
    from jax_array_info_core.jobs.timeline import history

    monkeypatch.setattr(history, "_MOST_GROUPS", 5)
    groups = [record_group(number, 100 + number) for number in range(20)]
    counts = {group.id: (lambda _: 2) for group in groups}
    report = report_of(tmp_path, *groups, *samples_of(groups, counts, 10))
    assert report.unread == ()
    assert [sum(series.nbytes) for series in report.series] == [20 * MIB] * 5 + [300 * MIB]
    assert report.series[-1].kind == "other arrays"


def test_steps_that_begin_again_have_no_slope(tmp_path: Path) -> None:
    """Numbers of steps that restart with each epoch do not tell how many steps there were."""
    samples = samples_of([LEAK], {LEAK.id: lambda number: number}, 300)
    samples = [replace(sample, step=number % 20) for number, sample in enumerate(samples)]
    [leak] = report_of(tmp_path, LEAK, *samples).growth
    assert leak.nbytes_per_step is None
    assert leak.nbytes_per_minute == pytest.approx(60 * MIB, rel=0.01)


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    """Later lines are shifted, so that slopes and marks stay as they are."""
    samples = samples_of([LEAK], {LEAK.id: lambda number: number}, 300)
    lines: list[object] = [record_start(), LEAK]
    for number, sample in enumerate(samples):
        shift = 3600 if number >= 150 else 0
        if number == 200:
            lines.append(record_mark(number - 0.1 - shift, "eval"))
        lines.append(replace(sample, time=sample.time - shift))
    write_record(tmp_path, lines)
    report = timeline_report(tmp_path)
    assert report.growth[0].nbytes_per_minute == pytest.approx(60 * MIB, rel=0.05)
    assert report.peak.mark == "eval"


def test_growth_is_unknown_with_few_samples(tmp_path: Path) -> None:
    """Fewer than 30 samples are not said to grow, nor not to grow."""
    for length, answer in ((29, "steady growth is told from 30 samples on"), (30, "growing: ")):
        folder = tmp_path / str(length)
        samples = samples_of([LEAK], {LEAK.id: lambda number: number + 1}, length)
        write_record(folder, [record_start(), LEAK, *samples])
        report = timeline_report(folder)
        assert report.is_growth_known == (length == 30)
        assert report.answer[1].startswith(answer)


@pytest.mark.parametrize(
    "fall",
    [
        lambda number: 3 if number == 700 else None,  # one low sample
        lambda number: number // 2 - 40 if 400 <= number < 450 else None,  # an evaluation frees a part
        lambda number: number // 2 + (7 * number) % 50,  # temporary arrays of the same line
    ],
)
def test_a_leak_is_found_below_falls(tmp_path: Path, fall: Callable[[int], int | None]) -> None:
    """What stays grows, even if the bytes fall for a moment."""
    counts = {LEAK.id: lambda number: number // 2 if fall(number) is None else fall(number)}
    [leak] = report_of(tmp_path, LEAK, *samples_of([LEAK], counts, 1200)).growth
    assert leak.stopped_at is None
    assert leak.nbytes_per_minute == pytest.approx(30 * MIB, rel=0.1)


def test_what_fills_and_is_cleared_again_is_no_leak(tmp_path: Path) -> None:
    """A list that each epoch fills and clears comes and goes."""
    counts = {LEAK.id: lambda number: number % 200}
    assert report_of(tmp_path, LEAK, *samples_of([LEAK], counts, 1200)).growth == ()


def test_a_peak_in_the_first_seconds_outlasts_thinning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sample of a recorder stays: a peak of the backend is a rise since then."""
    from jax_array_info_core.jobs.timeline import history

    samples = [
        replace(sample, peak=(900 * MIB if number else 20 * MIB,))
        for number, sample in enumerate(samples_of([LEAK], {LEAK.id: lambda number: 10 + number % 3}, 1000))
    ]
    write_record(tmp_path, [record_start(in_use_source="allocator"), LEAK, *samples])
    monkeypatch.setattr(history, "MOST_NUMBERS", 64 * 4)
    peak = timeline_report(tmp_path).peak
    assert (peak.nbytes, peak.since) == (900 * MIB, START)
