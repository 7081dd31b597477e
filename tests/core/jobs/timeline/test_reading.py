"""Records are read line by line: complete, damaged, foreign and huge files, and files that are written."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from jax_array_info_core import json_schema, timeline_report
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.facts.reports.record import (
    LINES,
    RecordCompilation,
    RecordEnd,
    RecordOutOfMemory,
    RecordSample,
)
from jax_array_info_core.jobs.timeline import history
from jax_array_info_core.jobs.timeline.segments import encoded
from jax_array_info_core.jobs.timeline.timeline_report import Follower

from .samples import (
    MIB,
    START,
    record_group,
    record_mark,
    record_stall,
    record_start,
    samples_of,
    write_record,
)

pytestmark = pytest.mark.newest

GROUP = record_group(0, 7)


def _lines(length: int = 10) -> list[object]:
    return [record_start(), GROUP, *samples_of([GROUP], {0: lambda number: number + 1}, length)]


def test_a_finished_record(tmp_path: Path) -> None:
    """The report has the device, the samples and the end."""
    write_record(tmp_path, [*_lines(), RecordEnd(time=START + 10, reason="exited")])
    report = timeline_report(tmp_path)
    [process] = report.processes
    assert (process.state, process.sample_count, process.step) == ("exited", 10, 9)
    assert not report.thinned
    assert "thinned" not in report.extent
    assert report.in_use == tuple(MIB * count for count in range(1, 11))
    assert [series.nbytes for series in report.series] == [report.in_use]
    assert report.unread == ()


def test_each_line_matches_the_schema() -> None:
    """``json_schema()`` has the lines of a record, by the names of their classes."""
    schema = json_schema()
    lines = [*_lines(3), record_mark(1, "eval"), RecordEnd(time=START, reason="stopped")]
    lines += [RecordOutOfMemory(time=START, message="no", requested_nbytes=3), record_stall(60, 3)]
    lines += [RecordCompilation(time=START, function="step", seconds=0.5, reason="x: is new")]
    assert {type(line) for line in lines} == set(LINES.values())
    for line in lines:
        fields = json.loads(encoded(line))
        assert LINES[fields.pop("line")] is type(line)
        named = {"$ref": f"#/$defs/{type(line).__name__}", "$defs": schema["$defs"]}
        jsonschema.Draft202012Validator(named).validate(fields)


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    """A line without its end is read once it is complete, and only once."""
    lines = _lines(10)
    rest = encoded(lines.pop())
    path = write_record(tmp_path, lines, tail=rest[:20])
    follower = Follower(tmp_path)
    assert follower.report().processes[0].sample_count == 9
    with open(path, "ab") as file:
        file.write(rest[20:])
    report = follower.report()
    assert report.processes[0].sample_count == 10
    assert report.times[-1] == START + 9
    assert follower.report() == report or follower.report().times == report.times
    assert report.unread == ()


def test_only_new_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower reads each line once, and finds new segments."""
    from jax_array_info_core.jobs.timeline import reading

    read: list[bytes] = []
    plain = reading.read_line
    monkeypatch.setattr(reading, "read_line", lambda line: read.append(line) or plain(line))
    write_record(tmp_path, _lines(10))
    follower = Follower(tmp_path)
    follower.report(last=60.0)
    count = len(read)
    write_record(tmp_path, [record_start(segment=1, time=START + 20)], "process-0-b.jsonl")
    follower.report(last=60.0)
    assert len(read) == count + 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b"\x00\xff{]\n", "1 line left out; line 13: not a line of a memory record"),
        (b'{"line":"stall","time":5,"step":4}\n', "line 13: Object missing required field `since`"),
        (b'{"line":"stall","time":5,"since":-4,"step":1}\n', "line 13: Expected `float` >= 0"),
        (b'{"line":"stall","time":5,"since":4,"step":"1"}\n', "line 13: Expected `int | null`, got `str`"),
        (b'{"line":"stall","time":5,"since":4,"step":1,"threads":[3]}\n', "Expected `object`, got `int`"),
        (b'{"line":"sample","time":1}\n', "1 line left out; line 13: Object missing required field"),
        (b'{"line":"sample","time":-1,"in_use":[1]}\n', "line 13: Expected `float` >= 0"),
        (b'{"line":"sample","time":5,"in_use":[1,2]}\n', "line 13: numbers for 2 of 1 devices"),
        (b'{"line":"sample","time":5,"in_use":[-2]}\n', "line 13: Expected `int` >= 0"),
        (b'{"line":"sample","time":5,"in_use":[1e3]}\n', "line 13: Expected `int`, got `float`"),
        (b'{"line":"sample","time":5,"in_use":[9000000000000000000]}\n', "more bytes than a device can have"),
        (b'{"line":"sample","time":5,"in_use":[1],"groups":[3],"counts":[1]}\n', "a group without its line"),
        (b'{"line":"sample","time":5,"in_use":[1],"groups":[0],"counts":[]}\n', "lists of different lengths"),
        (b'{"line":"sample","time":5,"in_use":[1],"groups":[0],"counts":[4294967296]}\n', "more arrays than"),
        (b"[" * 100_000 + b"\n", "not a line of a memory record"),
        (b"x" * 5_000_000 + b"\n", "line 13: longer than 4,194,304 bytes"),
        (encoded(record_start()), "line 13: a second start"),
        (encoded(record_group(1, devices=(5,))), "line 13: a group on a device that does not exist"),
    ],
)
def test_a_damaged_line_is_left_out(tmp_path: Path, damage: bytes, reason: str) -> None:
    """The lines around it are read, and one line has the reason."""
    lines = _lines(10)
    later = samples_of([GROUP], {0: lambda number: 50}, 12)[11:]
    write_record(tmp_path, lines, tail=damage + b"".join(map(encoded, later)))
    report = timeline_report(tmp_path)
    assert report.processes[0].sample_count == 11
    [unread] = report.unread
    assert reason in unread.reason
    assert "\n" not in unread.reason


def test_foreign_files(tmp_path: Path) -> None:
    """A folder may have other files. Those that look like segments are listed, each with one line."""
    write_record(tmp_path, _lines())
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "metrics.jsonl").write_text('{"loss": 1}\n')
    (tmp_path / "process-0-empty.jsonl").write_bytes(b"")
    (tmp_path / "process-1.jsonl").mkdir()
    os.mkfifo(tmp_path / "process-2.jsonl")
    (tmp_path / "zeros.jsonl").touch()
    os.truncate(tmp_path / "zeros.jsonl", 2**30)
    report = timeline_report(tmp_path)
    assert {(one.name, one.reason) for one in report.unread} == {
        ("metrics.jsonl", "not a memory record"),
        ("process-1.jsonl", "Is a directory"),
        ("process-2.jsonl", "a device or a pipe, not a regular file: copy it to one"),
        ("zeros.jsonl", "not a memory record"),
    }


def test_a_folder_without_a_record(tmp_path: Path) -> None:
    """The error names the function that writes one, or the first problem."""
    with pytest.raises(FileFormatError, match=r"no memory record.*record_memory\("):
        timeline_report(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"loss": 1}\n')
    with pytest.raises(FileFormatError, match=r"none of 1 files could be read; metrics\.jsonl: not a memory"):
        timeline_report(tmp_path)
    with pytest.raises(FileNotFoundError):
        timeline_report(tmp_path / "absent")
    write_record(tmp_path, [record_start()])
    with pytest.raises(FileFormatError, match="metrics"):
        timeline_report(tmp_path)


_LIMITED = """
import resource, sys
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from jax_array_info_core import json_schema, timeline_report
from jax_array_info_core.jobs.timeline import reading, history, analysis
import msgspec, numpy
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = timeline_report(sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, report.unread[0].reason)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the peak memory depends on the system")
def test_a_gigabyte_of_damage_takes_little_memory(tmp_path: Path) -> None:
    """A line of a gigabyte is passed over in pieces."""
    assert resource.RUSAGE_SELF == 0
    path = write_record(tmp_path, _lines())
    os.truncate(path, path.stat().st_size + 2**30)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    megabytes, _, reason = done.stdout.partition(" ")
    assert int(megabytes) < 100
    assert reason == "1 line left out; line 13: longer than 4,194,304 bytes\n"


def test_a_record_with_too_many_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks past the limit are left out, and counted."""
    monkeypatch.setattr(history, "_MOST_MARKS", 3)
    write_record(tmp_path, [*_lines(), *(record_mark(number, "eval") for number in range(5))])
    report = timeline_report(tmp_path)
    assert report.marks[0].count == 3
    assert "2 lines left out; line 16: more than 3 marks" in report.unread[0].reason


def test_a_group_that_a_sample_names_twice_counts_twice(tmp_path: Path) -> None:
    """In each figure, so that the rest is never less than nothing."""
    samples = [
        RecordSample(time=START + second, in_use=(0,), groups=(0, 1), counts=(1, 2)) for second in range(40)
    ]
    write_record(tmp_path, [record_start(), GROUP, replace(GROUP, id=1), *samples])
    report = timeline_report(tmp_path)
    assert set(report.in_use) == {3 * MIB}
    assert [set(series.nbytes) for series in report.series] == [{3 * MIB}]
