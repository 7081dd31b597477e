"""The files of a recorder: full disks, folders that vanish, and what others put there."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import record_memory, timeline_report
from jax_array_info_core.facts.reports.record import RecordSample
from jax_array_info_core.jobs.timeline import recording
from jax_array_info_core.jobs.timeline.recorder import Moment
from jax_array_info_core.jobs.timeline.segments import encoded
from tests.core.jobs.timeline.samples import record_start
from tests.records import lines_in, of_kind, record_of, recorded, sample_count, segment_paths, until

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("devices")]


def test_a_folder_that_vanishes_is_one_warning_and_is_made_again_later(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_RETRY", 0.05)
    folder, aside = tmp_path / "a", tmp_path / "b"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record_memory(folder, every=0.01):
            until(lambda: sample_count(folder))
            for path in segment_paths(folder):
                path.unlink()
            folder.rename(aside)
            until(lambda: folder.exists() and sample_count(folder) > 1)
    (warning,) = caught
    assert "cannot be recorded to" in str(warning.message)
    assert "every minute" in str(warning.message)
    lines = record_of(folder)
    assert lines[0].segment > 0
    assert lines[-1].reason == "stopped"
    assert list(aside.iterdir()) == []


def test_a_folder_that_becomes_a_link_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_RETRY", 0.01)
    folder, other = tmp_path / "a", tmp_path / "b"
    other.mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record_memory(tmp_path / "link" / "a", every=0.01) as recorder:
            until(lambda: sample_count(folder))
            folder.rename(tmp_path / "c")
            folder.symlink_to(other)
            (path,) = segment_paths(tmp_path / "c")
            path.unlink()
            until(lambda: caught)
            assert recorder._thread.is_alive()
    assert "cannot be recorded to" in str(caught[0].message)
    assert list(other.iterdir()) == []


def test_a_program_that_closes_descriptors_keeps_its_files(no_arrays, tmp_path):
    """In one thread: between the check and the write of another, a line may go astray."""
    (tmp_path / "mine").touch()
    record = recording.Recording(tmp_path, 1.0, 2**28, lambda: None)
    messages = []
    record._warn = messages.append
    for _ in range(3):
        record.sample()
        number = record._segment._file.number
        mine = os.open(tmp_path / "mine", os.O_RDWR)
        os.dup2(mine, number)
        os.close(mine)
        record.sample()
        os.close(number)  # an error if it was closed
    record._close()
    assert len(messages) == 1
    assert "closed a file of its memory record" in messages[0]
    assert (tmp_path / "mine").read_bytes() == b""
    lines = record_of(tmp_path)
    assert [start.segment for start in of_kind(lines, "start")] == [0, 1, 2, 3]
    assert len(of_kind(lines, "sample")) == 6
    [process] = timeline_report(tmp_path).processes
    assert (process.run_count, process.restarts) == (1, 0)


def test_one_bad_file_does_not_end_the_record(no_arrays, tmp_path, monkeypatch):
    """What thinning cannot read is left out and named once. The rest is thinned."""
    monkeypatch.setattr(recording, "_SHARE", 0)
    os.mkfifo(tmp_path / "process-0-20200101T000000-000.jsonl")
    (tmp_path / "process-0-20200102T000000-000.jsonl").symlink_to("/dev/zero")
    (tmp_path / "process-0-20200103T000000-000.jsonl").write_text("mine\n" * 2**20)
    old = tmp_path / "process-0-20200104T000000-000.jsonl"
    line = encoded(RecordSample(time=1.0, in_use=(1,) * jax.local_device_count()))
    start = encoded(record_start(time=0.0))
    old.write_bytes(start + line * (2**23 // len(line)))
    before = old.stat().st_size
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record_memory(tmp_path, every=0.001, max_nbytes=2**22) as recorder:
            until(lambda: old.stat().st_size < before * 0.6)
            assert recorder._thread.is_alive()
    messages = sorted(str(warning.message) for warning in caught)
    assert [message[:36] for message in messages] == [
        f"process-0-2020010{n}T000000-000.jsonl in"[:36] for n in (1, 2, 3)
    ]
    assert all("not part of max_nbytes" in message for message in messages)


def test_a_folder_that_blocks_delays_the_end_by_a_second(no_arrays, tmp_path, monkeypatch):
    blocked, write = threading.Event(), os.write

    def wait(descriptor, data):
        if threading.current_thread().name == "jax_array_info recorder":
            blocked.wait()
        return write(descriptor, data)

    monkeypatch.setattr(
        "jax_array_info_core.jobs.timeline.recorder._PATIENCE", 1000.0
    )  # of 10 s for a sample
    with record_memory(tmp_path, every=0.01) as recorder:
        until(lambda: sample_count(tmp_path))
        monkeypatch.setattr("jax_array_info_core.base.files.os.write", wait)
        until(lambda: recorder._recording._in_folder is not None)
        start = time.monotonic()
        recorder.stop()
        assert time.monotonic() - start < 500
        blocked.set()
        recorder._thread.join()


def test_nothing_follows_a_full_disk_but_one_segment(no_arrays, tmp_path, monkeypatch):
    """Neither empty segments nor those of a start alone."""
    monkeypatch.setattr(recording, "_RETRY", 0.0)
    write, room = os.write, [10_000]

    def write_some(descriptor, data):
        if len(data) > room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(data)
        return write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr("jax_array_info_core.base.files.os.write", write_some)
        record = recording.Recording(tmp_path, 1e-9, 2**28, lambda: None)
        for _ in range(200):
            record.sample()
        assert room[0] < 1000
        (path,) = segment_paths(tmp_path)
        room[0] = 5000
        record.sample()
    assert segment_paths(tmp_path) == [path]
    assert all(path.read_bytes().splitlines())
    lines = lines_in(path)
    record._close()
    full = tmp_path / "full"
    full.mkdir()
    with monkeypatch.context() as patched:
        room[0] = 10
        patched.setattr("jax_array_info_core.base.files.os.write", write_some)
        record = recording.Recording(full, 1e-9, 2**28, lambda: None)
        for _ in range(20):
            record.sample()
    assert list(full.iterdir()) == []
    assert of_kind(lines, "sample")


def test_a_full_disk_is_one_warning_also_if_warnings_are_errors(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jax_array_info_core.jobs.timeline.segments.os.write", full)
    with pytest.warns(UserWarning, match="No space left on device") as caught:
        recorded(tmp_path, *[Moment(1.0, "a", None, False)] * 3)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record_memory(tmp_path, every=0.01) as recorder:
            until(lambda: recorder._recording and recorder._recording._said)
        assert not recorder._thread.is_alive()


def test_full_segments_are_followed_by_others_and_thinned(no_arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_SHARE", 0)
    kept = [jnp.zeros((n,), jnp.int8) for n in range(1, 6)]
    in_use = iter([*range(5000, 10_000), *range(5000)])
    given = []

    def memory_of(device):
        number = next(in_use) if device.id == jax.local_devices()[0].id else 0
        given.append(number)
        return {"bytes_in_use": number, "peak_bytes_in_use": None, "bytes_limit": None}

    max_nbytes = 3 * 2**16
    record = recording.Recording(tmp_path, 1e-9, max_nbytes, lambda: None, memory_of=memory_of)
    for _ in range(1000):
        record.sample()
        for _ in record._thinning:
            pass
    record._segment.close()
    assert sum(path.stat().st_size for path in segment_paths(tmp_path)) <= max_nbytes
    lines = record_of(tmp_path)
    starts = of_kind(lines, "start")
    assert [start.segment for start in starts] == list(range(len(starts)))
    assert len(starts) > 4
    samples = of_kind(lines, "sample")
    assert samples[-1].in_use[0] in given[-2 * jax.local_device_count() :]
    assert len(samples) < 800
    assert kept


PROGRAM = '''
import errno, json, os, sys, types, warnings
import jax.numpy as jnp
from jax_array_info_core import record_memory
from jax_array_info_core.base import files as descriptors
from jax_array_info_core.jobs.timeline import recorder, recording, segments

recording._RETRY = 0.0


class Failing(types.ModuleType):
    """The module os, whose n-th call raises an error."""

    def __init__(self, number, error):
        super().__init__("os")
        self.number, self.error, self.calls = number, error, 0

    def __getattr__(self, name):
        found = getattr(os, name)
        if not isinstance(found, (types.FunctionType, types.BuiltinFunctionType)):
            return found

        def call(*args, **kwargs):
            self.calls += 1
            if self.calls == self.number:
                raise self.error
            return found(*args, **kwargs)

        return call


def session(number, name, error):
    """Run a small program with a recorder whose n-th call of the system fails, and return the calls."""
    failing = Failing(number, error)
    running_recorder = record_memory(f"record-{name}", every=0.001, max_nbytes=2**22)
    for module in (descriptors, recorder, recording, segments):
        module.os = failing
    kept = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with running_recorder as one:
            for step in range(5):
                one.step(step)
                with one.mark("part"):
                    kept.append(jnp.ones(step + 1))
                with open(f"own-{name}", "a") as file:
                    print(sum(map(len, kept)), file=file)
    messages = [str(warning.message) for warning in caught]
    for module in (descriptors, recorder, recording, segments):
        module.os = os
    running_recorder.stop()
    return failing.calls, messages


jnp.ones(3)
print(json.dumps([session(*json.loads(one), OSError(errno.EIO, "broken")) for one in sys.argv[1:]]))
'''


@pytest.mark.own_process
def test_each_call_of_the_system_may_fail(tmp_path):
    """The program's output, files and exit code are as without it, but for one warning."""
    numbers = [10**9, *range(1, 21)] if "JAI_FUZZ" not in os.environ else [10**9, *range(1, 200)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(json.dumps([one, str(one)]) for one in numbers)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found[0][0] > len(numbers)  # the calls of a program to which nothing is refused
    assert found[0][1] == []
    for number, (_, messages) in zip(numbers, found, strict=True):
        assert len(messages) <= 1
        assert all("record" in message for message in messages)
        assert (tmp_path / f"own-{number}").read_text() == "1\n3\n6\n10\n15\n"
