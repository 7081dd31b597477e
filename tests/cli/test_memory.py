"""``jai-cli memory``: records, formats and errors."""

from __future__ import annotations

import json

import pytest

from jax_array_info_core import from_json
from tests.core.timeline.samples import MIB, START, record_group, record_start, samples_of, write_record

pytestmark = pytest.mark.oldest_and_newest


@pytest.fixture
def record(tmp_path):
    """The folder of a record with a leak."""
    group = record_group(0, 7)
    samples = samples_of([group], {0: lambda number: 1 + number // 2}, 100)
    write_record(tmp_path / "memory", [record_start(), group, *samples])
    return tmp_path / "memory"


def test_the_answer_comes_first(call, record):
    result = call("memory", str(record), columns=120)
    assert result.returncode == 0, result.stderr
    first, second, *_ = result.stdout.splitlines()
    assert first.startswith("peak 50.0 MiB of 16.0 GiB on cuda:0 at ")
    assert second.startswith("growing: train.py:7 step float32[262144,1], ")


def test_the_report_in_json(call, record):
    result = call("memory", str(record), "--format", "json")
    report = from_json(result.stdout)
    assert report.peak.nbytes == 50 * MIB
    assert json.loads(result.stdout)["device"] == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--process", "3"], "process=3 is not in the record: it has 0"),
        (["--device", "3"], "device=3 is not in the record: it has 0"),
        (["--last", "nan"], "last must be a positive number of seconds"),
    ],
)
def test_what_is_not_in_the_record_is_refused(call, record, arguments, problem):
    result = call("memory", str(record), *arguments, columns=200)
    assert result.returncode == 2
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_folder_without_a_record_is_refused_in_one_line(call, tmp_path):
    for folder, problem in (
        (tmp_path, "no memory record (files that end in .jsonl)"),
        (tmp_path / "absent", "No such file or directory"),
    ):
        result = call("memory", str(folder), columns=200)
        assert result.returncode == 2
        assert problem in result.stderr
        assert result.stderr.count("\n") == 1


def test_the_last_seconds(call, record):
    result = call("memory", str(record), "--last", "10", "--format", "json")
    assert len(from_json(result.stdout).times) == 11


def test_the_run_of_a_process(call, tmp_path):
    group = record_group(0, 7)
    for run in range(3):
        start = record_start(started=START + run / 10, pid=run, job=f"123_{run}")
        samples = samples_of([group], {0: lambda _, run=run: 1 + run}, 5)
        write_record(tmp_path / "memory", [start, group, *samples], f"process-0-{run}.jsonl")
    for command in ("memory", "top"):
        report = from_json(call(command, str(tmp_path / "memory"), "--run", "1", "--format", "json").stdout)
        assert (report.process, report.run, report.peak.nbytes) == (0, 1, 2 * MIB)
        assert [(one.run, one.job, one.restarts) for one in report.processes] == [
            (run, f"123_{run}", 0) for run in range(3)
        ]
    result = call("memory", str(tmp_path / "memory"), "--run", "3")
    assert (result.returncode, "run=3 is not in the record: it has 0-2" in result.stderr) == (2, True)
