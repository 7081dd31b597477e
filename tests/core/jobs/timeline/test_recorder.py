"""The recorder writes samples, steps, errors, and marks with the bytes in use."""

import errno
import os
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import report_on_oom
from jax_array_info_core import record_memory, timeline_report
from jax_array_info_core.errors import TrackerError, UnsupportedValueError
from jax_array_info_core.jobs.timeline import recording
from jax_array_info_core.jobs.timeline.in_use import BytesInUse
from jax_array_info_core.jobs.timeline.recorder import Failure, Moment, record_program
from tests.arrays import mesh_of
from tests.growing import born
from tests.records import bytes_of, of_kind, record_of, recorded, sample_count, segment_paths, until

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("devices", "unhurried")]


def test_a_record_has_devices_groups_samples_marks_steps_and_an_end(no_arrays, tmp_path):
    with record_memory(tmp_path / "a" / "b", every=0.02) as recorder:
        kept = born(3)
        until(lambda: sample_count(tmp_path / "a" / "b"))
        recorder.step(1200)
        recorder.mark("warm-up")
        recorder.step()
        with recorder.mark("eval"):
            more = [jnp.zeros((50,))]
    start, *lines = record_of(tmp_path / "a" / "b")
    assert [device.id for device in start.devices] == [device.id for device in jax.local_devices()]
    assert (start.pid, start.process, start.process_count, start.segment) == (os.getpid(), 0, 1, 0)
    assert (start.in_use_source, start.every) == ("arrays", 0.02)
    marks = [(mark.name, mark.step, mark.is_end) for mark in of_kind(lines, "mark")]
    assert marks == [("warm-up", 1200, False), ("eval", 1201, False), ("eval", 1201, True)]
    last = of_kind(lines, "sample")[-1]
    assert last.step == 1201
    assert bytes_of(lines, last)["born", "float32[10]"] == 120
    assert last.in_use == (120 + more[0].nbytes, *[0] * (len(start.devices) - 1))
    assert (lines[-1].reason, lines[-1].message) == ("stopped", "")
    assert kept


def test_each_group_is_written_once_before_the_first_sample_with_it(no_arrays, tmp_path):
    kept = born(2)
    lines = recorded(tmp_path, Moment(1.0, "a", None, False))
    kinds = [type(line).__name__ for line in lines]
    assert kinds[:4] == ["RecordStart", "RecordGroup", "RecordSample", "RecordMark"]
    assert set(kinds[4:-1]) == {"RecordSample"}
    assert kept


@pytest.mark.needs_devices(8)
def test_other_arrays_are_summed_on_each_device(no_arrays, tmp_path):
    sharding = NamedSharding(mesh_of((8,), ("a",)), P("a"))
    kept = [jax.device_put(np.zeros(8 * n, np.int8), sharding) for n in range(1, 81)]
    lines = recorded(tmp_path)
    sample = of_kind(lines, "sample")[-1]
    assert len(sample.groups) == 50
    assert sample.other_nbytes == (sum(range(1, 31)),) * 8
    assert sample.in_use == (sum(range(1, 81)),) * 8
    full = recorded(tmp_path, Failure(1.0, "out", 7, threading.Event()))
    assert max(len(sample.groups) for sample in of_kind(full, "sample")) == 80
    assert kept


def test_the_statistics_of_the_allocator_come_first(no_arrays, tmp_path):
    def memory_of(device):
        return {"bytes_in_use": 100 + device.id, "peak_bytes_in_use": 200, "bytes_limit": 300}

    start, *_, sample, _ = recorded(tmp_path, memory_of=memory_of)
    assert start.in_use_source == "allocator"
    assert {device.bytes_limit for device in start.devices} == {300}
    assert sample.in_use == tuple(100 + device.id for device in jax.local_devices())
    assert sample.peak == (200,) * len(start.devices)
    assert BytesInUse(jax.local_devices(), memory_of).read() == (sample.in_use, sample.peak)


def test_a_second_recorder_is_refused_with_the_folder_of_the_first(tmp_path):
    with record_memory(tmp_path / "first") as recorder:
        with pytest.raises(TrackerError, match=r"already recorded to .*first: call the stop\(\)"):
            record_memory(tmp_path / "second")
        assert not (tmp_path / "second").exists()
        recorder.stop()
        recorder.stop()
        with record_memory(tmp_path / "second"):
            recorder.mark("late")
            recorder.step()
    assert record_of(tmp_path / "second")[-1].reason == "stopped"


def test_recorders_after_each_other_are_joined_in_one_folder(tmp_path):
    for _ in range(2):
        with record_memory(tmp_path):
            until(lambda: segment_paths(tmp_path))
    starts = of_kind(record_of(tmp_path), "start")
    assert [start.segment for start in starts] == [0, 0]
    assert starts[0].started < starts[1].started


def test_arguments_are_checked(tmp_path):
    for every in (0, -1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(UnsupportedValueError, match="every="):
            record_memory(tmp_path, every=every)
    for nbytes in (0, 2**22 - 1, 1e9, "many", "1KiB", None, True):
        with pytest.raises(UnsupportedValueError, match="max_nbytes"):
            record_memory(tmp_path, max_nbytes=nbytes)
    with pytest.raises(UnsupportedValueError, match="path of a folder"):
        record_memory(3)
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            record_memory(place)
    with record_memory(tmp_path / "good", max_nbytes="4 MiB") as recorder:
        recorder.step(np.int32(3))
        for number in (1.0, True, "1", jnp.int32(1), 2**63, -(2**70)):
            with pytest.raises(UnsupportedValueError, match="must be an int"):
                recorder.step(number)
        with pytest.raises(UnsupportedValueError, match="name for a mark"):
            recorder.mark(3)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]


def hungry():
    held = jnp.zeros((30, 40))
    return held, jnp.zeros(2**50, jnp.int8)


def test_an_out_of_memory_error_is_recorded_with_what_was_alive(no_arrays, tmp_path):
    with pytest.raises((RuntimeError, ValueError), match="RESOURCE_EXHAUSTED"), record_memory(tmp_path):
        hungry()
    lines = record_of(tmp_path)
    (failure,) = of_kind(lines, "out of memory")
    assert failure.message.startswith("RESOURCE_EXHAUSTED")
    assert failure.requested_nbytes == 2**50
    sample = next(line for line in lines[lines.index(failure) :] if line in of_kind(lines, "sample"))
    assert bytes_of(lines, sample)["hungry", "float32[30,40]"] == 4800
    assert lines[-1].reason == "raised"
    assert "RESOURCE_EXHAUSTED" in lines[-1].message


def test_report_on_oom_tells_the_recorder_once_per_error(no_arrays, tmp_path, capsys):
    with record_memory(tmp_path):
        for _ in range(2):
            with pytest.raises((RuntimeError, ValueError)), report_on_oom(), report_on_oom():
                hungry()
        with pytest.raises(KeyError), report_on_oom():
            raise KeyError("x")
    assert len(of_kind(record_of(tmp_path), "out of memory")) == 2


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (ValueError("first\nsecond"), "raised", "ValueError: first"),
        (KeyboardInterrupt(), "raised", "KeyboardInterrupt"),
        (SystemExit(3), "raised", "SystemExit: 3"),
        (SystemExit(0), "exited", ""),
        (SystemExit(), "exited", ""),
        (GeneratorExit(), "stopped", ""),
    ],
)
def test_the_end_has_the_reason(tmp_path, error, reason, message):
    def work():
        until(lambda: sample_count(tmp_path))
        raise error

    with pytest.raises(type(error)), record_memory(tmp_path):
        work()
    end = record_of(tmp_path)[-1]
    assert (end.reason, end.message) == (reason, message)


def test_an_error_in_the_thread_is_one_warning_and_the_end_of_the_record(tmp_path, monkeypatch):
    def broken(self, live_arrays, pause):
        raise ZeroDivisionError("of the recorder")

    monkeypatch.setattr("jax_array_info_core.jobs.timeline.in_use.LiveGroups.update", broken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record_memory(tmp_path, every=0.01) as recorder:
            until(lambda: caught)
            recorder._thread.join()
            recorder.mark("late")
            recorder.record_error(RuntimeError("RESOURCE_EXHAUSTED"))
            with record_memory(tmp_path / "another"):
                pass
    assert "no longer recorded: ZeroDivisionError: of the recorder" in str(caught[0].message)


def test_samples_that_take_long_are_farther_apart(no_arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_SHARE", 10**6)
    with record_memory(tmp_path, every=0.001) as recorder:
        until(lambda: sample_count(tmp_path) == 2)  # the first one does not count
        for _ in range(20):
            recorder.mark("often")
        until(lambda: len(of_kind(record_of(tmp_path), "mark")) == 20)
    assert len(of_kind(record_of(tmp_path), "sample")) == 3


def fail(recorder):
    recorder.step(7)
    with recorder, recorder.mark("big"):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.")


def test_an_error_in_a_mark_is_recorded_while_the_mark_lasts(no_arrays, tmp_path):
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        fail(record_memory(tmp_path))
    report = timeline_report(tmp_path)
    [error] = report.out_of_memory
    assert (error.step, error.mark, error.requested_nbytes) == (7, "big", 7)


def test_the_recorder_of_the_command_is_shared(no_arrays, tmp_path):
    """The program's own recorder is that of the command, and does not end it."""
    end_with = record_program(tmp_path / "command")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with record_memory(tmp_path / "own", every=5) as recorder:
                assert recorder._folder == tmp_path / "command"
                recorder.step(3)
                with recorder.mark("eval"):
                    pass
            recorder.stop()
        with pytest.raises(KeyError), recorder:
            raise KeyError("x")
        with pytest.raises(UnsupportedValueError, match="every="):
            record_memory(tmp_path, every=0)
    (warning,) = caught
    assert "jai-cli run records the memory of this program to" in str(warning.message)
    end_with(ValueError("the end"))
    lines = record_of(tmp_path / "command")
    assert [(mark.name, mark.step) for mark in of_kind(lines, "mark")] == [("eval", 3)] * 4
    assert [(line.reason, line.message) for line in of_kind(lines, "end")] == [
        ("raised", "ValueError: the end")
    ]
    assert not (tmp_path / "own").exists()


# Marks


@pytest.fixture
def unhurried(monkeypatch):
    """Count the live arrays to the end also while other programs need the processor."""
    monkeypatch.setattr("jax_array_info_core.jobs.timeline.in_use.LONGEST", 60.0)


def test_a_mark_that_is_not_recorded_has_no_end_either(no_arrays, tmp_path, monkeypatch):
    monkeypatch.setattr("jax_array_info_core.jobs.timeline.recorder._MOST_WAITING", 0)
    with record_memory(tmp_path) as recorder, recorder.mark("tiny"):
        pass
    assert of_kind(record_of(tmp_path), "mark") == []


def test_a_mark_has_the_bytes_in_use_at_its_begin_and_end(no_arrays, tmp_path):
    with record_memory(tmp_path) as recorder:
        until(lambda: sample_count(tmp_path))
        with recorder.mark("load"):
            kept = jnp.zeros((1000,), jnp.int8)
            views = [shard.data for shard in kept.addressable_shards]
        with recorder.mark("eval"):
            jnp.zeros((500,))
    others = (0,) * (jax.local_device_count() - 1)
    marks = of_kind(record_of(tmp_path), "mark")
    assert [mark.in_use for mark in marks] == [(0, *others), *[(1000, *others)] * 3]
    assert {mark.peak for mark in marks} == {()}
    found = {mark.name: mark.kept_nbytes for mark in timeline_report(tmp_path).marks}
    assert found == {"load": 1000, "eval": 0}
    assert kept.nbytes
    assert views


def test_a_mark_may_begin_again(no_arrays, tmp_path):
    with record_memory(tmp_path) as recorder:
        mark = recorder.mark("eval")
        for _ in range(3):
            with mark:
                pass
    lines = of_kind(record_of(tmp_path), "mark")
    assert [line.is_end for line in lines] == [False, True] * 3
    assert [line.begin for line in lines[1::2]] == [line.time for line in lines[::2]]


def test_marks_are_written_once_the_disk_has_room(no_arrays, tmp_path, monkeypatch):
    write, is_full = os.write, [True]

    def write_if(descriptor, data):
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(recording, "_RETRY", 0.01)
    monkeypatch.setattr("jax_array_info_core.base.files.os.write", write_if)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record_memory(tmp_path, every=0.01) as recorder:
            with recorder.mark("eval"):
                until(lambda: caught)
            recorder.mark("late")
            is_full[0] = False
            until(lambda: sample_count(tmp_path))
    marks = of_kind(record_of(tmp_path), "mark")
    assert [(mark.name, mark.is_end) for mark in marks] == [("eval", False), ("eval", True), ("late", False)]


def test_marks_that_wait_are_written_together(no_arrays, tmp_path, monkeypatch):
    write, sizes = os.write, []

    def counted(descriptor, data):
        sizes.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr("jax_array_info_core.base.files.os.write", counted)
    moments = [Moment(1.0 + number, "busy", number, is_end=False) for number in range(1000)]
    lines = recorded(tmp_path, *moments, max_nbytes=2**22)
    assert [mark.step for mark in of_kind(lines, "mark")] == [*range(1000)]
    assert len(sizes) < 20


@pytest.mark.needs_devices(8)
def test_a_mark_counts_what_a_sample_counts(no_arrays, tmp_path):
    mesh = mesh_of((4, 2), ("a", "b"))
    kept = [
        jax.device_put(np.zeros((8, 6), dtype), NamedSharding(mesh, spec))
        for dtype in (np.int8, np.float32, jnp.int4)
        for spec in (P(), P("a"), P("b"), P(("a", "b")), P(None, "b"))
    ]
    reader = BytesInUse(jax.local_devices())
    lines = recorded(tmp_path)
    assert reader.read() == (of_kind(lines, "sample")[-1].in_use, ())
    assert kept


def test_bytes_are_unknown_where_counting_takes_long(no_arrays, monkeypatch):
    kept = born(3)
    reader = BytesInUse(jax.local_devices())
    assert sum(reader.read().in_use) == 120
    monkeypatch.setattr("jax_array_info_core.jobs.timeline.in_use.LONGEST", 0.0)
    assert reader.read() == ((), ())
    monkeypatch.setattr("jax_array_info_core.jobs.timeline.in_use.LONGEST", 10.0)
    monkeypatch.setattr(reader, "_idle_until", float("inf"))
    assert reader.read() == ((), ())  # it is not tried again soon
    assert kept
