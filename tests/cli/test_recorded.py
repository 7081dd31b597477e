"""``jai-cli log``, ``profile``, ``hosts``, ``memory`` and ``devices``: files of programs, findings and refusals."""

import functools
import gzip
import io
import json
import os
import sys

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import from_json, memory_profile_report
from jax_array_info.engine.render import render, text_of
from jax_array_info_core.arrays.origins import profiles
from tests.cli.launching import jai
from tests.core.jobs.hosts.samples import OTHER, USUAL, write
from tests.core.jobs.timeline.samples import MIB, START, record_group, record_start, samples_of, write_record
from tests.logs import DONATIONS, REFUSED, REMATERIALIZATION

once = pytest.mark.newest
LOG = "\n".join([REMATERIALIZATION, *DONATIONS.values()])
# Without a timestamp, which would change the names of tests.
packed = functools.partial(gzip.compress, mtime=0)


def write_hosts(folder, count=8, different=()):
    folder.mkdir(exist_ok=True)
    for process in range(count):
        write(folder, OTHER if process in different else USUAL, process, count)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a log, the record of a leak, the reports of 8 processes, and what is no such file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiles, "MAX_NBYTES", 1000)
    group = record_group(0, 7)
    samples = samples_of([group], {0: lambda number: 1 + number // 2}, 100)
    write_record(tmp_path / "memory", [record_start(), group, *samples])
    write_hosts(tmp_path / "hosts")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    os.symlink("loop", "loop")
    contents = {
        "train.log": LOG.encode(),
        "refused.log": f"step 1\n{REFUSED}\n{LOG}".encode(),
        "binary": b"\0\1\2",
        "packed": packed(b""),
        "other/process-0.json": b"{}",
        "empty.prof": b"",
        "code.prof": b"import jax\n",
        "cut.prof": packed(b"x" * 1000)[:20],
        "large\x1b[31m.prof": packed(bytes(2**20)),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@once
@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("log none.log", "none.log: No such file or directory"),
        ("log empty", "empty: a folder without logs (.log, .txt, .out, .err)"),
        (
            "log binary",
            "binary: no text in UTF-8: 100% of its first 3.0 B are other bytes. Decompress or convert it first",
        ),
        ("log packed", "packed: compressed with gzip, not text: decompress it first"),
        ("log -", "standard input: it is closed"),
        ("profile none.prof", "none.prof: No such file or directory"),
        ("profile empty.prof", "empty.prof: the profile is empty"),
        ("profile code.prof", "code.prof: the data is not a pprof profile"),
        ("profile cut.prof", "cut.prof: the profile is truncated or damaged"),
        ("profile large\x1b[31m.prof", r"large\x1b[31m.prof: the profile is larger than 0 MiB"),
        ("hosts empty", "empty: no files that end in .json: write one in each process with save_report"),
        ("hosts other", "other: none of 1 files could be read; process-0.json: "),
        ("hosts none", "none: No such file or directory"),
        ("hosts train.log", "train.log: Not a directory"),
        ("hosts loop", "loop: Too many levels of symbolic links"),
        ("hosts hosts --output no/such/file.json", "no/such/file.json: No such"),
        ("memory memory --process 3", "memory: process=3 is not in the record: it has 0"),
        ("memory memory --run 3", "memory: run=3 is not in the record: it has 0"),
        ("memory memory --device 3", "memory: device=3 is not in the record: it has 0"),
        ("memory memory --last nan", "memory: last must be a positive number of seconds"),
        ("memory empty", "empty: no memory record (files that end in .jsonl)"),
        ("memory none", "none: No such file or directory"),
        ("top none", "none: no such folder"),
        ("top empty", "empty: no memory record"),
        ("top memory --process 7", "memory: process=7 is not in the record: it has 0"),
        ("top train.log", "train.log: Not a directory"),
    ],
)
def test_what_has_no_answer_is_one_line_and_exit_code_2(call, folder, monkeypatch, args, problem):
    monkeypatch.setattr(sys, "stdin", None)
    done = call(*args.split(), columns=200)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {problem}")
    assert done.stderr.count("\n") == 1


@once
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_refused(call, folder):
    (folder / "empty").chmod(0)
    try:
        assert call("hosts", "empty").stderr == "Error: empty: Permission denied\n"
    finally:
        (folder / "empty").chmod(0o700)


# Logs


@once
def test_warnings_are_printed_in_specs(call, folder):
    done = call("log", "train.log", "--mesh", "x=4,y=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.log, 8 lines, mesh: x=4, y=2" in done.stdout
    assert "from P('y', None, 'x') to P(None, ('x', 'y'))" in " ".join(done.stdout.split())
    done = call("log", "none.log", "--mesh", "x=y")
    assert done.returncode == 2
    assert "--mesh cannot be read: expected a number" in done.stderr


@once
def test_an_out_of_memory_error_is_first(call, folder):
    done = call("log", "refused.log")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("does not fit: needs 19.3 GiB, has 15.8 GiB per device; 3 findings: ")
    assert done.stdout.index("at model.py:41 first") < done.stdout.index("── JAI208 full-replication")
    made = json.loads(call("log", "refused.log", "--format", "json").stdout)
    assert [len(error["buffers"]) for error in made["out_of_memory"]] == [3]


@once
def test_standard_input_is_read(call, monkeypatch):
    for options, expected in ((("--format", "json"), '"line_count": 8'), ((), "standard input, 8 lines")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
        assert expected in call("log", "-", *options).stdout


# Processes


@once
def test_equal_processes_exit_with_0(call, folder):
    result = call("hosts", "hosts")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == "8 hosts: 1.0 KiB of live arrays on each host"


@once
def test_findings_exit_with_1_unless_their_codes_are_ignored(call, tmp_path):
    write_hosts(tmp_path, 16, different=[5])
    (tmp_path / "process-3.json").unlink()
    (tmp_path / "process-9.json").unlink()
    damaged, older = tmp_path / "process-7.json", tmp_path / "process-11.json"
    damaged.write_text(damaged.read_text()[:200])
    older.write_text(older.read_text().replace('"schema_version": 3', '"schema_version": 1'))
    result = call("hosts", str(tmp_path), "--format", "json")
    report = from_json(result.stdout)
    assert (result.returncode, result.stderr) == (1, "")
    assert [one.process for one in report.differences] == [5]
    assert [finding.code for finding in report.findings] == ["JAI411", "JAI412", "JAI413"]
    codes = [option for code in ("JAI411", "JAI412", "JAI413") for option in ("--ignore-code", code)]
    assert call("hosts", str(tmp_path), *codes).returncode == 0


@once
def test_rows_and_details_choose_what_is_compared(call, tmp_path):
    write_hosts(tmp_path, 30, different=range(1, 30, 3))
    for options, count in (((), 8), (("--rows",), 10), (("--details", "0"), 0)):
        found = from_json(call("hosts", str(tmp_path), "--format", "json", *options).stdout).differences
        assert sum(one.unread_because is None for one in found) == count
    assert "20 more" in call("hosts", str(tmp_path), "--max-rows", "10").stdout
    assert "host-17" in call("hosts", str(tmp_path), "--max-rows", "30").stdout


# Memory over time


@once
def test_the_memory_of_a_record_is_shown_with_its_answer_first(call, folder):
    result = call("memory", "memory", columns=120)
    assert result.returncode == 0, result.stderr
    first, second, *_ = result.stdout.splitlines()
    assert first.startswith("highest of 100 samples: 50.0 MiB of 16.0 GiB on cuda:0 at ")
    assert second.startswith("growing: train.py:7 step float32[262144,1], ")
    report = from_json(call("memory", "memory", "--last", "10", "--format", "json").stdout)
    assert (report.device, report.peak.nbytes, len(report.times)) == (0, 50 * MIB, 11)


@once
def test_the_run_of_a_process(call, tmp_path):
    group = record_group(0, 7)
    for run in range(3):
        start = record_start(started=START + run / 10, pid=run)
        samples = samples_of([group], {0: lambda _, run=run: 1 + run}, 5)
        write_record(tmp_path / "memory", [start, group, *samples], f"process-0-{run}.jsonl")
    for command in ("memory", "top"):
        report = from_json(call(command, str(tmp_path / "memory"), "--run", "1", "--format", "json").stdout)
        assert (report.process, report.run, report.peak.nbytes) == (0, 1, 2 * MIB)


# Devices, and profiles of their memory


@pytest.mark.own_process
def test_devices_are_those_of_jax_or_simulated():
    done = jai("devices", COLUMNS="100")
    assert done.returncode == 0, done.stderr
    assert "│ cpu:0-7 │ cpu         │" in done.stdout
    assert "not reported by this backend" in done.stdout
    (line,) = jai("devices", "--devices", "3", "--format", "json").stdout.splitlines()
    assert [device.name for device in from_json(line).devices] == ["cpu:0", "cpu:1", "cpu:2"]
    assert json.loads(line)["devices"][2]["array_nbytes"] == 0


@pytest.mark.own_process
def test_an_unknown_platform_is_a_one_line_error():
    done = jai("devices", JAX_PLATFORMS="nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: Unable to initialize backend 'nowhere'")


def test_a_profile_is_printed_from_its_file(tmp_path, no_arrays, call):
    array = jnp.zeros(256)
    path = tmp_path / "memory.prof"
    jax.profiler.save_device_memory_profile(str(path))
    assert array is not None
    report = memory_profile_report(path.read_bytes())
    done = call("profile", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        text_of(render(report, syntax="shell")) + "\n",
        "",
    )
    assert "1.0 KiB │     1 │ cpu:0" in done.stdout
    assert "test_recorded.py" in done.stdout
    assert from_json(call("profile", str(path), "--format", "json").stdout) == report
