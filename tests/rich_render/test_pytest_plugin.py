"""The fixture ``sharding_snapshot``, in runs of pytest within the test."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import to_json  # noqa: F401  loaded before the runs, which unload what they import
from jax_array_info_core.trees import tree_diff as snapshots
from jax_array_info_core.trees.tree_report import tree_report

pytestmark = pytest.mark.newest

CONFTEST = 'pytest_plugins = ["jax_array_info.pytest_plugin"]'

PLANNED = """
import jax, jax.numpy as jnp, numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax_array_info_core.trees.tree_report import tree_report

MESH = {"x": 4, "one": 1}

def planned(**specs):
    tree = {name: jax.ShapeDtypeStruct((8, 4), jnp.float32) for name in specs}
    return tree_report(tree, mesh=MESH, specs=specs)
"""


@pytest.fixture
def run(pytester):
    """Return a function that runs pytest on the given test module in a project."""

    def run(body, *options, file="tests/test_model.py"):
        path = pytester.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLANNED + body)
        pytester.makeconftest(CONFTEST)
        # The options of this project's own run do not apply to a project of its own.
        return pytester.runpytest_inprocess("-q", "-p", "no:xdist", "-p", "no:hypothesispytest", *options)

    return run


def stored(pytester, place="tests"):
    folder = pytester.path / place / "__shardings__"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


TEST = """
def test_params(sharding_snapshot):
    sharding_snapshot(planned(w=P("x"), b=P()))
"""


def test_a_missing_file_fails_with_the_command_that_writes_it(run):
    result = run(TEST)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*CheckError: there are no stored shardings: tests/__shardings__/test_model/test_params.json "
            "does not exist. Write it and check its content:",
            "E*  pytest tests/test_model.py::test_params --sharding-update",
        ]
    )


def test_the_option_writes_the_file_and_the_next_run_passes(run, pytester):
    run(TEST, "--sharding-update").assert_outcomes(passed=1)
    assert stored(pytester) == ["test_model/test_params.json"]
    text = (pytester.path / "tests/__shardings__/test_model/test_params.json").read_text()
    assert text == (
        '{"sharding_snapshot": 1, "leaves": {\n'
        '"b": {"shape": [8, 4], "dtype": "float32", "sharding": "P()"},\n'
        '"w": {"shape": [8, 4], "dtype": "float32", "sharding": "P(\'x\',)"}\n'
        "}}\n"
    )
    run(TEST).assert_outcomes(passed=1)


def test_a_difference_fails_with_a_line_per_leaf(run):
    run(TEST, "--sharding-update")
    result = run(TEST.replace('w=P("x"), b=P()', 'w=P(), c=P("x")'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*CheckError: the shardings differ from tests/__shardings__/test_model/test_params.json:",
            "E*  b: removed, was float32[[]8,4[]] P()",
            "E*  c: added, float32[[]8,4[]] P('x',)",
            "E*  w: sharding P('x',) is now P()",
            "E*If this is intended, update the file:",
            "E*  pytest tests/test_model.py::test_params --sharding-update",
        ]
    )
    assert "snapshots.py" not in result.stdout.str()  # the traceback ends in the test


def test_equivalent_specs_and_other_mesh_sizes_are_no_difference(run):
    run(TEST, "--sharding-update")
    for change in (("P()", 'P(None, "one")'), ('P("x")', 'P(("x", "one"), None)'), ('"x": 4', '"x": 2')):
        assert change[0] in PLANNED + TEST
        run((PLANNED + TEST).replace(*change)).assert_outcomes(passed=1)


def test_a_run_on_one_device_finds_a_changed_spec(run):
    """All specs are equivalent there, so they are compared as they are written."""
    run(TEST, "--sharding-update")
    alone = PLANNED.replace('"x": 4', '"x": 1') + TEST
    run(alone).assert_outcomes(passed=1)
    run(alone.replace('P("x")', 'P("x", None)')).assert_outcomes(passed=1)
    result = run(alone.replace('P("x")', "P()"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*  w: sharding P('x',) is now P()"])


def test_an_update_leaves_equal_files_alone(run, pytester):
    run(TEST, "--sharding-update")
    path = pytester.path / "tests/__shardings__/test_model/test_params.json"
    before = path.read_text().replace("P()", "P(None,)")
    path.write_text(before)
    run(TEST, "--sharding-update").assert_outcomes(passed=1)
    assert path.read_text() == before
    path.write_text("{")
    run(TEST, "--sharding-update").assert_outcomes(passed=1)
    assert json.loads(path.read_text())["leaves"].keys() == {"b", "w"}


NAMED = """
@pytest.mark.parametrize("size", [4, 8, "a/b", "../../x", "P('x')"])
def test_sizes(sharding_snapshot, size):
    sharding_snapshot(planned(w=P("x")))

class TestModel:
    class TestInner:
        def test_two(self, sharding_snapshot):
            sharding_snapshot(planned(w=P("x")), "params")
            sharding_snapshot(planned(b=P()), "opt state/größe")
            sharding_snapshot(np.zeros(3))
"""


def test_each_call_has_a_file_of_its_own_with_a_safe_name(run, pytester):
    run(NAMED, "--sharding-update", file="test_top.py").assert_outcomes(passed=6)
    names = stored(pytester, ".")
    assert [name.partition("-")[0] for name in names] == [
        "test_top/TestModel.TestInner.test_two",
        "test_top/TestModel.TestInner.test_two",
        "test_top/TestModel.TestInner.test_two.json",
        "test_top/test_sizes[.._.._x",
        "test_top/test_sizes[4].json",
        "test_top/test_sizes[8].json",
        "test_top/test_sizes[P__x__",
        "test_top/test_sizes[a_b",
    ]
    assert all(name.isascii() and name.count("/") == 1 for name in names)
    run(NAMED, file="test_top.py").assert_outcomes(passed=6)


def test_names_and_trees_of_the_wrong_type_are_refused(run, pytester):
    """None, the result of a function without a return, would be equal to itself forever."""
    result = run(
        "def test_name(sharding_snapshot):\n    sharding_snapshot(planned(w=P()), 3)\n"
        "def test_tree(sharding_snapshot):\n    sharding_snapshot(None)\n"
        "def test_empty(sharding_snapshot):\n    sharding_snapshot({})\n",
        "--sharding-update",
    )
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        ["E*TypeError: name must be a string, got 3", "E*expected a tree of arrays, got <class 'NoneType'>"]
    )
    assert stored(pytester) == ["test_model/test_empty.json"]


def test_a_name_can_be_used_once_in_a_test(run):
    twice = TEST + '    sharding_snapshot(planned(w=P("x")))\n'
    result = run(twice, "--sharding-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*ValueError: sharding_snapshot was already called with name=None*"])


def test_the_command_is_relative_to_the_folder_of_the_run(run, pytester, monkeypatch):
    (pytester.path / "pytest.ini").write_text("[pytest]\n")
    run(TEST, "--sharding-update")
    monkeypatch.chdir(pytester.path / "tests")
    result = run(TEST.replace('P("x")', "P()"))
    result.stdout.fnmatch_lines(
        [
            "E*CheckError: the shardings differ from __shardings__/test_model/test_params.json:",
            "E*  pytest test_model.py::test_params --sharding-update",
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{}",
        '{"sharding_snapshot": 1, "leaves": [1]}',
        "[" * 100_000,
        "\x00",
        '{"a": 1' + "0" * 5000,
    ],
)
def test_a_file_that_cannot_be_read_fails_with_the_command(text, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(
        snapshots.CheckError, match=r"x.json cannot be read as stored shardings: .*\n  pytest x"
    ):
        snapshots.compare(path, {}, shown="x.json", command="pytest x")


def test_edited_files_differ_without_an_error(tmp_path):
    path = tmp_path / "x.json"
    leaves = {"w": {"shape": 3, "dtype": None, "sharding": ["P("]}, "\x1b[31m": {"sharding": "P("}}
    path.write_text(json.dumps({"sharding_snapshot": 1, "leaves": leaves}))
    tree = tree_report({"w": jax.ShapeDtypeStruct((2,), "float32")}, mesh={"x": 2}, specs=P("x"))
    with pytest.raises(AssertionError) as caught:
        snapshots.compare(path, tree, shown="x.json", command="pytest x")
    assert str(caught.value).splitlines()[1:3] == [
        r"  \x1b[31m: removed, was None[?] P(",
        "  w: shape 3 is now [2], dtype none is now float32, sharding [P(] is now P('x',)",
    ]


def test_leaves_of_every_kind_are_stored_and_compared(tmp_path):
    """Also those whose paths and dtypes need escapes, and without device ids or names of default memory."""
    deleted = jnp.zeros(3)
    tree = {"ä": jnp.zeros(2), "a/b": np.zeros(0), "\x1b": jax.random.key(0), "\ud800": deleted, "": None}
    deleted.delete()
    path = tmp_path / "x.json"
    snapshots.update(path, tree)
    snapshots.compare(path, tree, shown="x.json", command="pytest x")
    leaves = json.loads(path.read_bytes())["leaves"]
    assert leaves["ä"] == {"shape": [2], "dtype": "float32", "sharding": "single device"}
    assert {field for leaf in leaves.values() for field in leaf} == {"shape", "dtype", "sharding"}
    assert len(path.read_text().splitlines()) == len(leaves) + 2


def test_a_run_without_the_plugin_has_neither_fixture_nor_option(pytester):
    pytester.makepyfile("def test_params(sharding_snapshot): pass")
    pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:hypothesispytest").assert_outcomes(errors=1)
    assert pytester.runpytest_inprocess("--sharding-update").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.own_process
@pytest.mark.newest
def test_loading_the_plugin_imports_neither_jax_nor_numpy_nor_rich():
    code = "import sys, jax_array_info.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "numpy", "rich", "msgspec"} & set(done.stdout.split())


@pytest.mark.own_process
@pytest.mark.newest
def test_parallel_runs_write_and_compare(pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_top=PLANNED + NAMED)
    for options in (["--sharding-update"], []):
        pytester.runpytest_subprocess("-n", "2", *options).assert_outcomes(passed=6)
    assert len(stored(pytester, ".")) == 8
