"""Reading holds a bounded number of things, and looks at each a bounded number of times."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import timeline_report
from jax_array_info_core.facts.reports.record import RecordDevice, RecordEnd, RecordMark, RecordSample
from jax_array_info_core.jobs.timeline import analysis, history, reading
from jax_array_info_core.jobs.timeline import timeline_report as reports
from jax_array_info_core.jobs.timeline.history import History, Room
from jax_array_info_core.jobs.timeline.marks import Moment, OpenMarks, Span
from jax_array_info_core.jobs.timeline.samples import IN_USE, NO_STEP
from jax_array_info_core.jobs.timeline.timeline_report import Follower

from .samples import MIB, START, record_group, record_mark, record_start, samples_of, write_record

pytestmark = pytest.mark.newest

GROUP = record_group(0, 7)
MARK = Moment(0.0, "", False, (), 0.0)


def _devices(*ids: int) -> tuple[RecordDevice, ...]:
    return tuple(RecordDevice(id=number, name=f"cuda:{number}") for number in ids)


def _counted(monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> list[object]:
    """Return a list that gets an entry for each call of a function."""
    calls: list[object] = []
    plain = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *args: calls.append(args) or plain(*args))
    return calls


def test_a_sample_takes_room_for_its_own_devices(tmp_path: Path) -> None:
    """Devices of other segments take none, nor do columns that no sample has."""
    write_record(tmp_path, [record_start(devices=_devices(*range(1000)))], "process-0-a.jsonl")
    one = [record_start(segment=1, devices=_devices(3)), *samples_of([], {}, 500)]
    write_record(tmp_path, one, "process-0-b.jsonl")
    follower = Follower(tmp_path)
    report = follower.report()
    assert (report.device, report.processes[0].sample_count) == (3, 500)
    assert follower._room.numbers == 2 * 500  # one for the sample itself


rows = st.lists(
    st.tuples(
        st.sampled_from([(0,), (1,), (0, 1), (2, 0, 1), ()]),
        st.booleans(),
        st.lists(st.integers(0, 9), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=40,
)


@given(rows)
def test_columns_are_those_of_the_lines(lines: list[tuple[tuple[int, ...], bool, list[int]]]) -> None:
    """Each device has its bytes in each sample, 0 where the sample has none. Its peak outlasts thinning."""
    found = History(room := Room())
    use: dict[int, list[int]] = {0: [], 1: [], 2: []}
    peaks = {0: 0, 1: 0, 2: 0}
    for number, (ids, has_peak, values) in enumerate(lines):
        segment = found.begin(record_start(segment=number, devices=_devices(*ids)))
        in_use = dict(zip(ids, values, strict=False))
        peak = tuple(value + 5 for value in in_use.values()) if has_peak else ()
        sample = RecordSample(time=START + number, in_use=tuple(in_use.values()), peak=peak)
        found.add(sample, segment)
        for device, column in use.items():
            column.append(in_use.get(device, 0))
            peaks[device] = max(peaks[device], in_use.get(device, -5) + 5 * has_peak)
    known = [*found.devices]
    assert {device: found.column(IN_USE, device).tolist() for device in known} == {
        one: use[one] for one in known
    }
    times = found.samples.times.tolist()
    while len(found.samples.times) > 1:
        before = len(found.samples.times)
        found.thin()
        assert len(found.samples.times) < before or before <= 3
        kept = [times.index(time) for time in found.samples.times.tolist()]
        for device in known:
            assert found.column(IN_USE, device).tolist() == [use[device][sample] for sample in kept]
        fullest = max((max(use[device]) for device in known), default=0)
        assert max((max(found.column(IN_USE, device)) for device in known), default=0) == fullest
        assert room.numbers == found.samples.numbers
        if before <= 3:
            break
    assert found.peaks == {one: peaks[one] for one in known}


def test_a_record_with_too_many_numbers_is_read_thinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report says so. The peak stays."""
    monkeypatch.setattr(history, "MOST_NUMBERS", 500)
    lines = [
        record_start(),
        GROUP,
        *samples_of([GROUP], {0: lambda number: 1 + 30 * (number == 333)}, 1000),
    ]
    write_record(tmp_path, lines)
    follower = Follower(tmp_path)
    report = follower.report()
    assert follower._room.numbers <= 500
    assert (report.thinned, report.processes[0].sample_count) == (True, 1000)
    assert ", 1000 samples (thinned), " in report.extent
    assert (report.peak.nbytes, report.peak.time) == (31 * MIB, START + 333)
    assert report.peak.groups[0].count == 31


def test_the_last_sample_and_the_peak_of_each_device_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a device that is not the fullest, and where the sample before the last has more bytes.

    The last sample ends a part of the program.
    """
    lines = [record_start(devices=_devices(0, 1))]
    for number in range(400):
        in_use = (9 + number % 7 + 90 * (number == 398), 1 + 3 * (number == 301))
        lines.append(RecordSample(time=START + number, in_use=in_use))
        if number == 150:
            lines.append(RecordMark(time=START + 150.5, name="train", in_use=(5, 1)))
    write_record(tmp_path, [*lines, RecordEnd(time=START + 399, reason="exited")])
    monkeypatch.setattr(history, "MOST_NUMBERS", 3 * 400 - 1)  # the last sample is thinned, too
    for device, peak, kept in ((0, (105, 398), 4), (1, (4, 301), 0)):
        report = timeline_report(tmp_path, device=device)
        assert report.thinned
        assert (report.peak.nbytes, report.peak.time - START) == peak
        assert (report.times[0], report.times[-1]) == (START, START + 399)
        [mark] = report.marks
        assert (mark.kept_nbytes, mark.peak_nbytes) == (kept, peak[0])


def test_all_runs_together_hold_a_number_of_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each is small, and where no more samples can be left out."""
    monkeypatch.setattr(history, "MOST_NUMBERS", 300)
    thinned = _counted(monkeypatch, History, "thin")
    for process in range(50):
        lines = [record_start(process=process), *samples_of([], {}, 20)]
        write_record(tmp_path, lines, f"process-{process}-a.jsonl")
    follower = Follower(tmp_path)
    report = follower.report(last=100.0)
    assert follower._room.numbers <= 300
    assert {one.sample_count for one in report.processes} == {20}
    assert len(thinned) < 50 * 20
    monkeypatch.setattr(history, "MOST_NUMBERS", 10)
    del thinned[:]
    Follower(tmp_path).report(last=100.0)
    assert len(thinned) < 50 * 50


def test_first_samples_of_very_many_recorders_are_thinned_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a folder of restarts would be kept as a whole."""
    monkeypatch.setattr(history, "MOST_NUMBERS", 32)
    for number in range(100):
        start = record_start(started=START + number, time=START + number, pid=number)
        sample = RecordSample(time=START + number + 0.5, in_use=(1,))
        write_record(tmp_path, [start, sample], f"process-0-{number:03}.jsonl")
    report = timeline_report(tmp_path)
    assert (report.processes[0].restarts, len(report.times) <= 17, report.thinned) == (99, True, True)


spans = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(
        lambda pair: Span("", min(pair), max(pair), MARK, None)
    ),
    max_size=12,
).map(lambda found: sorted(found, key=lambda span: span.start))


@given(spans)
def test_the_open_mark_is_the_last_that_began(found: list[Span]) -> None:
    """At every moment, before, in and after all of them."""
    named = [span._replace(name=str(number)) for number, span in enumerate(found)]
    marks = OpenMarks(named)
    for half in range(-1, 44):
        around = [span for span in named if span.start <= half / 2 < span.end]
        assert marks.at(half / 2) == (around[-1].name if around else None)


def test_lines_that_are_none_of_a_record_end_the_reading_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines before them count."""
    lines = [record_start(), *samples_of([], {}, 50)]
    write_record(tmp_path, lines, tail=b"\n" * 10_000)
    calls = _counted(monkeypatch, reading, "read_line")
    report = timeline_report(tmp_path)
    assert report.processes[0].sample_count == 50
    assert len(calls) < 500
    assert "lines are no lines of a record" in report.unread[0].reason


def test_a_few_damaged_lines_do_not_end_it(tmp_path: Path) -> None:
    """As a file system may leave them."""
    tail = b"\0\n" * 20 + samples_of_bytes(100)
    write_record(tmp_path, [record_start(), *samples_of([], {}, 50)], tail=tail)
    report = timeline_report(tmp_path)
    assert report.processes[0].sample_count == 150
    assert report.unread[0].reason.startswith("20 lines left out; ")


def samples_of_bytes(length: int) -> bytes:
    """Return later samples as lines."""
    return b"".join(b'{"line":"sample","time":%d,"in_use":[1]}\n' % (START + 50 + n) for n in range(length))


def test_a_run_is_compared_with_a_few_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with all of them, where thousands ran at the same time."""
    monkeypatch.setattr(reports, "_MOST_CANDIDATES", 4)
    for number in range(60):
        start = record_start(started=START + number / 100, pid=number)
        lines = [start, RecordSample(time=START + 9, in_use=(1,))]
        write_record(tmp_path, lines, f"process-0-{number:03}.jsonl")
    calls = _counted(monkeypatch, reports, "is_restart")
    assert len(timeline_report(tmp_path).processes) == 60
    assert len(calls) <= 60 * 5


def test_groups_in_a_few_samples_have_no_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of groups and of samples are not multiplied: what comes and goes cannot grow."""
    groups = [record_group(number, 100 + number) for number in range(200)]
    counts = {group.id: (lambda sample, number=group.id: int(sample // 4 == number)) for group in groups}
    write_record(tmp_path, [record_start(), *groups, *samples_of(groups, counts, 800)])
    calls = _counted(monkeypatch, analysis, "_least")
    assert timeline_report(tmp_path).growth == ()
    assert len(calls) <= 4 * 2


def test_devices_and_marks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all files of a folder. Each file that is left out has its reason."""
    monkeypatch.setattr(history, "MOST_OTHERS", 4 * (2 * 8 + 6))
    for process in range(3):
        lines = [
            record_start(process=process, devices=_devices(*range(8 * process, 8 * process + 8))),
            RecordSample(time=START, in_use=(1,) * 8),
            *(record_mark(number, "eval") for number in range(4)),
        ]
        write_record(tmp_path, lines, f"process-{process}-a.jsonl")
        write_record(
            tmp_path,
            [record_start(process=process, segment=1, devices=lines[0].devices)],
            f"process-{process}-b.jsonl",
        )
    report = timeline_report(tmp_path)
    assert [one.process for one in report.processes] == [0, 1]
    reasons = {one.name: one.reason for one in report.unread}
    assert reasons["process-2-a.jsonl"] == "more than 88 numbers of marks and devices in the folder"
    assert "more than 88 numbers of marks and devices in the folder" in reasons["process-1-a.jsonl"]


def test_a_run_on_eight_devices_keeps_all_its_marks() -> None:
    """With their bytes in use and peaks."""
    assert history._MOST_MARKS * (history._OF_THING + 2 * 8) < history.MOST_OTHERS


def test_sets_of_devices_are_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with the same devices share them. Past the limit, the bytes of a group are not in arrays."""
    monkeypatch.setattr(history, "MOST_OTHERS", 4 * 4 + 5)
    sets = [(0, 1, 2)] * 50 + [(0, 1), (2, 3, 0)]
    groups = [record_group(number, 7, devices=devices) for number, devices in enumerate(sets)]
    sample = RecordSample(time=START, in_use=(60 * MIB,) * 4, groups=tuple(range(52)), counts=(1,) * 52)
    write_record(tmp_path, [record_start(devices=_devices(*range(4))), *groups, sample])
    follower = Follower(tmp_path)
    report = follower.report(device=0)
    assert follower._room.others == 4 * 4 + 5
    assert report.peak.not_arrays_nbytes == 9 * MIB
    assert report.unread == ()


def test_a_thinned_sample_keeps_its_arrays() -> None:
    """Groups and counts stay with their sample, also where neighbors have none."""
    found = History(Room())
    segment = found.begin(record_start())
    found.add(GROUP, segment)
    for number in range(9):
        groups, counts = ((0,), (number + 1,)) if number % 3 else ((), ())
        sample = RecordSample(time=START + number, in_use=(number,), groups=groups, counts=counts)
        found.add(sample, segment)
    found.thin()
    kept = [int(time - START) for time in found.samples.times]
    arrays = found.samples.arrays(found.sites(0))
    assert arrays.total_nbytes().tolist() == [(number + 1) * MIB if number % 3 else 0 for number in kept]
    assert found.samples.steps[0] == NO_STEP
