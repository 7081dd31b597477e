"""A report says which process stands where, in which step each is, and which wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jax_array_info_core import timeline_report
from jax_array_info_core.facts.reports.record import RecordEnd, RecordSample, RecordStall
from jax_array_info_core.facts.reports.timeline_process import TimelineProcess, standing_words
from jax_array_info_core.jobs.timeline.segments import encoded
from jax_array_info_core.reports import SourceLine

from .samples import START, record_mark, record_stall, record_start, report_of, write_record

pytestmark = pytest.mark.newest


def process(number: int, step: int | None = 1200, **fields: object) -> TimelineProcess:
    """Return a process that runs for 1,000 seconds."""
    plain: dict[str, object] = {
        "process": number,
        "host_name": "host",
        "pid": 100 + number,
        "platform": "gpu",
        "start": START,
        "end": START + 1000,
        "every": 1.0,
        "state": "running",
        "step": step,
    }
    return TimelineProcess(**{**plain, **fields})  # type: ignore[arg-type]


def waits(step: int | None = 1200, **fields: object) -> RecordStall:
    """Return a stall in the line that runs a step."""
    origin = SourceLine(file="/home/me/train.py", line=88, function="train")
    return record_stall(900, step, **{"origin": origin, "waits_in": "jax.block_until_ready", **fields})


def words(*processes: TimelineProcess) -> str:
    """Return the words with times in seconds since the start."""
    return standing_words(processes, lambda time: f"{time - START:g} s")


def test_the_process_in_the_lowest_step_stands_and_the_others_wait() -> None:
    others = [process(number, stall=waits()) for number in range(8) if number != 3]
    assert words(process(3, 1199, stall=record_stall(900, 1199)), *others) == (
        "process 3 has stood in make_array at data.py:41 since 840 s, step 1,199; "
        "7 processes wait in step 1,200"
    )


def test_in_one_step_the_fewest_in_one_place_stand() -> None:
    stall = record_stall(900, 1200, mark="load")
    found = [process(0, stall=waits()), process(1, stall=stall), process(2, stall=waits())]
    assert words(*found) == (
        "process 1 has stood in make_array at data.py:41 since 840 s, step 1,200, in load; "
        "2 processes wait in step 1,200"
    )
    assert words(*found[:2]).startswith("process 1 has stood in make_array")
    assert words(*found[1:]).endswith("; process 2 waits in step 1,200")


def test_processes_in_the_same_place_are_named_together() -> None:
    """The time is that from which all of them stand there."""
    found = [process(number, stall=waits(since=START + 800 + number)) for number in range(3)]
    assert words(*found) == (
        "all 3 processes have waited for devices in train at train.py:88 since 802 s, step 1,200, "
        "waiting in jax.block_until_ready"
    )
    stalls = [process(number, stall=record_stall(900 + number, 1200)) for number in range(3)]
    assert words(*stalls, process(3)) == (
        "processes 0-2 have stood in make_array at data.py:41 since 842 s, step 1,200; "
        "process 3 without a stall in step 1,200"
    )


def test_two_places_that_tie_are_both_named() -> None:
    """Nothing tells which of them the other waits for."""
    load = record_stall(900, 1200, line=7, waits_in="queue.Queue.get")
    found = [process(0, stall=record_stall(900, 1200)), process(1, stall=load)]
    assert words(*found) == (
        "process 0 has stood in make_array at data.py:41 since 840 s, step 1,200; "
        "process 1 has stood in make_array at data.py:7 since 840 s, step 1,200, waiting in queue.Queue.get"
    )


@pytest.mark.parametrize(
    "call",
    [
        "jax.block_until_ready",
        "jax.Array.__float__",
        "jax.Array.__array__",
        "jax.device_get",
        "the jitted function step",
        "multihost_utils.sync_global_devices",
        "jax.distributed.shutdown",
    ],
)
@pytest.mark.parametrize("step", [1199, 1200, 1201])
def test_a_process_that_waits_for_devices_is_never_the_one_that_stands(call: str, step: int) -> None:
    found = [process(0, step, stall=waits(step, waits_in=call)), process(1, stall=record_stall(900, 1200))]
    assert words(*found) == (
        f"process 1 has stood in make_array at data.py:41 since 840 s, step 1,200; process 0 waits in step {step:,}"
    )


def test_ends_are_told_in_the_order_of_time() -> None:
    """With their exceptions."""
    broken = "XlaRuntimeError: connection closed by peer"
    found = [
        process(0, 5, state="raised", message=broken, end=START + 502),
        process(1, 5, state="gone", end=START + 503),
        process(2, 5, state="raised", message="ValueError: bad batch", end=START + 501),
        process(3, 5, state="raised", message=broken, end=START + 504),
    ]
    assert words(*found) == (
        "process 2 ended first, at 501 s, step 5: ValueError: bad batch; "
        f"processes 0,3 ended at 502 s to 504 s, step 5: {broken}; "
        "process 1 killed, or crashed, after 503 s, step 5 or later"
    )


def test_ends_that_are_alike_are_told() -> None:
    found = [process(number, None, state="raised", message="FloatingPointError: nan") for number in range(4)]
    assert words(*found) == "all 4 processes ended at 1000 s: FloatingPointError: nan"
    assert words(*found[:2]) == "both processes ended at 1000 s: FloatingPointError: nan"
    assert words(found[0]) == ""  # which its own line says


def test_an_end_after_a_stall_is_its_consequence() -> None:
    """A process that fails while it waits comes after the one that stood before."""
    failed = process(0, state="raised", message="XlaRuntimeError: timed out", end=START + 900)
    assert words(failed, process(1, stall=record_stall(700, 1200))).startswith("process 1 has stood in")
    assert words(failed, process(1, stall=record_stall(990, 1200))).startswith("process 0 ended at 900 s")


def test_a_main_thread_that_rests_stands_only_where_others_wait() -> None:
    """Without steps."""
    rests = replace(record_stall(900, None), waits_in="queue.Queue.get")
    resting = process(1, None, stall=rests)
    assert words(resting) == words(process(0, None, stall=rests), resting) == words(process(0), resting) == ""
    waiting = process(0, None, stall=waits(None))
    assert words(waiting) == words(waiting, process(1, None, stall=waits(None))) == ""
    assert words(waiting, resting) == (
        "process 1 has stood in make_array at data.py:41 since 840 s, waiting in queue.Queue.get; "
        "process 0 waits for devices"
    )
    assert (
        resting.resting == "main thread at make_array, data.py:41, waiting in queue.Queue.get, for 2 min 40 s"
    )
    assert process(0, stall=record_stall(900, 3)).resting == process(0).resting == ""


def test_a_process_that_is_not_heard_from_comes_first() -> None:
    """It could not write a stall of its own."""
    frozen = process(1, 1199, state="not heard from", end=START + 800)
    found = [process(0, stall=waits()), frozen, process(2, stall=waits())]
    assert (
        words(*found)
        == "process 1 last heard from at 800 s, step 1,199 or later; 2 processes wait in step 1,200"
    )


def test_a_process_that_was_killed_comes_first() -> None:
    killed = process(1, 1199, state="gone")
    assert words(process(0), killed, process(2, state="raised")) == (
        "process 1 killed, or crashed, after 1000 s, step 1,199 or later; "
        "process 2 ended with an exception at 1000 s, step 1,200; process 0 without a stall in step 1,200"
    )


def test_a_process_that_ended_early_comes_before_those_that_wait() -> None:
    ended = process(1, 7, state="exited", end=START + 500)
    assert words(process(0, 8, stall=waits(8)), ended) == (
        "process 1 ended at 500 s, step 7; process 0 waits in step 8"
    )


def test_a_process_that_ended_comes_before_those_that_failed() -> None:
    """As they do that lose their connection to it."""
    found = [process(0, state="raised"), process(1, state="exited"), process(2, state="raised")]
    assert words(*found) == (
        "process 1 ended at 1000 s, step 1,200; processes 0,2 ended with an exception at 1000 s, step 1,200"
    )


def test_a_process_without_a_stall_in_a_lower_step_comes_first() -> None:
    """It may take longer steps, or be between its marks."""
    expected = "process 1 without a stall in step 1,199; process 0 waits in step 1,200"
    assert words(process(0, stall=waits()), process(1, 1199)) == expected
    assert words(process(0, stall=waits()), process(1, None)).startswith(
        "process 1 without a stall; process 0"
    )


def test_where_nothing_stands_nothing_is_said() -> None:
    assert words() == ""
    assert words(process(0), process(1, 1199)) == ""
    assert words(process(0, state="exited"), process(1, state="exited")) == ""
    assert words(process(0), process(1, state="not heard from")) == ""  # a slow disk


def test_a_job_that_was_killed_as_a_whole_is_one_clause() -> None:
    together = [process(number, 1200 + number, state="gone", end=START + 991 + number) for number in range(3)]
    assert words(*together) == (
        "all 3 processes killed, or crashed, after 991 s to 993 s, step 1,200 to 1,202 or later"
    )


def test_a_job_that_was_killed_later_stood() -> None:
    stall = record_stall(900, 1199)
    found = [process(0, state="gone", stall=waits()), process(1, 1199, state="gone", stall=stall)]
    assert words(*found) == (
        "process 1 stood in make_array at data.py:41 from 840 s to 1000 s, step 1,199; process 0 waited in step 1,200"
    )


def test_processes_of_an_earlier_job_are_left_out() -> None:
    earlier = process(5, 3, state="gone", start=START - 500, end=START - 400)
    assert words(process(0), earlier) == ""
    assert words(process(0, stall=waits()), earlier).startswith("process 0 has waited for devices in train")


def test_very_many_groups_are_a_few_clauses() -> None:
    found = [process(number, number, stall=waits(number)) for number in range(100)]
    assert words(*found).endswith("; process 3 waits in step 3; 96 more processes")


def test_runs_have_their_names() -> None:
    runs = [process(0, run=run, run_count=2, stall=waits()) for run in range(2)]
    assert words(*runs).startswith("both processes have waited for devices in train")
    assert words(runs[0]).startswith("process 0 (run 0: host host, pid 100) has waited")


def sample(second: float, step: int | None) -> RecordSample:
    return RecordSample(time=START + second, step=step, in_use=(1,))


def test_a_stall_lasts_until_a_sample_of_another_step(tmp_path: Path) -> None:
    stall = record_stall(90, 3)
    lines = [sample(1, 3), stall, sample(91, 3), record_mark(92, "eval", step=3)]
    report = report_of(tmp_path, *lines)
    assert report.processes[0].stall == stall
    assert report.answer[0] == report.standing
    assert "make_array at data.py:41" in report.standing
    for ending in (sample(93, 4), sample(93, None), RecordEnd(time=START + 93, reason="stopped")):
        report = report_of(tmp_path, *lines, ending)
        assert report.processes[0].stall is None
        assert report.standing == ""
    assert report_of(tmp_path, *lines, sample(93, 4), record_stall(170, 4)).processes[0].stall.step == 4


def test_a_process_that_starts_again_does_not_stand(tmp_path: Path) -> None:
    write_record(tmp_path, [record_start(job="7"), sample(1, 3), record_stall(90, 3)])
    again = [record_start(started=START + 200, time=START + 200, job="7", pid=18), sample(201, None)]
    write_record(tmp_path, again, "process-0-b.jsonl")
    [process] = timeline_report(tmp_path).processes
    assert (process.restarts, process.stall) == (1, None)


def test_a_clock_that_was_set_back_moves_a_stall(tmp_path: Path) -> None:
    """Its times ascend with those of the other lines."""
    report = report_of(tmp_path, sample(500, 3), replace(record_stall(90, 3), time=START + 90))
    stall = report.processes[0].stall
    assert (stall.since - START, stall.time - START) == (440, 500)


def test_a_stall_has_no_more_than_a_recorder_writes() -> None:
    [thread] = record_stall(90, 3).threads
    for threads in ((thread,) * 17, (replace(thread, frames=thread.frames * 7),)):
        with pytest.raises(ValueError, match="more than 16 stacks, or 12 frames"):
            record_stall(90, 3, threads=threads)


def test_a_line_with_more_than_a_recorder_writes_is_left_out(tmp_path: Path) -> None:
    line = encoded(record_stall(90, 3)).replace(b'"threads":[', b'"threads":[' + b'{"name":"x"},' * 10_000)
    write_record(tmp_path, [record_start(), sample(1, 3)], tail=line + encoded(sample(91, 3)))
    report = timeline_report(tmp_path)
    assert report.processes[0].stall is None
    assert report.processes[0].sample_count == 2
    assert "more than 16 stacks" in report.unread[0].reason
