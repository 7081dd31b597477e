"""Thinned segments keep peaks and marks, and stay below the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.reports.record import (
    RecordEnd,
    RecordGroup,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
)
from jax_array_info_core.timeline import thinning
from jax_array_info_core.timeline.segments import Segment, segment_paths
from jax_array_info_core.timeline.thinning import FEWEST, thin_segments
from tests.records import lines_in, of_kind, record_of

pytestmark = pytest.mark.oldest_and_newest


def sample(time, nbytes, groups=()):
    return RecordSample(time=float(time), in_use=(nbytes, 0), groups=tuple(groups), counts=(1,) * len(groups))


def group(number):
    return RecordGroup(id=number, shape=(4,), dtype="int8", sharding="", shard_nbytes=4, devices=(0,))


def mark(time):
    return RecordMark(time=float(time), name="eval")


def written(folder, lines, *, started=0.0, process=0):
    segment = Segment(folder, process, started)
    for line in lines:
        segment.write(line)
    segment.close()
    return segment.path


def thinned(folder, max_nbytes=0, process=0):
    for _ in thin_segments(folder, process, max_nbytes):
        pass


def thinned_once(path):
    for _ in (work := thinning._thin(path)):
        pass
    work.close()
    return lines_in(path)


def test_of_two_neighbors_the_fuller_one_stays(tmp_path):
    nbytes = [5, 3, 3, 9, 4, 4, 7, 1, 2, 6]
    path = written(tmp_path, [sample(time, size) for time, size in enumerate(nbytes)])
    assert [line.time for line in thinned_once(path)] == [0, 3, 4, 6, 9]
    assert len(thinned_once(path)) == 5  # at most FEWEST


def test_neighbors_are_on_one_side_of_a_mark_and_errors_keep_their_sample(tmp_path):
    lines = [sample(0, 9), sample(1, 1), sample(2, 2), mark(2.5), sample(3, 8)]
    lines += [
        RecordOutOfMemory(time=3.5, message="m"),
        sample(4, 1, [7]),
        *(sample(5 + n, 0) for n in range(6)),
    ]
    path = written(tmp_path, [group(7), *lines, RecordEnd(time=20.0, reason="stopped")])
    found = thinned_once(path)
    assert [line.time for line in found[1:]] == [0, 2, 2.5, 3, 3.5, 4, 5, 7, 9, 20]
    assert found[0] == group(7)


def test_groups_that_no_sample_refers_to_any_more_are_removed(tmp_path):
    lines = [line for n in range(20) for line in (group(n), sample(n, n % 2, [n]))]
    found = thinned_once(written(tmp_path, lines))
    assert [line.id for line in of_kind(found, "group")] == list(range(1, 20, 2))


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
    stretches = 1 + len([time for time in marks if time < len(sizes)])
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
    assert all(max(line.in_use[0] for line in lines_in(path)) == 49 for path in segment_paths(tmp_path))


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
    assert record_of(tmp_path) == lines * 2
    assert foreign.read_bytes() == other.read_bytes() == segment.path.read_bytes()
    segment.close()


def test_damaged_lines_are_dropped(tmp_path):
    path = written(tmp_path, [sample(n, n) for n in range(20)])
    whole = path.read_bytes()
    path.write_bytes(b'{"line":"sample"}\n[]\n\xff\n' + b"[" * 100_000 + b"\n" + whole + b'{"line":"sam')
    assert [line.time for line in thinned_once(path)] == list(range(1, 20, 2))
