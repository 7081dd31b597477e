"""Lines of a segment are complete or absent, also after a kill."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.base.files import LostError
from jax_array_info_core.facts.reports.origin import Origin, SourceLine
from jax_array_info_core.facts.reports.record import (
    LINES,
    RecordCompilation,
    RecordDevice,
    RecordEnd,
    RecordGroup,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStall,
    RecordStart,
    RecordThread,
)
from jax_array_info_core.jobs.timeline.reading import read_line
from jax_array_info_core.jobs.timeline.segments import Segment, encoded, is_written
from tests.records import lines_in, segment_paths

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
        other_nbytes=(5,),
    ),
    RecordMark(time=3.5, name="größe\n\ud800", step=None, is_end=True, in_use=(5,), peak=(6,)),
    RecordOutOfMemory(time=4.0, message="RESOURCE_EXHAUSTED", requested_nbytes=2**50),
    RecordStall(
        time=4.5,
        since=3.0,
        step=-1,
        mark="größe\n\ud800",
        origin=SourceLine(file="/a\nb\udcff.py", line=3, function="make"),
        waits_in="jax.device_get",
        threads=(RecordThread(name="Thread-1 (\x1b[31m)"),),
    ),
    RecordCompilation(
        time=4.75,
        function="größe\n\ud800",
        origin=Origin(file="/a\nb.py", line=3, function="make"),
        seconds=41.5,
        reason="x: shape (8,) became (7,)",
        step=-1,
    ),
    RecordEnd(time=5.0, reason="raised", message="KeyError: 'x'"),
]


@pytest.mark.newest
def test_each_line_is_read_as_it_was_written(tmp_path):
    segment = Segment(tmp_path, 1, 0.0)
    for line in EVERY_LINE:
        segment.write(line)
    segment.close()
    assert segment.nbytes == segment.path.stat().st_size
    assert set(map(type, EVERY_LINE)) == set(LINES.values())
    assert lines_in(segment.path) == EVERY_LINE
    # A sample has another type.
    found = list(map(read_line, segment.path.read_bytes().splitlines()))
    assert list(map(repr, found)) == list(map(repr, EVERY_LINE))


@pytest.mark.newest
@given(st.text(st.characters(), max_size=20), st.sampled_from(EVERY_LINE))
def test_every_text_is_read_as_it_was_written(text, line):
    for field in dataclasses.fields(line):
        if type(getattr(line, field.name)) is str and field.name not in LITERAL:
            changed = dataclasses.replace(line, **{field.name: text})
            assert read_line(encoded(changed)) == changed


LITERAL = ("reason", "in_use_source")


@pytest.mark.newest
def test_two_segments_of_one_moment_have_different_names(tmp_path):
    segments = [Segment(tmp_path, process, 0.9995) for process in (10, 2, 2)]
    names = [path.name for path in segment_paths(tmp_path)]
    assert names == [
        "process-2-19700101T000000-999.jsonl",
        "process-2-19700101T000001-000.jsonl",
        "process-10-19700101T000000-999.jsonl",
    ]
    for segment in segments:
        segment.write(EVERY_LINE[2])
    assert segment_paths(tmp_path, 10) == [segments[0].path]
    assert [is_written(path) for path in segment_paths(tmp_path)] == [True] * 3
    for segment in segments:
        segment.close()
    assert [is_written(path) for path in segment_paths(tmp_path)] == [False] * 3


@pytest.mark.newest
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


@pytest.mark.newest
def test_an_empty_segment_is_removed_and_nothing_else_in_its_place(tmp_path):
    segment = Segment(tmp_path, 0, 0.0)
    segment.close()
    assert segment_paths(tmp_path) == []
    segment = Segment(tmp_path, 0, 0.0)
    segment.path.unlink()
    segment.path.write_text("mine")
    segment.close()
    assert segment.path.read_text() == "mine"


@pytest.mark.newest
@pytest.mark.parametrize("of", ["file", "folder", "pipe", "the segment, for reading", "none"])
def test_a_descriptor_that_the_program_takes_is_neither_written_nor_closed(tmp_path, of):
    """A program closes descriptors that it does not know, and opens its own under their numbers."""
    segment = Segment(tmp_path, 0, 0.0)
    segment.write(EVERY_LINE[2])
    before = segment.path.read_bytes()
    number = segment._file.number
    mine = tmp_path / "mine"
    mine.touch()
    if of == "none":
        os.close(number)
    else:
        path = {"file": mine, "folder": tmp_path}.get(of, segment.path)
        taken = os.pipe()[1] if of == "pipe" else os.open(path, os.O_RDWR if of == "file" else os.O_RDONLY)
        os.dup2(taken, number)
        os.close(taken)
    for _ in range(2):
        with pytest.raises(LostError):
            segment.write(EVERY_LINE[1])
    segment.close()
    assert (segment.path.read_bytes(), mine.read_bytes()) == (before, b"")
    if of != "none":
        os.close(number)  # an error if it was closed
    segment.path.unlink()


@pytest.mark.newest
def test_a_new_file_with_the_inode_of_the_segment_is_left_alone(tmp_path):
    """File systems give the inode of a removed file to the next one: its size tells them apart."""
    segment = Segment(tmp_path, 0, 0.0)
    segment.write(EVERY_LINE[2])
    number = segment._file.number
    segment.path.write_bytes(b"mine")  # the same inode, opened in the same way
    with pytest.raises(LostError):
        segment.write(EVERY_LINE[2])
    segment.close()
    os.close(number)  # an error if it was closed
    assert segment.path.read_bytes() == b"mine"


@pytest.mark.newest
def test_a_descriptor_that_is_closed_after_the_check_is_lost(tmp_path, monkeypatch):
    segment = Segment(tmp_path, 0, 0.0)
    number = segment._file.number

    def write(descriptor, data):
        os.close(number)
        return original(descriptor, data)

    original = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(LostError):
            segment.write(EVERY_LINE[2])


@pytest.mark.newest
def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "record").symlink_to(other)
    with pytest.raises(NotADirectoryError, match="a link by now"):
        Segment(tmp_path / "record", 0, 0.0)
    (other / "below").mkdir()
    with pytest.raises(NotADirectoryError, match="a link by now"):
        Segment(tmp_path / "record" / "below", 0, 0.0)
    (other / "below").rmdir()
    assert list(other.iterdir()) == []


@pytest.mark.newest
def test_whether_a_file_is_written_is_known_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    found = [is_written(tmp_path / name) for name in ("pipe", "link", "folder", "missing")]
    assert found == [False] * 4


@pytest.mark.own_process
@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_a_child_holds_no_lock_of_its_parent(tmp_path, start):
    """The parent is killed, and the child lives on."""
    program = tmp_path / "program.py"
    program.write_text(PARENT.format(folder=str(tmp_path), start=start))
    done = subprocess.run(
        [sys.executable, program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    child = int((tmp_path / "child").read_text())
    try:
        assert done.returncode == -9
        (path,) = segment_paths(tmp_path)
        assert not is_written(path)
    finally:
        os.kill(child, 9)


PARENT = """
import multiprocessing, os, time
from pathlib import Path
from jax_array_info_core.jobs.timeline.segments import Segment, is_written
from tests.core.jobs.timeline.test_segments import EVERY_LINE


def wait(is_ready):
    is_ready.set()
    time.sleep(100)


if __name__ == "__main__":
    folder = Path({folder!r})
    segment = Segment(folder, 0, 0.0)
    segment.write(EVERY_LINE[2])
    context = multiprocessing.get_context({start!r})
    is_ready = context.Event()
    child = context.Process(target=wait, args=(is_ready,))
    child.start()
    is_ready.wait()
    assert is_written(segment.path)
    (folder / "child").write_text(str(child.pid))
    os.kill(os.getpid(), 9)
"""
