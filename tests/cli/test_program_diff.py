"""``jai-cli diff`` of two compiled programs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jax_array_info import (
    from_json,
    planned_mesh_report,
    program_diff_report,
    save_tree,
    to_json,
    to_text,
    tree_report,
)
from jax_array_info.layouts import Spec
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.programs.sent_totals import totals_of
from jax_array_info_core.reports import Collective, LeftOut, ProgramReport

pytestmark = pytest.mark.newest

GATHER = Collective(
    kind="all-gather", axes=("fsdp",), group_size=2, dtype="float32", shape=(512,), sent_nbytes=1024
)


def program(*collectives, name="step", flops=0):
    """Return a report on a program with these collectives."""
    sent = totals_of(collectives)
    mesh = MeshAxes(("fsdp",), (2,), ("Auto",))
    return ProgramReport(
        name=name, mesh=mesh, platform="cpu", collectives=collectives, sent=sent, dot_flops=flops
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with two programs, a tree and a mesh."""
    monkeypatch.chdir(tmp_path)
    reports = {"before": program(), "after": program(GATHER, flops=64), "mesh": planned_mesh_report({"x": 2})}
    for name, report in reports.items():
        Path(f"{name}.json").write_text(to_json(report) + "\n")
    save_tree(tree_report({}, mesh={"x": 2}, specs=Spec(())), "tree.json")


def saved(name):
    return replace(from_json(Path(name).read_text()), name=name)


def test_programs_are_compared_under_the_names_of_their_files(call):
    expected = program_diff_report(saved("before.json"), saved("after.json"))
    done = call("diff", "before.json", "after.json", "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    assert from_json(done.stdout) == expected
    assert (expected.before_name, expected.after_name) == ("before.json", "after.json")
    assert call("diff", "before.json", "after.json").stdout == to_text(expected) + "\n"


def test_equal_programs_of_different_names_are_exit_code_0(call):
    Path("renamed.json").write_text(to_json(program(name="other")))
    done = call("diff", "before.json", "renamed.json")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            ("tree.json", "after.json"),
            "tree.json is a tree, and after.json a compiled program: compare two of the same",
        ),
        (
            ("after.json", "tree.json"),
            "tree.json is a tree, and after.json a compiled program: compare two of the same",
        ),
        (
            ("after.json", "mesh.json"),
            "mesh.json: the report is a MeshReport, neither a tree nor a compiled program: "
            "no command takes it, but load_report in Python does",
        ),
        (
            ("mesh.json", "no.json"),
            "mesh.json: the report is a MeshReport, neither a tree nor a compiled program: "
            "no command takes it, but load_report in Python does",
        ),
        (("after.json", "no.json"), "no.json: No such file or directory"),
    ],
)
def test_two_reports_that_cannot_be_compared_are_exit_code_2(call, args, problem):
    done = call("diff", *args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {problem}\n")


@pytest.mark.parametrize("command", ["tree", "check"])
def test_a_program_is_not_a_tree(call, command):
    done = call(command, "after.json")
    assert (done.returncode, done.stdout) == (2, "")
    problem = "the report is a ProgramReport, not a TreeReport: jai-cli diff and layers take it"
    assert done.stderr == f"Error: after.json: {problem}\n"


def test_only_a_broken_rule_is_exit_code_1(call):
    done = call("diff", "before.json", "after.json", "--fail-on", "all-gather", "--fail-on", "flops+1e3")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[:4] == [
        "failed: all-gather +1.0 KiB (0.0 B to 1.0 KiB), no growth allowed",
        "passed: flops +64 (0 to 64), allowed +1,000",
        "sends 1.0 KiB more per device and call",
        "from before.json to after.json",
    ]
    assert call("diff", "before.json", "after.json", "--fail-on", "sharding").returncode == 0
    improved = call("diff", "after.json", "before.json", "--fail-on", "sent")
    assert (improved.returncode, improved.stdout.splitlines()[0]) == (
        0,
        "passed: sent -1.0 KiB (1.0 KiB to 0.0 B), no growth allowed",
    )


LOST = LeftOut(part="collectives", error="IndexError: list index out of range")
WITHOUT = {"collectives": None, "sent": None, "left_out": (LOST,)}


@pytest.mark.parametrize("names", [("before", "lost"), ("lost", "before")])
def test_a_rule_on_what_is_left_out_of_a_report_is_exit_code_2(call, names):
    Path("lost.json").write_text(to_json(replace(program(), **WITHOUT)))
    files = [f"{name}.json" for name in names]
    done = call("diff", *files, "--fail-on", "sent", columns=200)
    number = "first" if names[0] == "lost" else "second"
    problem = f"sent unknown: {number} program: {LOST.words}"
    assert (done.returncode, done.stderr) == (2, f"Error: {problem}\n")
    assert done.stdout.startswith(f"failed: {problem}\n")
    assert call("diff", *files, "--fail-on", "flops").returncode == 0


def test_programs_without_a_part_are_not_said_to_be_equal(call):
    Path("lost.json").write_text(to_json(replace(program(), **WITHOUT)))
    done = call("diff", "lost.json", "lost.json")
    assert (done.returncode, done.stderr.splitlines()) == (2, [f"Error: {LOST.words}", LOST.words])


def test_json_has_the_results_of_the_rules(call):
    done = call("diff", "before.json", "after.json", "--fail-on", "sent+5%", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["rules"] == [
        {
            "rule": "sent+5%",
            "passed": False,
            "fact": "sent +1.0 KiB (0.0 B to 1.0 KiB), allowed +5 %",
            "is_left_out": False,
            "before": 0,
            "after": 1024,
        }
    ]


def test_rules_of_trees(call):
    done = call("diff", "tree.json", "tree.json", "--fail-on", "memory+1GiB", "--fail-on", "added")
    assert (done.returncode, done.stderr) == (0, "")
    assert call("diff", "tree.json", "tree.json", "--fail-on", "memory+1GiB,added").stdout == done.stdout
    assert done.stdout.splitlines()[:3] == [
        "passed: memory unchanged (0.0 B), allowed +1.0 GiB",
        "passed: added: none",
        "no differences in shape, dtype, spec or memory kind; values are not compared",
    ]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("after.json", "after.json", "--fail-on", "added"), "rule 'added' does not apply to programs"),
        (("tree.json", "tree.json", "--fail-on", "sent"), "rule 'sent' does not apply to trees"),
        (("no.json", "no.json", "--fail-on", "sent+5"), "no.json: No such file or directory"),
        (("no.json", "no.json", "--fail-on", "memory,"), "unknown rule ''"),
        (("no.json", "no.json", "--fail-on", "sent+x"), "expected a growth such as 5% or 10MiB"),
    ],
)
def test_a_rule_that_cannot_be_applied_is_exit_code_2(call, args, problem):
    done = call("diff", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
