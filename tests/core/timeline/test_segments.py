"""Lines of a segment are complete or absent, also after a kill."""

import json
import os
import subprocess
import sys

import pytest

from jax_array_info_core.reports.origin import Origin
from jax_array_info_core.reports.record import (
    LINES,
    RecordDevice,
    RecordEnd,
    RecordGroup,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStart,
)
from jax_array_info_core.timeline.segments import Segment, is_written, segment_paths, started_ticks
from tests.records import lines_in

EVERY_LINE = [
    RecordStart(
        time=2.5,
        started=1.5,
        segment=3,
        process=1,
        process_count=2,
        host_name="host\udcff\x1b[31m",
        pid=7,
        pid_started=99,
        platform="gpu",
        devices=(RecordDevice(id=4, name="cuda:4", bytes_limit=2**40),),
        in_use_source="allocator",
        every=1.0,
        origins_known="known",
    ),
    RecordGroup(
        id=0,
        shape=(2, "n"),
        dtype="float32",
        sharding="P('a') on a=2",
        memory_kind="device",
        origin=Origin(file="/a\nb.py", line=3, function="make"),
        shard_nbytes=8,
        devices=(0,),
    ),
    RecordSample(
        time=3.0,
        step=-1,
        in_use=(2**62,),
        peak=(2**62,),
        groups=(0,),
        counts=(1,),
        other_count=2,
        other_nbytes=(5,),
    ),
    RecordMark(time=3.5, name="größe\n", step=None, is_end=True),
    RecordOutOfMemory(time=4.0, message="RESOURCE_EXHAUSTED", requested_nbytes=2**50),
    RecordEnd(time=5.0, reason="raised", message="KeyError: 'x'"),
]


@pytest.mark.oldest_and_newest
def test_each_line_is_read_as_it_was_written(tmp_path):
    segment = Segment(tmp_path, 1, 0.0)
    for line in EVERY_LINE:
        segment.write(line)
    segment.close()
    assert segment.nbytes == segment.path.stat().st_size
    assert set(map(type, EVERY_LINE)) == set(LINES.values())
    text = segment.path.read_text("ascii").replace("\\udcff", "")  # msgspec reads no lone surrogate
    segment.path.write_text(text)
    first, *others = lines_in(segment.path)
    assert first.host_name == "host\x1b[31m"
    assert others == EVERY_LINE[1:]


@pytest.mark.oldest_and_newest
def test_two_segments_of_one_moment_have_different_names(tmp_path):
    segments = [Segment(tmp_path, process, 0.9995) for process in (10, 2, 2)]
    names = [path.name for path in segment_paths(tmp_path)]
    assert names == [
        "process-2-19700101T000000-999.jsonl",
        "process-2-19700101T000001-000.jsonl",
        "process-10-19700101T000000-999.jsonl",
    ]
    assert segment_paths(tmp_path, 10) == [segments[0].path]
    assert [is_written(path) for path in segment_paths(tmp_path)] == [True] * 3
    for segment in segments:
        segment.close()
    assert [is_written(path) for path in segment_paths(tmp_path)] == [False] * 3


@pytest.mark.oldest_and_newest
def test_half_a_line_on_a_full_disk_is_removed(tmp_path, monkeypatch):
    segment = Segment(tmp_path, 0, 0.0)
    segment.write(EVERY_LINE[2])
    before = segment.path.read_bytes()
    write, full = os.write, [False]

    def write_half(descriptor, data):
        if full[0]:
            raise OSError(28, "No space left on device")
        full[0] = True
        return write(descriptor, data[: len(data) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_half)
        with pytest.raises(OSError, match="No space left"):
            segment.write(EVERY_LINE[1])
    assert segment.path.read_bytes() == before
    segment.path.unlink()
    with pytest.raises(FileNotFoundError):
        segment.write(EVERY_LINE[1])
    segment.close()


@pytest.mark.oldest_and_newest
def test_a_process_is_known_by_its_start():
    assert started_ticks(os.getpid()) == started_ticks(os.getpid()) > 0
    assert started_ticks(2**30) is None


KILLED = """
import mmap, os, random, signal, sys, time
from pathlib import Path
from jax_array_info_core.reports.record import RecordSample
from jax_array_info_core.timeline.segments import Segment, encoded
assert "jax" not in sys.modules
folder, rng = Path(sys.argv[1]), random.Random(0)
written = mmap.mmap(-1, 4)
encoded(RecordSample(time=0.0, in_use=()))  # imports
for number in range(100):
    written[:4] = bytes(4)
    child = os.fork()
    if child == 0:
        segment, count = Segment(folder, number, time.time()), 0
        while True:
            segment.write(RecordSample(time=float(count), in_use=(count,) * rng.randrange(400)))
            count += 1
            written[:4] = count.to_bytes(4, "little")
    while written[:4] == bytes(4):
        time.sleep(0.0001)
    time.sleep(rng.random() / 100)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(int.from_bytes(written[:4], "little"))
"""


@pytest.mark.own_process
def test_a_hundred_kills_lose_at_most_one_line_each(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    written = list(map(int, done.stdout.split()))
    paths = segment_paths(tmp_path)
    assert len(paths) == len(written) == 100
    for path, count in zip(paths, written, strict=True):
        *complete, rest = path.read_bytes().split(b"\n")
        times = [json.loads(line)["time"] for line in complete]
        assert times == list(range(len(times)))
        assert count <= len(times) <= count + 1
        assert rest == b"" or len(times) == count
