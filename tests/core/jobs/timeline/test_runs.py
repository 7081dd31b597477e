"""Runs of a process: restarts are joined, and programs that ran at the same time are told apart."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from jax_array_info_core import from_json, timeline_report, to_json
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.reports.record import RecordOutOfMemory
from jax_array_info_core.jobs.timeline import timeline_report as reports
from jax_array_info_core.jobs.timeline.segments import identity
from jax_array_info_core.jobs.timeline.timeline_report import Earlier, Follower, is_restart

from .samples import MIB, START, record_start, segment, write_record

pytestmark = pytest.mark.newest

HOUR = 3600.0


def _write(folder: Path, *segments: list) -> None:
    for number, lines in enumerate(segments):
        write_record(folder, lines, f"process-{lines[0].process}-{number}.jsonl")


HERE, THERE = {"host_name": "a", "pid": 1}, {"host_name": "b", "pid": 2}
AGAIN = {"host_name": "a", "pid": 3}
JOB, OTHER_JOB = {"job": "1"}, {"job": "2"}
TASK, SAME_TASK, OTHER_TASK = {"job": "7_4"}, {"job": "8_4"}, {"job": "7_5"}
ENDED, KILLED, WRITTEN = (True, False), (False, False), (False, True)


@pytest.mark.parametrize(
    ("earlier", "later", "gap", "state", "expected"),
    [
        # On one machine, with one clock: what overlaps is another run, whatever its end.
        (HERE, AGAIN, 1.0, ENDED, True),
        (HERE, AGAIN, 1.0, KILLED, True),
        (HERE, AGAIN, 1.0, WRITTEN, False),
        (HERE, AGAIN, -1.0, ENDED, False),
        (HERE, AGAIN, -1.0, KILLED, False),
        (HERE | JOB, AGAIN | JOB, 1.0, ENDED, True),
        (HERE | JOB, AGAIN | JOB, 1.0, KILLED, True),
        (HERE | JOB, AGAIN | JOB, -1.0, ENDED, False),
        # The next job continues one that came to its end.
        (HERE | JOB, AGAIN | OTHER_JOB, 1.0, ENDED, True),
        (HERE | JOB, AGAIN | OTHER_JOB, 1.0, KILLED, False),
        (HERE | JOB, AGAIN | OTHER_JOB, -1.0, ENDED, False),
        (HERE | JOB, AGAIN, 1.0, KILLED, False),
        (HERE, AGAIN | JOB, 1.0, ENDED, True),
        # On another machine, the clock may be behind: in the same job by any time, without one by a minute.
        (HERE, THERE, 1.0, ENDED, True),
        (HERE, THERE, 1.0, KILLED, True),
        (HERE, THERE, -59.0, ENDED, True),
        (HERE, THERE, -59.0, KILLED, True),
        (HERE, THERE, -59.0, WRITTEN, False),
        (HERE, THERE, -61.0, ENDED, False),
        (HERE | JOB, THERE | JOB, -HOUR, ENDED, True),
        (HERE | JOB, THERE | JOB, -HOUR, KILLED, True),
        (HERE | JOB, THERE | JOB, -HOUR, WRITTEN, False),
        (HERE | JOB, THERE | OTHER_JOB, -1.0, ENDED, False),
        (HERE | JOB, THERE | OTHER_JOB, 1.0, ENDED, True),
        (HERE | JOB, THERE | OTHER_JOB, 1.0, KILLED, False),
        # Tasks of an array are never restarts of each other; the same task may be.
        (HERE | TASK, AGAIN | OTHER_TASK, 1.0, ENDED, False),
        (HERE | TASK, THERE | OTHER_TASK, HOUR, ENDED, False),
        (HERE | TASK, THERE | TASK, -HOUR, KILLED, True),
        (HERE | TASK, THERE | SAME_TASK, 1.0, ENDED, True),
        (HERE | TASK, AGAIN | JOB, 1.0, ENDED, False),
        # Nor are ranks.
        (HERE | {"rank": 0}, AGAIN | {"rank": 1}, 1.0, ENDED, False),
        (HERE | {"rank": 0}, AGAIN, 1.0, ENDED, False),
        (HERE | JOB | {"rank": 3}, THERE | JOB | {"rank": 3}, -1.0, KILLED, True),
    ],
)
def test_a_restart_and_anothersegment(
    earlier: dict, later: dict, gap: float, state: tuple[bool, bool], expected: bool
) -> None:
    """The clock, the end, the lock, the job and the rank decide."""
    has_end, is_written = state
    last = START + 100
    before = Earlier(record_start(**earlier), last, has_end, lambda: is_written)
    assert is_restart(record_start(**later, started=last + gap, time=last + gap), before) == expected


def test_runs_at_the_same_time_are_told_apart(tmp_path: Path) -> None:
    """Tasks of a job array that share a folder each have an entry, with their job, and no restart."""
    tasks = [
        segment(0.1 * number, count=number + 1, end=True, pid=number + 5, job=f"123_{number}")
        for number in range(3)
    ]
    _write(tmp_path, *reversed(tasks))
    report = timeline_report(tmp_path)
    entries = [(one.process, one.run, one.pid, one.job, one.restarts) for one in report.processes]
    assert entries == [(0, number, number + 5, f"123_{number}", 0) for number in range(3)]
    assert [one.end for one in report.processes] == [START + 10, START + 10.1, START + 10.2]
    assert (report.run, report.in_use) == (2, (3 * MIB,) * 10)
    name = "process 0 (run 2: host another machine, pid 7, job 123_2)"
    assert f" of {name} at " in report.answer[0]
    assert f", {name} stopped the record" in report.extent
    other = timeline_report(tmp_path, process=0, run=0)
    assert (other.run, other.in_use, other.chosen.pid) == (0, (MIB,) * 10, 5)
    assert from_json(to_json(other)) == other
    with pytest.raises(UnsupportedValueError, match="run=3 is not in the record: it has 0-2"):
        timeline_report(tmp_path, run=3)


def test_ranks_without_initialize_are_told_apart(tmp_path: Path) -> None:
    """All have process index 0. A restart of each is joined to it."""
    segments = [
        segment(100 * again + 0.01 * rank, rank=rank, pid=10 * again + rank, job="9")
        for again in range(2)
        for rank in range(3)
    ]
    _write(tmp_path, *segments)
    report = timeline_report(tmp_path)
    assert [(one.run, one.pid, one.restarts) for one in report.processes] == [
        (0, 10, 1),
        (1, 11, 1),
        (2, 12, 1),
    ]


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_segments_of_a_recorder_belong_together(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Whatever their names: another recorder that started in the same microsecond is another run."""
    parts = [segment(10 * number, started=START, segment=number, count=number + 1) for number in range(3)]
    other = segment(0, started=START, pid=18, count=9)
    _write(tmp_path, *(parts[number] for number in order), other)
    first, second = timeline_report(tmp_path, run=0).processes
    assert (first.sample_count, first.restarts, first.pid) == (30, 0, 17)
    assert (second.sample_count, second.restarts, second.pid) == (10, 0, 18)
    assert timeline_report(tmp_path, run=0).in_use == (MIB,) * 10 + (2 * MIB,) * 10 + (3 * MIB,) * 10


def test_many_runs_at_a_time_find_their_restart(tmp_path: Path) -> None:
    """A requeued job is joined to its own first part, however many others ended meanwhile."""
    segments = [segment(0.01 * number, pid=number, job=str(number)) for number in range(50)]
    _write(tmp_path, *segments, segment(100, pid=99, job="3"))
    report = timeline_report(tmp_path)
    assert len(report.processes) == 50
    assert [one.run for one in report.processes if one.restarts] == [3]
    assert report.processes[3].pid == 99


def test_a_process_that_runs_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is held, although it has written nothing since the other started."""
    monkeypatch.setattr(reports, "is_written", lambda path: path.name == "process-0-0.jsonl")
    _write(tmp_path, segment(), segment(100, pid=18))
    assert [one.pid for one in timeline_report(tmp_path).processes] == [17, 18]


def test_what_is_learned_later_about_an_earlier_run_counts(tmp_path: Path) -> None:
    """On a file system without locks, a process may seem to be over, and then write on."""
    _write(tmp_path, segment(), segment(9.5, pid=18, count=5))
    follower = Follower(tmp_path)
    assert [one.restarts for one in follower.report(last=60.0).processes] == [1]
    _write(tmp_path, segment(length=15))
    report = follower.report(last=60.0)
    assert [(one.pid, one.restarts, one.sample_count) for one in report.processes] == [
        (17, 0, 15),
        (18, 0, 10),
    ]


def test_an_allocation_that_failed_names_itssegment(tmp_path: Path) -> None:
    """The first line of the report tells which of the runs ran out of memory."""
    error = RecordOutOfMemory(time=START + 9, message="no")
    _write(tmp_path, segment(), [*segment(1, pid=18), error])
    report = timeline_report(tmp_path)
    assert [(one.process, one.run) for one in report.out_of_memory] == [(0, 1)]
    assert report.answer[0].startswith("out of memory in process 0 (run 1: host another machine, pid 18) at ")


def test_the_damaged_end_of_an_earlier_run_is_passed_over(tmp_path: Path) -> None:
    """Its last time is that of the last line that can be read."""
    damage = b'{"line":"mark"}\n' * 5 + b'{"line":"sample","time":'
    write_record(tmp_path, segment(length=200), "process-0-a.jsonl", tail=damage)
    write_record(tmp_path, segment(150, pid=18), "process-0-b.jsonl")
    assert [one.pid for one in timeline_report(tmp_path).processes] == [17, 18]


def test_a_recorder_writes_its_job_and_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the launcher and the scheduler name them."""
    for name, value in {"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "4", "PMIX_RANK": "6"}.items():
        monkeypatch.setenv(name, value)
    found = identity()
    assert (found.job, found.rank) == ("123_4", 6)
