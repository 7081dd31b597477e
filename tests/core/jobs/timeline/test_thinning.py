"""Thinned segments keep peaks and marks, and stay below the limit."""

import contextlib
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.base.files import LostError, UnsuitableError
from jax_array_info_core.facts.reports.record import (
    RecordEnd,
    RecordGroup,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
)
from jax_array_info_core.jobs.timeline import segments
from jax_array_info_core.jobs.timeline.segments import FEWEST, Segment, thin_segments
from tests.core.jobs.timeline.samples import record_start
from tests.records import lines_in, of_kind, record_of, segment_paths

pytestmark = pytest.mark.newest
START = record_start(time=0.0)


def sample(time, nbytes, groups=()):
    return RecordSample(time=float(time), in_use=(nbytes, 0), groups=tuple(groups), counts=(1,) * len(groups))


def group(number):
    return RecordGroup(id=number, shape=(4,), dtype="int8", sharding="", shard_nbytes=4, devices=(0,))


def mark(time):
    return RecordMark(time=float(time), name="eval")


def written(folder, lines, *, started=0.0, process=0):
    segment = Segment(folder, process, started)
    for line in (START, *lines):
        segment.write(line)
    segment.close()
    return segment.path


def thinned(folder, max_nbytes=0, process=0):
    for _ in thin_segments(folder, process, max_nbytes):
        pass


def thinned_once(path):
    for _ in (work := segments._thin(path.parent, path.name)):
        pass
    work.close()
    start, *lines = lines_in(path)
    assert start == START
    return lines


def test_of_two_neighbors_the_fuller_one_stays(tmp_path):
    nbytes = [8, 5, 3, 3, 9, 4, 4, 7, 1, 2, 6]
    path = written(tmp_path, [sample(time, size) for time, size in enumerate(nbytes)])
    assert [line.time for line in thinned_once(path)] == [0, 1, 4, 5, 7, 10]  # the first one stays
    assert len(thinned_once(path)) == 6  # at most FEWEST


def test_neighbors_are_on_one_side_of_a_mark_and_errors_keep_their_sample(tmp_path):
    lines = [sample(0, 9), sample(1, 1), sample(2, 2), mark(2.5), sample(3, 8)]
    lines += [
        RecordOutOfMemory(time=3.5, message="m"),
        sample(4, 1, [7]),
        *(sample(5 + n, 0) for n in range(6)),
    ]
    path = written(tmp_path, [group(7), *lines, RecordEnd(time=20.0, reason="stopped")])
    found = thinned_once(path)
    assert [line.time for line in found[1:]] == [0, 2, 2.5, 3, 3.5, 4, 5, 7, 9, 20]  # 0 is the first
    assert found[0] == group(7)


def test_groups_that_no_sample_refers_to_any_more_are_removed(tmp_path):
    lines = [line for n in range(20) for line in (group(n), sample(n, n % 2, [n]))]
    found = thinned_once(written(tmp_path, lines))
    assert [line.id for line in of_kind(found, "group")] == [0, *range(1, 20, 2)]


@given(st.lists(st.integers(0, 20), min_size=FEWEST + 1, max_size=60), st.sets(st.integers(0, 59)))
def test_the_peak_and_all_marks_stay(tmp_path_factory, sizes, marks):
    folder = tmp_path_factory.mktemp("record")
    lines = []
    for time, size in enumerate(sizes):
        lines += [mark(time)] * (time in marks) + [sample(time, size)]
    path = written(folder, lines)
    found = thinned_once(path)
    assert of_kind(found, "mark") == of_kind(lines, "mark")
    assert max(line.in_use[0] for line in of_kind(found, "sample")) == max(sizes)
    assert [line for line in lines if line in found] == found
    stretches = 2 + len([time for time in marks if time < len(sizes)])
    assert len(of_kind(found, "sample")) <= len(sizes) / 2 + stretches


def test_segments_get_thinner_evenly_until_all_fit(tmp_path):
    nbytes = 0
    for number in range(8):
        path = written(tmp_path, [sample(n, n % 50) for n in range(200)], started=float(number))
        nbytes += path.stat().st_size
    thinned(tmp_path, nbytes // 5)
    sizes = [path.stat().st_size for path in segment_paths(tmp_path)]
    assert sum(sizes) <= nbytes // 5
    assert len(sizes) == 8
    assert sizes == sorted(sizes)  # the oldest is the thinnest
    assert sizes[-1] < 2.5 * sizes[0]
    for path in segment_paths(tmp_path):
        assert max(line.in_use[0] for line in of_kind(lines_in(path), "sample")) == 49


def test_if_no_segment_can_lose_samples_the_oldest_is_deleted(tmp_path):
    paths = [written(tmp_path, [mark(n) for n in range(99)], started=float(n)) for n in range(4)]
    thinned(tmp_path, 2 * paths[0].stat().st_size)
    assert segment_paths(tmp_path) == paths[2:]


def test_open_segments_those_of_other_processes_and_other_files_are_left_alone(tmp_path):
    lines = [sample(n, n) for n in range(50)]
    other = written(tmp_path, lines, process=1)
    foreign = tmp_path / "process-0.jsonl"
    foreign.write_bytes(other.read_bytes())
    segment = Segment(tmp_path, 0, 0.0)
    for line in lines:
        segment.write(line)
    thinned(tmp_path)
    assert record_of(tmp_path) == [*lines, START, *lines]
    assert foreign.read_bytes() == other.read_bytes()
    segment.close()


def test_a_segment_keeps_its_permissions(tmp_path):
    path = written(tmp_path, [sample(n, n) for n in range(20)])
    path.chmod(0o640)
    assert len(thinned_once(path)) == 11
    assert path.stat().st_mode & 0o777 == 0o640


def test_damaged_lines_are_dropped(tmp_path):
    path = written(tmp_path, [sample(n, n) for n in range(20)])
    whole = path.read_bytes()
    start, _, rest = whole.partition(b"\n")
    damaged = b"\n".join(DAMAGED)
    path.write_bytes(start + b"\n" + damaged + b"\n" + rest + damaged + b'\n{"line":"sam')
    assert [line.time for line in thinned_once(path)] == [0, *range(2, 20, 2), 19]


DAMAGED = [
    b'{"line":"sample"}',
    b"[]",
    b"\xff",
    b"[" * 100_000,
    b"x" * (2**20 + 2**18),
    b"\0" * 100,
    b'{"line":"sample","in_use":["x"],"groups":[]}',
    b'{"line":"sample","in_use":[1,"x"],"groups":[]}',
    b'{"line":"sample","in_use":[true],"groups":[]}',
    b'{"line":"sample","in_use":[1],"groups":[[1]]}',
    b'{"line":"sample","in_use":{"a":1},"groups":{"a":2}}',
    b'{"line":"group","id":1e999}',
    b'{"line":"group","id":"' + b"9" * 5000 + b'"}',
    b'{"line":"group","id":' + b"9" * 5000 + b"}",
    b'{"line":7}',
]


def state(path):
    """Return what an observer may not change of a file."""
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_nlink, found.st_size, found.st_mtime_ns


def test_files_that_are_no_segments_are_left_alone_and_named(tmp_path, monkeypatch):
    folder, outside = tmp_path / "record", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    lines = [sample(n, n % 7) for n in range(2000)]
    victim = written(outside, lines)
    names = [f"process-0-2020010{n}T000000-000.jsonl" for n in range(1, 9)]
    paths = [folder / name for name in names]
    paths[0].symlink_to(victim)
    os.link(victim, paths[1])
    paths[2].mkdir()
    os.mkfifo(paths[3])
    paths[4].write_bytes(b'{"my":"data"}\n' * 50_000)
    paths[5].symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(folder)  # the path of a socket must be short
        listening.bind(paths[6].name)
    paths[7].touch()
    before = list(map(state, paths))
    ours = [written(folder, lines, started=float(n)) for n in range(4)]
    left_out = {}
    limit = ours[0].stat().st_size // 2
    for _ in thin_segments(folder, 0, limit, left_out.setdefault):
        pass
    assert sum(path.stat().st_size for path in ours if path.exists()) <= limit
    assert list(map(state, paths)) == before
    assert victim.read_bytes().count(b"\n") == len(lines) + 1
    assert left_out == dict(
        zip(
            names[:-1],
            [
                "a link",
                "a file with several names",
                "not a regular file",
                "not a regular file",
                "not a segment of a record",
                "a link",
                "not a regular file",
            ],
            strict=True,
        )
    )


@pytest.mark.parametrize("name", ["link", "several names", "another file", "removed"])
def test_a_file_that_is_replaced_while_it_is_thinned_is_left_alone(tmp_path, name):
    folder = tmp_path / "record"
    folder.mkdir()
    path = written(folder, [sample(n, n % 7) for n in range(2000)])
    outside = tmp_path / "outside"
    outside.write_text("mine")
    work = segments._thin(folder, path.name)
    next(work)
    if name == "several names":
        os.link(path, tmp_path / "another")
    else:
        path.unlink()
        if name == "link":
            path.symlink_to(outside)
        elif name == "another file":
            path.write_text("mine")
    before = path.read_bytes() if path.exists() else None
    with pytest.raises((UnsuitableError, FileNotFoundError)):
        for _ in work:
            pass
    assert outside.read_text() == "mine"
    assert (path.read_bytes() if path.exists() else None) == before
    assert [path.name for path in folder.iterdir() if path.suffix == ".part"] == []


def test_a_descriptor_that_the_program_takes_is_neither_read_nor_closed(tmp_path):
    path = written(tmp_path, [sample(n, n % 7) for n in range(2000)])
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine" * 100_000)
    work = segments._thin(tmp_path, path.name)
    next(work)
    with open(mine, "rb", buffering=0) as file:
        taken = [number for number in range(3, 64) if is_at(number, path)]
        assert taken
        for number in taken:
            os.dup2(file.fileno(), number)
        with pytest.raises(LostError):
            for _ in work:
                pass
        assert file.tell() == 0
        for number in taken:
            os.close(number)  # an error if it was closed
    assert len(lines_in(path)) == 2001


def is_at(number, path):
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(number), path.stat())
    return False


def test_unfinished_files_of_killed_processes_are_removed(tmp_path):
    abandoned, other = tmp_path / f".jai-{'0a' * 8}.part", tmp_path / ".jai-mine.part"
    for path in (abandoned, other):
        path.touch()
    os.mkfifo(tmp_path / f".jai-{'1' * 16}.part")
    thinned(tmp_path)
    assert not abandoned.exists()
    assert other.exists()
