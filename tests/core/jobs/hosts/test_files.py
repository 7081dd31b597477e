"""Reports of processes in files."""

import json
import os
import tracemalloc
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    devices_report,
    from_json,
    live_array_report,
    load_report,
    save_report,
    to_json,
    tree_report,
)
from jax_array_info_core.errors import FileFormatError, ReportFormatError, UnsupportedValueError
from jax_array_info_core.jobs.hosts.files import hosts_in_folder
from tests.core.jobs.hosts.samples import ARRAYS, OTHER, USUAL, live, write

pytestmark = pytest.mark.newest


def tree():
    mesh = Mesh(np.array(jax.devices()), ("d",))
    return {"w": jax.device_put(jnp.zeros((8, 4)), NamedSharding(mesh, P("d"))), "b": jnp.zeros(3), "n": 3}


@pytest.mark.parametrize("make", [live_array_report, devices_report, lambda: tree_report(tree())])
def test_a_saved_report_is_loaded_again(make, tmp_path):
    report = make()
    save_report(report, tmp_path)
    path = tmp_path / "process-0.json"
    assert load_report(path) == report
    first, second = path.read_text().splitlines()
    assert json.loads(first)["report"] == "HostSummary"
    assert from_json(second) == report
    save_report(report, str(tmp_path / "a name"))
    assert (tmp_path / "a name").read_bytes() == path.read_bytes()
    hosts = hosts_in_folder(tmp_path)
    assert hosts == hosts_in_folder(tmp_path, rows=True)
    assert (hosts.passed, len(hosts.hosts)) == (True, 1)


def test_the_arrays_in_a_file_are_those_of_the_report(tmp_path):
    write(tmp_path, tree_report({**tree(), "more": jnp.zeros(5)}), 0, 3)
    write(tmp_path, tree_report({**tree(), "more": jnp.zeros(5)}), 1, 3)
    write(tmp_path, tree_report(tree()), 2, 3)
    report = hosts_in_folder(tmp_path, rows=True)
    assert report.unread == ()
    [difference] = report.differences
    assert (difference.extra, [one.label for one in difference.lacking]) == ((), ["more"])


def test_a_folder_with_a_slash_at_its_end_is_made(tmp_path):
    for _ in range(2):
        save_report(live_array_report(), f"{tmp_path}/job/hosts/")
    assert [path.name for path in (tmp_path / "job" / "hosts").iterdir()] == ["process-0.json"]


def test_the_output_of_to_json_is_loaded_too(tmp_path):
    (tmp_path / "one.json").write_text(to_json(USUAL))
    assert load_report(tmp_path / "one.json") == USUAL


def test_problems_of_one_file_are_errors_of_load_report(tmp_path):
    path = tmp_path / "one.json"
    path.write_text("{}")
    with pytest.raises(ReportFormatError, match="the field 'report' must name one of"):
        load_report(path)
    path.write_text("")
    with pytest.raises(FileFormatError, match="an empty file"):
        load_report(path)
    with pytest.raises(IsADirectoryError):
        load_report(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_report(tmp_path / "none")
    with pytest.raises(UnsupportedValueError, match="expected a LiveArrayReport"):
        save_report({"w": 3}, path)
    with pytest.raises(FileNotFoundError):
        save_report(USUAL, tmp_path / "no folder" / "one.json")


def test_a_report_is_replaced_completely_or_not_at_all(tmp_path, monkeypatch):
    save_report(USUAL, tmp_path)
    before = (tmp_path / "process-0.json").read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        save_report(OTHER, tmp_path)
    assert os.listdir(tmp_path) == ["process-0.json"]
    assert (tmp_path / "process-0.json").read_bytes() == before


TRUNCATED = "truncated: copy it again"
NO_SUMMARY = "no summary in the first line: write the file with save_report"
LONG_NAME = f'"host_name": "{"x" * 10**6}'
DAMAGES = {
    "cut in the summary": (lambda text: text[:100], TRUNCATED),
    "cut in the report": (lambda text: text[:-100], TRUNCATED),
    "without a report": (lambda text: text[: text.index("\n") + 1], TRUNCATED),
    "another version": (
        lambda text: text.replace('"schema_version": 3', '"schema_version": 7'),
        "schema_version 7 cannot be read, only 3",
    ),
    "without a summary": (lambda text: text[text.index("\n") + 1 :], NO_SUMMARY),
    "a long line": (
        lambda text: text.replace('"host_name": "', LONG_NAME, 1),
        "the first line has more than 4,096 bytes",
    ),
    "not text": (lambda text: os.urandom(1000), NO_SUMMARY),
    "not JSON": (
        lambda text: text.replace(":", ";", 5).replace(";", ":", 1),
        "expected the JSON of a report: ",
    ),
    "empty": (lambda text: "", "an empty file: save it again"),
    "of another job": (
        lambda text: text.replace('"process_count": 4', '"process_count": 5'),
        "of a job of 5 processes, not 4: keep one job in a folder",
    ),
    "a pipe": (os.mkfifo, "a device or a pipe, not a regular file: copy it to one"),
    "a folder": (os.mkdir, "Is a directory"),
    "a link to itself": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
}


def damage(path, kind):
    """Damage a file of save_report, and return the start of the reason why it cannot be read."""
    change, reason = DAMAGES[kind]
    if kind in ("a pipe", "a folder", "a link to itself"):
        path.unlink()
        change(path)
    else:
        content = change(path.read_text())
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return reason


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_named_with_the_reason_and_the_others_stand(kind, tmp_path):
    for process in range(4):
        path = write(tmp_path, USUAL, process, 4)
    reason = damage(path, kind)
    report = hosts_in_folder(tmp_path)
    assert [host.process for host in report.hosts] == [0, 1, 2]
    [unread] = report.unread
    assert unread.name == "process-3.json"
    assert unread.reason.startswith(reason)
    assert "\n" not in unread.reason
    assert "JAI413" in [one.code for one in report.findings]
    if kind != "of another job":
        assert report.missing == (), "its index is known from its name"


def test_a_link_to_a_file_is_followed(tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "process-0.json").symlink_to(write(other, USUAL, 0, 1))
    assert hosts_in_folder(folder).answer == "1 host: 1.0 KiB of live arrays"


def test_rows_that_do_not_match_the_summary_are_found_only_with_all_rows(tmp_path):
    for process in range(3):
        path = write(tmp_path, USUAL, process, 3)
    path.write_text(path.read_text().replace('"label": "w"', '"label": "v"'))
    assert hosts_in_folder(tmp_path).passed
    [unread] = hosts_in_folder(tmp_path, rows=True).unread
    assert (unread.name, unread.reason) == ("process-2.json", "the report does not match its summary")


def test_a_report_that_would_take_much_memory_is_not_read(tmp_path):
    for process in range(3):
        path = write(tmp_path, USUAL, process, 3)
    summary, _ = path.read_text().splitlines()
    path.write_text(f'{summary}\n{{"groups": [{"[]," * 8_000_000}[]]}}\n')
    [unread] = hosts_in_folder(tmp_path, rows=True).unread
    assert (unread.name, unread.reason) == (
        "process-2.json",
        "16,000,004 values exceed the limit of 7,000,000",
    )


def test_the_arrays_of_all_processes_that_differ_are_compared_with_all_rows(tmp_path):
    for process in range(30):
        write(tmp_path, OTHER if process % 3 == 2 else USUAL, process, 30)
    few, every = (hosts_in_folder(tmp_path, rows=rows).differences for rows in (False, True))
    assert len(few) == len(every) == 10
    assert sum(one.unread_because is None for one in few) == 8
    assert all(one.unread_because is None for one in every)


def test_other_files_of_the_folder_are_left_alone(tmp_path):
    write(tmp_path, USUAL, 0, 1)
    (tmp_path / "train.log").write_text("step 1")
    (tmp_path / ".jai-0.json").write_text("{")
    assert hosts_in_folder(tmp_path).passed


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], r"no files that end in \.json: write one in each process with save_report"),
        (["a.json", "b.json"], r"none of 2 files could be read; a\.json: no summary in the first line"),
    ],
)
def test_a_folder_without_reports_is_an_error(names, problem, tmp_path):
    for name in names:
        (tmp_path / name).write_text("3")
    with pytest.raises(FileFormatError, match=problem):
        hosts_in_folder(tmp_path)


def test_every_problem_of_a_thousand_files_is_one_line(tmp_path):
    rows = [replace(ARRAYS[0], label=f"layers/{number}") for number in range(10)]
    usual, other = live(*rows), live(*rows[1:], ARRAYS[1])
    for process in range(1000):
        if process not in (17, 803):
            write(tmp_path, other if process == 5 else usual, process, 1000)
    damage(tmp_path / "process-9.json", "cut in the report")
    damage(tmp_path / "process-11.json", "another version")
    report = hosts_in_folder(tmp_path)
    assert report == hosts_in_folder(tmp_path, rows=True)
    assert report.answer == (
        "996 hosts: 1.0 KiB of live arrays on each host; process 5 differs in its arrays:"
        " 2 arrays more, 1 fewer; processes 17, 803 are missing; 2 reports not read"
    )
    leaves = [str(leaf) for one in report.findings for leaf in one.leaves]
    assert leaves == [
        "process 5 ×2: float32[3], P('data',) over data=2, 64.0 B each: only here",
        "process 5: float32[8,4], layers/0: P('data',) over data=2, 64.0 B: not here",
        "process-9.json: truncated: copy it again",
        "process-11.json: schema_version 7 cannot be read, only 3: use the version of jax-array-info that wrote"
        " the file",
    ]


def test_files_are_read_one_at_a_time(tmp_path):
    report = live(*(replace(ARRAYS[0], label=f"layers/{number}") for number in range(250)))
    for process in range(40):
        size = write(tmp_path, report, process, 40).stat().st_size
    hosts_in_folder(tmp_path, rows=True)
    tracemalloc.start()
    hosts_in_folder(tmp_path, rows=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * size


def test_progress_is_the_number_of_files(tmp_path):
    for process in range(3):
        write(tmp_path, USUAL, process, 3)
    seen = []
    hosts_in_folder(tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]
