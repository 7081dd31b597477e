"""The report on a record: processes, restarts, states, the device of the timeline, and JSON."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jax_array_info_core import timeline_report
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.reports.record import RecordDevice, RecordEnd, RecordOutOfMemory
from jax_array_info_core.jobs.timeline import timeline_report as module
from jax_array_info_core.jobs.timeline.segments import identity
from jax_array_info_core.jobs.timeline.timeline_report import Follower

from .samples import (
    GROUP,
    MIB,
    START,
    record_mark,
    record_start,
    samples_of,
    segment,
    write_record,
)

pytestmark = pytest.mark.newest


def test_a_restarted_process_is_one(tmp_path: Path) -> None:
    """Its segments are joined, with the groups of each under their own numbers."""
    write_record(tmp_path, segment(0, count=2), "process-0-a.jsonl")
    later = segment(10, started=START, segment=1, count=3, group_number=9)
    write_record(tmp_path, later, "process-0-b.jsonl")
    write_record(tmp_path, segment(100, count=5, group_number=4, pid=99), "process-0-c.jsonl")
    report = timeline_report(tmp_path)
    [process] = report.processes
    assert (process.restarts, process.pid, process.sample_count) == (1, 99, 30)
    assert [series.nbytes for series in report.series] == [
        (2 * MIB,) * 10 + (3 * MIB,) * 10 + (5 * MIB,) * 10
    ]
    assert report.unread == ()


def test_growth_begins_again_after_a_restart(tmp_path: Path) -> None:
    """A process that starts with less memory has lost nothing of its evidence."""
    for number in range(2):
        lines = segment(100 * number, 60, lambda sample: sample + 1)
        write_record(tmp_path, lines, f"process-0-{number}.jsonl")
    [growth] = timeline_report(tmp_path).growth
    assert growth.nbytes_per_minute == pytest.approx(60 * MIB, rel=0.01)


def test_a_restart_on_a_machine_whose_clock_is_behind(tmp_path: Path) -> None:
    """The process seems to start before it ended. Its later lines are shifted."""
    write_record(tmp_path, segment(0, 60, count=2), "process-0-a.jsonl")
    write_record(tmp_path, segment(40, 60, count=5, pid=18, host_name="b"), "process-0-b.jsonl")
    report = timeline_report(tmp_path)
    assert (report.processes[0].sample_count, report.processes[0].restarts) == (120, 1)
    assert report.times == tuple(sorted(report.times))
    assert report.in_use == (2 * MIB,) * 60 + (5 * MIB,) * 60
    assert report.times[60:] == tuple(START + 59 + number for number in range(60))


def test_processes_and_devices(tmp_path: Path) -> None:
    """The timeline is that of the device with the highest peak, unless another one is asked for."""
    devices = (RecordDevice(id=4, name="cuda:4"), RecordDevice(id=5, name="cuda:5"))
    group = replace(GROUP, devices=(1,))
    samples = samples_of([group], {0: lambda number: number}, 10)
    for process in range(3):
        lines = [
            record_start(process=process, process_count=3, devices=devices),
            group,
            *(replace(one, in_use=(MIB, (process + 1) * one.in_use[0])) for one in samples),
        ]
        write_record(tmp_path, lines, f"process-{process}-a.jsonl")
    report = timeline_report(tmp_path)
    assert [process.process for process in report.processes] == [0, 1, 2]
    assert (report.process, report.device, report.process_count) == (2, 5, 3)
    assert report.in_use == tuple(3 * MIB * number for number in range(10))
    other = timeline_report(tmp_path, process=0, device=4)
    assert (other.process, other.device) == (0, 4)
    assert other.in_use == (MIB,) * 10
    assert [series.kind for series in other.series] == ["not arrays"]
    with pytest.raises(UnsupportedValueError, match="process=7 is not in the record: it has 0-2"):
        timeline_report(tmp_path, process=7)
    with pytest.raises(UnsupportedValueError, match="device=7 is not in the record: it has 4"):
        timeline_report(tmp_path, device=7)
    with pytest.raises(ValueError, match="last must be a positive number of seconds"):
        timeline_report(tmp_path, last=0)


def test_the_samples_of_other_processes_are_not_kept(tmp_path: Path) -> None:
    """Only the process of the timeline needs its samples: a job may have thousands of processes."""
    for process in range(4):
        lines = segment(process=process, process_count=4, count=4 - process)
        write_record(tmp_path, lines, f"process-{process}-a.jsonl")
    follower = Follower(tmp_path)
    follower.report()
    kept = {run.process: len(history.samples) for run, history in follower._histories.items()}
    assert kept == {0: 10, 1: 0, 2: 0, 3: 0}


def test_the_last_seconds(tmp_path: Path) -> None:
    """With ``last``, older samples are left out; peaks of devices and the number of samples are not."""
    samples = samples_of([GROUP], {0: lambda number: 50 if number == 3 else 1}, 100)
    write_record(tmp_path, [record_start(), GROUP, *samples])
    report = timeline_report(tmp_path, last=10.0)
    assert report.times == tuple(START + number for number in range(89, 100))
    assert report.processes[0].sample_count == 100
    assert report.processes[0].devices[0].peak_nbytes == 50 * MIB
    assert report.processes[0].start == START


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is made ten seconds after the last sample of a segment."""
    monkeypatch.setattr(module.clock, "time", lambda: START + 20)


@pytest.mark.usefixtures("now")
def test_the_state_of_a_process(tmp_path: Path) -> None:
    """A process runs, ended, is gone, or has not been heard from."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    here = identity()
    states = {
        "running": segment(**here._asdict()),
        "stopped": [*segment(), RecordEnd(time=START + 10, reason="stopped")],
        "exited": [*segment(), RecordEnd(time=START + 10, reason="exited")],
        "raised": [*segment(), RecordEnd(time=START + 10, reason="raised", message="ValueError: no")],
        # It may be running on its own machine.
        "not heard from": segment(-30),
        "gone": segment(**here._replace(pid=int(gone.stdout), pid_started=1)._asdict()),
    }
    for state, lines in states.items():
        write_record(tmp_path / state, lines)
        [process] = timeline_report(tmp_path / state).processes
        assert process.state == state
    # Another process has its id by now, or it is another container's.
    write_record(tmp_path / "id", segment(**here._replace(pid_started=1)._asdict()))
    assert timeline_report(tmp_path / "id").processes[0].state == "gone"
    write_record(
        tmp_path / "container", segment(**here._replace(pid=2**22 + 1, pid_namespace="pid:[1]")._asdict())
    )
    assert timeline_report(tmp_path / "container").processes[0].state == "running"


def test_a_process_that_wrote_nothing_lately_may_wait_longer_between_samples(tmp_path: Path) -> None:
    """Patience depends on the time between samples."""
    write_record(tmp_path, segment(every=10**9))
    assert timeline_report(tmp_path).processes[0].state == "running"


def test_out_of_memory(tmp_path: Path) -> None:
    """The answer begins with the allocation that failed."""
    error = RecordOutOfMemory(
        time=START + 9.5, message="RESOURCE_EXHAUSTED: no", requested_nbytes=3 * 2**30, step=9
    )
    end = RecordEnd(time=START + 10, reason="raised", message="XlaRuntimeError: RESOURCE_EXHAUSTED: no")
    write_record(tmp_path, [*segment(), record_mark(9, "eval"), error, end])
    report = timeline_report(tmp_path)
    assert report.answer[0].startswith("out of memory at ")
    assert report.answer[0].endswith(", step 9, in eval, 3.0 GiB requested")
    assert "ended with XlaRuntimeError: RESOURCE_EXHAUSTED: no" in report.extent


def test_a_record_is_only_read(tmp_path: Path) -> None:
    """Reading needs no permission to write, and leaves nothing behind."""
    path = write_record(tmp_path / "record", segment())
    path.chmod(0o444)
    path.parent.chmod(0o555)
    before = os.stat(path.parent), os.stat(path)
    try:
        timeline_report(path.parent)
    finally:
        path.parent.chmod(0o755)
    assert (os.stat(path).st_mtime, os.stat(path.parent).st_mtime) == (before[1].st_mtime, before[0].st_mtime)


def test_reading_does_not_import_jax(tmp_path: Path) -> None:
    """A record is read on a machine without devices."""
    write_record(tmp_path, segment())
    code = (
        "import sys; from jax_array_info import timeline_report, to_text, to_svg;"
        f"report = timeline_report({str(tmp_path)!r}); to_text(report), to_svg(report);"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
