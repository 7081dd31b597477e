"""Lines of a segment are complete or absent, also after a kill."""

import os

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
from jax_array_info_core.timeline.segments import Segment, is_written, segment_paths
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
