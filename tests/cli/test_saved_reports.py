"""Saved reports, given to each command that takes a file."""

import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import save_report, save_tree, to_json
from jax_array_info_core import devices_report, from_json, live_array_report, load_report, tree_report
from tests.core.facts.reports.test_json import every_report

pytestmark = pytest.mark.newest

COMMANDS = {
    "tree": ["tree", "{}"],
    "check": ["check", "{}"],
    "diff": ["diff", "{}", "{}"],
    "layers": ["layers", "{}"],
    "log": ["log", "{}"],
    "profile": ["profile", "{}"],
    "hosts": ["hosts", "{}"],
    "memory": ["memory", "{}"],
    "top": ["top", "{}"],
    "program": ["program", "{}:step", "--mesh", "x=1"],
}
if jax.__version_info__ >= (0, 10):  # with an older JAX, the command takes nothing
    COMMANDS["why"] = ["why", "{}:step", "--mesh", "x=1"]
TAKES = {"TreeReport": ("tree", "check", "diff"), "ProgramReport": ("diff", "layers")}
"""Commands that answer from a report, by its class."""


@pytest.fixture
def answers(call, monkeypatch):
    """A function that gives a file to each command, and checks that it answers or names one that does."""
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)

    def function(path, kind):
        for name, args in COMMANDS.items():
            done = call(*(arg.format(path) for arg in args))
            if name in TAKES.get(kind, ()):
                assert done.returncode in (0, 1), (name, kind, done)
                assert done.stdout
                assert not done.stderr
                continue
            assert (done.returncode, done.stdout) == (2, ""), (name, kind, done)
            [line] = done.stderr.splitlines()[-1:]
            assert f"the report is a {kind}, " in line, (name, done)
            taking = TAKES.get(kind, ("hosts",) if kind in ("LiveArrayReport", "DevicesReport") else ())
            if taking:
                names = " and ".join(filter(None, (", ".join(taking[:-1]), taking[-1])))
                assert f": jai-cli {names} " in line
            else:
                assert line.endswith(": no command takes it, but load_report in Python does")
            assert done.stderr.count("\n") == 1

    return function


def test_each_report_as_json_is_answered_or_the_command_that_takes_it_is_named(answers, tmp_path):
    by_class = {type(report).__name__: report for report in every_report()}
    assert {"TreeReport", "ProgramReport", "LiveArrayReport", "HostsReport", "LogReport"} <= set(by_class)
    for kind, report in by_class.items():
        path = tmp_path / f"{kind}.json"
        path.write_text(to_json(report))
        answers(path, kind)
        assert load_report(path) == report


@pytest.mark.parametrize(
    "make", [live_array_report, devices_report, lambda: tree_report({"w": jnp.ones((8, 8))}, "größe")]
)
def test_a_report_in_each_form_of_a_file_is_read_alike(make, answers, tmp_path):
    report = make()
    kind = type(report).__name__
    text = to_json(report)
    forms = {
        "pretty.json": json.dumps(json.loads(text), indent=2),
        "sorted.json": json.dumps(json.loads(text), sort_keys=True),
        "unicode.json": json.dumps(json.loads(text), ensure_ascii=False),
    }
    for name, form in forms.items():
        (tmp_path / name).write_text(form, encoding="utf-8")
    (tmp_path / "mark.json").write_text(text, encoding="utf-8-sig")
    save_report(report, tmp_path / "report.json")
    save_report(report, tmp_path / "name without suffix")
    if kind == "TreeReport":
        save_tree(report, tmp_path / "tree.json")
    for path in sorted(tmp_path.iterdir()):
        assert load_report(path) == report
        assert from_json(path.read_text(encoding="utf-8-sig")) == report
        answers(path, kind)


def test_hosts_answers_from_the_folder_that_it_asks_for(call, tmp_path):
    save_report(live_array_report(), tmp_path)
    assert "by save_report" in call("tree", str(tmp_path / "process-0.json")).stderr
    assert call("hosts", str(tmp_path)).returncode == 0


def test_a_log_with_a_report_in_it_is_a_log(call, tmp_path):
    """As of a program that prints one."""
    path = tmp_path / "train.log"
    text = to_json(tree_report({"w": jnp.ones(4)}))
    path.write_text(f"{text}\nSome donated buffers were not usable: float32[8,64].\n")
    done = call("log", str(path))
    assert (done.returncode, "float32[8,64]" in done.stdout) == (0, True)


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_a_command_reads_and_writes_files_of_names_that_are_not_utf_8(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, report = os.fsdecode(b"caf\xe9.json"), tree_report({"caf\udce9": jnp.zeros(3)}, "caf\udce9")
    save_tree(report, name)
    for suffix in ("json", "html", "svg", "txt"):
        for command in ("tree", "check"):
            output = os.fsdecode(b"out\xe9." + suffix.encode())
            done = call(command, name, "--output", output)
            assert (done.returncode, done.stderr) == (0, ""), done
            assert Path(output).read_text(encoding="utf-8")
            shown = call(command, name, "--format", suffix.replace("txt", "text"))
            assert (shown.returncode, shown.stderr) == (0, "")
    done = call("tree", name, "--format", "json")
    assert from_json(done.stdout) == report
    done = call("tree", os.fsdecode(b"miss\xe9.json"))
    assert (done.returncode, done.stderr) == (2, "Error: miss\\udce9.json: No such file or directory\n")
