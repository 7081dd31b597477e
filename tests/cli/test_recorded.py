"""``jai-cli hosts``: files, findings, formats and exit codes."""

import json
import os

import pytest

from jax_array_info_core import from_json
from tests.cli.test_cli import run
from tests.core.hosts.samples import OTHER, USUAL, write

pytestmark = pytest.mark.oldest_and_newest


def write_all(folder, count=8, different=()):
    for process in range(count):
        write(folder, OTHER if process in different else USUAL, process, count)


def test_equal_processes_exit_with_0(call, tmp_path):
    write_all(tmp_path)
    result = call("hosts", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0] == "8 hosts: 1.0 KiB of live arrays on each host"


def test_findings_exit_with_1_and_each_problem_has_its_line(call, tmp_path):
    write_all(tmp_path, 16, different=[5])
    (tmp_path / "process-3.json").unlink()
    (tmp_path / "process-9.json").unlink()
    damaged, older = tmp_path / "process-7.json", tmp_path / "process-11.json"
    damaged.write_text(damaged.read_text()[:200])
    older.write_text(older.read_text().replace('"schema_version": 2', '"schema_version": 1'))
    result = call("hosts", str(tmp_path), columns=160)
    assert result.returncode == 1, result.stderr
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "Processes 3, 9 of 16 are missing." in lines
    assert "Process 5 has another set of arrays than 11 other processes." in lines
    assert "64.0 B  process 5     float32[5]  P('data',) over data=2  only here" in lines
    assert any(
        line.startswith("process-7.json ") and line.endswith("truncated: copy it again") for line in lines
    )
    assert any(line.startswith("process-11.json  schema_version 1 cannot be read, only 2") for line in lines)
    assert "copy them into the folder." in result.stdout
    codes = [option for code in ("JAI411", "JAI412", "JAI413") for option in ("--ignore-code", code)]
    assert call("hosts", str(tmp_path), *codes).returncode == 0


def test_the_report_in_json_is_the_one_that_is_printed(call, tmp_path):
    write_all(tmp_path, different=[2])
    result = call("hosts", str(tmp_path), "--format", "json")
    assert result.returncode == 1
    report = from_json(result.stdout)
    assert [one.process for one in report.differences] == [2]
    assert json.loads(result.stdout)["fullest"] == 2


@pytest.mark.parametrize("name", ["hosts.svg", "hosts.html", "hosts.txt"])
def test_the_report_is_written_to_a_file(call, tmp_path, name):
    folder = tmp_path / "reports"
    folder.mkdir()
    write_all(folder)
    result = call("hosts", str(folder), "--output", str(tmp_path / name))
    assert (result.returncode, result.stdout) == (0, "")
    text = (tmp_path / name).read_text()
    assert "8 hosts: 1.0 KiB of live arrays" in text
    assert ("process 7 on host-7: 1.0 KiB" in text) == (name != "hosts.txt")


def test_rows_and_details_choose_what_is_compared(call, tmp_path):
    write_all(tmp_path, 30, different=range(1, 30, 3))
    for options, count in (((), 8), (("--rows",), 10), (("--details", "0"), 0)):
        found = from_json(call("hosts", str(tmp_path), "--format", "json", *options).stdout).differences
        assert sum(one.unread_because is None for one in found) == count
    assert "20 more" in call("hosts", str(tmp_path), "--max-rows", "10").stdout
    assert "host-17" in call("hosts", str(tmp_path), "--max-rows", "30").stdout


def refusal(result):
    """Return the only line of an error with exit code 2."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    [line] = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    return line.removeprefix("Error: ")


def test_folders_without_an_answer_exit_with_2_and_one_line(call, tmp_path):
    name = str(tmp_path)
    no_files = "no files that end in .json: write one in each process with save_report"
    assert refusal(call("hosts", name)) == f"{name}: {no_files}"
    (tmp_path / "process-0.json").write_text("{}")
    assert refusal(call("hosts", name)).startswith(f"{name}: none of 1 files could be read; process-0.json: ")
    assert refusal(call("hosts", f"{name}/none")) == f"{name}/none: No such file or directory"
    assert refusal(call("hosts", f"{name}/process-0.json")) == f"{name}/process-0.json: Not a directory"
    os.symlink(f"{name}/loop", f"{name}/loop")
    assert refusal(call("hosts", f"{name}/loop")).startswith(
        f"{name}/loop: Too many levels of symbolic links"
    )
    write(tmp_path, USUAL, 0, 1)
    assert "no/such/file.json: No such" in refusal(call("hosts", name, "--output", "no/such/file.json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_exits_with_2(call, tmp_path):
    tmp_path.chmod(0)
    try:
        assert refusal(call("hosts", str(tmp_path))) == f"{tmp_path}: Permission denied"
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.own_process
def test_hosts_are_compared_without_jax(tmp_path):
    write_all(tmp_path, different=[2])
    code = """
import sys
from jax_array_info_cli import main
try:
    main()
finally:
    print("jax" in sys.modules)
"""
    done = run("hosts", str(tmp_path), "--rows", code=code)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
