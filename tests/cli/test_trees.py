"""``jai-cli tree``, ``check`` and ``diff``: options, results and exit codes."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import (
    PathRules,
    check_report,
    from_json,
    load_tree,
    save_tree,
    to_html,
    to_json,
    to_svg,
    to_text,
    tree_diff_report,
    tree_report,
)
from jax_array_info.engine.render import render, text_of
from jax_array_info.layouts import Spec
from jax_array_info.reports import TreeMesh
from tests.maxtext import DUMPS, write_dump

pytestmark = pytest.mark.newest


def leaf(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


LAYER = {"wi": leaf(64, 128), "wo": leaf(128, 64), "scale": leaf(64)}
MODEL = {"params": {"embed": leaf(1024, 64), "layers": [LAYER, LAYER]}, "step": leaf(dtype=jnp.int32)}
PLAN = shlex.split("--mesh fsdp=4,tensor=2 --spec *wi=fsdp,tensor --spec *w?=tensor,fsdp --spec *=-")
RULES = {
    "*wi": Spec((("fsdp",), ("tensor",))),
    "*w?": Spec((("tensor",), ("fsdp",))),
    "*": Spec(()),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with ``model.json``, a tree of abstract arrays."""
    monkeypatch.chdir(tmp_path)
    save_tree(MODEL, "model.json")
    return tmp_path


def planned(rules=RULES, **mesh):
    return tree_report(load_tree("model.json"), mesh=mesh or {"fsdp": 4, "tensor": 2}, specs=PathRules(rules))


def test_tree_prints_the_leaves_of_a_saved_tree(call):
    done = call("tree", "model.json", columns=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == to_text(load_tree("model.json"), width=100) + "\n"


def test_rules_apply_in_order_and_are_divided_at_the_first_equals_sign(call):
    done = call("tree", "model.json", *PLAN, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    report = from_json(done.stdout)
    assert report == planned()
    specs = {row.path: str(row.spec) for row in report.rows}
    assert specs["params/layers/0/wi"] == "P('fsdp', 'tensor')"
    assert specs["params/layers/0/wo"] == "P('tensor', 'fsdp')"
    assert specs["step"] == "P()", "'*=-' fits leaves without axes too"
    jax_text = ("--spec", "*=P(unreduced={'fsdp'})")
    assert call("tree", "model.json", "--mesh", "fsdp=4", *jax_text).returncode == 0


def test_a_pattern_for_all_leaves_replicates_those_with_fewer_axes(call):
    line = "1 leaf with fewer axes than the spec: replicated\n"
    plan = ("--mesh", "fsdp=4", "--spec", "*=fsdp")
    assert call("tree", "model.json", *plan, "--output", "all.json").returncode == 0
    for command in (("tree", "all.json"), ("tree", "model.json", *plan), ("check", "model.json", *plan)):
        assert line in call(*command).stdout
    assert "JAI104" not in call("check", "all.json").stdout


def test_leaves_without_a_rule_stay_as_they_are(call):
    call("tree", "model.json", *PLAN, "--output", "plan.json")
    done = call("tree", "plan.json", "--spec", "*embed=tensor", "--format", "json")
    specs = {row.path: str(row.spec) for row in from_json(done.stdout).rows}
    assert (specs["params/embed"], specs["params/layers/1/wo"]) == ("P('tensor',)", "P('tensor', 'fsdp')")


def test_a_written_plan_is_read_again_by_every_command(call, folder):
    done = call("tree", "model.json", *PLAN, "--output", "plan.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert load_tree("plan.json") == planned()
    assert call("check", "plan.json", "--max-replicated", "1", "--ignore", "*scale").returncode == 0
    assert call("diff", "plan.json", "plan.json").returncode == 0
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("--sort", "waste"), {"sort": "waste"}),
        (("--max-rows", "0", "--depth", "1"), {"max_rows": 0, "depth": 1}),
    ],
)
def test_the_table_is_folded_sorted_and_shortened(call, args, options):
    done = call("tree", "model.json", *PLAN, *args)
    assert done.stdout == text_of(render(planned(), syntax="shell", **options)) + "\n"
    assert from_json(call("tree", "model.json", *PLAN, *args, "--format", "json").stdout) == planned()


def test_trees_are_drawn_as_svg_and_html(call):
    assert call("tree", "model.json", "--format", "svg").stdout == to_svg(load_tree("model.json")) + "\n"
    page = call("tree", "model.json", "--format", "html").stdout
    assert to_html(load_tree("model.json")) in page
    assert "<details" in page
    assert "<details" not in call("tree", "model.json", "--format", "html", "--sort", "waste").stdout


LOGICAL = {
    ".params/['embed']": {"partition_spec": ["vocab", "embed"], "shape": [1024, 64]},
    ".params/['wi']": {"partition_spec": ["embed", "mlp"], "shape": [64, 128]},
    ".params/['scale']": {"partition_spec": ["norm"], "shape": [64]},
}


def test_rules_of_flax_are_read_from_a_file(call, folder):
    (folder / "logical.json").write_text(json.dumps(LOGICAL))
    rules = [["mlp", "fsdp"], ["embed", ["fsdp", "data"]], ["embed", "tensor"], ["vocab", None], ["head", []]]
    (folder / "rules.json").write_text(json.dumps(rules))
    args = ("logical.json", "--mesh", "fsdp=4,tensor=2", "--axes")
    done = call("tree", *args, "rules.json")
    assert "\nlogical axes without a rule, replicated: 'norm'\nrules without a leaf: 'head'\n" in done.stdout
    assert "not mesh axes, left out of rules: 'data'\n" in done.stdout
    report = from_json(call("tree", *args, "rules.json", "--format", "json").stdout)
    assert [row.spec.axes for row in report.rows[:2]] == [((), ("fsdp",)), (("tensor",), ("fsdp",))]
    written = from_json(
        call("tree", *args, "mlp=fsdp,embed=fsdp+data,embed=tensor,vocab=-,head=-", "--format", "json").stdout
    )
    assert written == report
    (folder / "rules.json").write_text('["embed"]')
    assert (
        "must be pairs of a logical axis name and its mesh axes" in call("check", *args, "rules.json").stderr
    )
    assert "--axes none.json: No such file" in call("tree", *args, "none.json").stderr


@pytest.mark.parametrize("command", ["tree", "check"])
def test_all_invalid_options_are_reported_together(call, command):
    options = "--mesh a=b --spec *mlp* --spec w=x,,y --spec v=x --spec v=y --axes embed --dtype float9"
    done = call(command, "model.json", *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.partition("Error: ")[2] == (
        "'float9' is not an array dtype: use one such as float32, bfloat16 or int4\n"
        "--mesh cannot be read: expected a number\n  a=b\n    ^\n"
        "--spec cannot be read: expected '=' and a spec after the pattern\n  *mlp*\n       ^\n"
        "--spec cannot be read: expected the name of a mesh axis\n  w=x,,y\n      ^\n"
        "--spec 'v' is given twice: only the first could match\n"
        "--axes cannot be read: expected '=' and a mesh axis, or '-' for none\n  embed\n       ^\n"
    )


def test_all_invalid_options_of_check_are_reported_together(call):
    options = ("--hbm", "95G", "--max-replicated", "nan", "--replicated-over", "a b", "--expect", "x")
    done = call("check", "model.json", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.partition("Error: ")[2] == (
        "--replicated-over cannot be read: expected the end\n  a b\n    ^\n"
        "--hbm cannot be read: write GB or GiB instead of G, got '95G'\n"
        "--max-replicated must be a fraction from 0 to 1, got nan\n"
        "--expect cannot be read: expected '=' and a spec after the pattern\n  x\n   ^\n"
    )
    for size, problem in {"0": "must be at least 1 byte, got 0", "-1GB": "expected a size"}.items():
        done = call("check", "model.json", f"--hbm={size}")
        assert done.returncode == 2
        assert problem in done.stderr


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("model.json", "--spec", "*=x"), "--spec needs --mesh: model.json has no mesh"),
        (("logical.json", "--axes", "embed=x"), "--axes needs --mesh: logical.json has no mesh"),
        (
            ("model.json", "--mesh", "x=2", "--axes", "embed=x"),
            "--axes needs logical axis names, but model.json has none: pass them with --spec",
        ),
        (
            ("logical.json", "--mesh", "x=2", "--axes", "embd=x"),
            "no leaf has a logical axis of the rules, 'embd' (similar: 'embed'): the logical axes of the leaves"
            " are 'vocab', 'embed', 'mlp', 'norm'",
        ),
        (
            ("logical.json", "--mesh", "x=2"),
            "--mesh needs --axes for the logical axis names of logical.json, such as vocab=x",
        ),
        (("model.json", "--mesh", "x=2", "--spec", "*wx*=x"), "'*wx*' matches no leaf"),
        (("model.json", "--item", "state"), "only these have items"),
    ],
)
@pytest.mark.parametrize("command", ["tree", "check"])
def test_options_that_do_not_fit_the_file_are_refused(call, folder, command, args, problem):
    (folder / "logical.json").write_text(json.dumps(LOGICAL))
    done = call(command, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_an_unknown_mesh_axis_names_the_leaves_and_the_list_is_short(call):
    done = call("tree", "model.json", "--mesh", "x=2", "--spec", "params*=y")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'y' is not a mesh axis: the mesh has 'x' (" in done.stderr
    save_tree([leaf(2)] * 100, "many.json")
    done = call("tree", "many.json", "--mesh", "x=2", "--spec", "*=y")
    assert done.stderr.endswith("'y' is not a mesh axis: the mesh has 'x' (100 leaves: 0, 1, 2, …)\n")
    save_tree({f"w{ndim}": leaf(*[1] * ndim) for ndim in range(26)}, "many.json")
    done = call("tree", "many.json", "--mesh", "x=2", "--spec", "w*=x" + ",-" * 29)
    assert len(done.stderr.splitlines()) == 3 + 20 + 1
    assert done.stderr.endswith("\nand 6 more problems\n")
    found = call("check", "model.json", "--mesh", "x=2", "--spec", "params*=y", "--format", "json")
    assert (found.returncode, found.stderr) == (1, "")
    assert "invalid spec" in {finding.kind for finding in from_json(found.stdout).findings}


def kinds(done):
    return [finding.kind for finding in from_json(done.stdout).findings]


def test_check_exits_with_1_if_it_finds_something(call):
    args = shlex.split(
        "model.json --mesh fsdp=4,data=2 --spec *w?=fsdp --spec *embed=fsdp --spec *=- --min-size 48KiB"
    )
    done = call("check", *args)
    assert (done.returncode, done.stderr) == (1, "")
    assert "'data'" in done.stdout
    assert kinds(call("check", *args, "--format", "json")) == ["avoidable replication", "unused mesh axis"]
    small = call("check", *args[:-1], "48.1KiB")
    assert "accepted: avoidable replicas of 48.0 KiB (49.74%), below the limit of 48.1 KiB" in small.stdout
    done = call("check", *args, "--replicated-over", "data")
    assert (done.returncode, done.stderr) == (0, "")
    assert call("check", *args, "--replicated-over", "data,fsdp").returncode == 0
    assert call("check", *args, "--replicated-over", "data", "--replicated-over", "fsdp").returncode == 0


def test_check_finds_the_replicas_in_one_of_three_dumps_of_maxtext(call, folder):
    codes = {name: call("check", str(write_dump(folder, name))).returncode for name in DUMPS}
    assert codes == {"qwen3-0.6b fsdp=16": 0, "deepseek2-16b fsdp=16": 0, "deepseek2-16b fsdp=8,expert=2": 1}
    path = str(write_dump(folder, "deepseek2-16b fsdp=8,expert=2"))
    found = from_json(call("check", path, "--format", "json").stdout)
    [finding] = found.findings
    assert (finding.mesh_axes[0], len(finding.leaves), finding.nbytes) == ("expert", 57, 4 * 246_206_976)
    assert "'expert'" in call("check", path).stdout
    done = call("check", path, "--replicated-over", "expert", "--format", "json")
    assert (done.returncode, from_json(done.stdout).avoidable_nbytes) == (0, 4 * 331_968)
    done = call("check", path, "--dtype", "bfloat16", "--format", "json")
    assert from_json(done.stdout).findings[0].nbytes == 2 * 246_206_976


def test_check_accepts_one_device_and_an_empty_tree_by_name(call):
    """Both are findings otherwise."""
    embed = planned().rows[0]
    row = replace(
        embed, spec=None, mesh=1, sharding="SingleDeviceSharding", shard_shape=embed.shape, replicas=1
    )
    tree = planned()
    single = TreeMesh(axes=None, device_count=1)
    Path("one.json").write_text(
        to_json(replace(tree, rows=(row, *tree.rows[1:]), meshes=(*tree.meshes, single), device_count=8))
    )
    Path("empty.json").write_text(to_json(replace(tree, rows=(), meshes=())))
    accepted = ("--max-replicated", "1", "--devices", "1", "--allow-empty")
    for name, kind in (("one.json", "fewer devices"), ("empty.json", "not checked")):
        done = call("check", name, *accepted[:2], "--format", "json")
        assert (done.returncode, done.stderr) == (1, "")
        assert kinds(done) == [kind]
        assert call("check", name, *accepted).returncode == 0


def test_the_options_of_check_are_those_of_check_report(call):
    options = (
        "--ignore *scale --ignore step --max-replicated 0.9 --hbm 30KiB --host-memory 1GiB --hosts 2 "
        "--optimizer adam --moment-dtype bfloat16 --expect *embed=fsdp --expect *wo=tensor,fsdp --min-size 1KiB"
    )
    args = ["model.json", *PLAN, *shlex.split(options)]
    expected = check_report(
        planned(),
        ignore=("*scale", "step"),
        max_replicated=0.9,
        min_nbytes=1024,
        hbm_nbytes=30 * 1024,
        host_nbytes="1GiB",
        hosts=2,
        optimizer="adam",
        moment_dtype=jnp.bfloat16,
        expect=PathRules({"*embed": Spec((("fsdp",),)), "*wo": Spec((("tensor",), ("fsdp",)))}),
    )
    done = call("check", *args, "--format", "json")
    assert (done.returncode, from_json(done.stdout)) == (1, replace(expected, syntax="shell"))
    assert kinds(done) == ["memory", "unexpected sharding"]
    assert call("check", *args).stdout == to_text(replace(expected, syntax="shell")) + "\n"


def test_diff_exits_with_1_if_leaves_differ(call):
    call("tree", "model.json", *PLAN, "--output", "plan.json")
    call("tree", "plan.json", "--spec", "*embed=tensor", "--output", "new.json")
    call("tree", "plan.json", "--spec", "*wi=P('fsdp', ('tensor',))", "--output", "same.json")
    done = call("diff", "plan.json", "new.json", "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    trees = [replace(load_tree(name), name=name) for name in ("plan.json", "new.json")]
    expected = tree_diff_report(*trees)
    assert from_json(done.stdout) == expected
    assert [change.after.path for change in expected.changed] == ["params/embed"]
    assert call("diff", "plan.json", "new.json").stdout == to_text(expected) + "\n"
    for other in ("plan.json", "same.json"):
        done = call("diff", "plan.json", other)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("code", "args"),
    [
        (1, ("tree", "model.json")),
        (2, ("check", "model.json")),
        (2, ("diff", "model.json", "model.json")),
    ],
)
def test_an_output_file_that_cannot_be_written_is_no_answer(call, code, args):
    done = call(*args, "--output", "nowhere/x.json")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == "Error: nowhere/x.json: No such file or directory\n"


def test_values_of_files_are_not_compared(call, tmp_path):
    np.savez(tmp_path / "a.npz", w=np.zeros(3))
    done = call("diff", "--values", str(tmp_path / "a.npz"), "absent.npz")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: values of files are not compared: load them, then numpy.testing\n"
    assert "--values" not in call("diff", "--help").stdout
    done = call("diff", "--fail-on", "values", str(tmp_path / "a.npz"), str(tmp_path / "a.npz"))
    assert done.returncode == 2
    assert "unknown rule 'values'" in done.stderr
