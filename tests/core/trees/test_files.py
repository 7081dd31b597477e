"""Trees in files: formats, and files that cannot be read."""

import json
import os
import stat
import sys

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    assert_no_regression,
    assert_tree,
    check_report,
    load_tree,
    planned_mesh_report,
    reshard_report,
    save_tree,
    sharded_structs,
    to_json,
    tree_diff_report,
    tree_report,
)
from jax_array_info_core.errors import FileFormatError, SpecError, UnsupportedValueError
from jax_array_info_core.layouts import Spec
from jax_array_info_core.trees.files import report_of_stored
from jax_array_info_core.trees.stored.reading import LIMITS, Budget, StoredLeaf, StoredSharding, StoredTree

pytestmark = pytest.mark.newest

MESH = {"axis_names": ["fsdp", "tensor"], "shape": {"fsdp": 4, "tensor": 2}}


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path, **options):
    """Return the message of the error, which is one printable line that begins with the path."""
    with pytest.raises(FileFormatError) as caught:
        load_tree(path, **options)
    message = str(caught.value)
    assert message.isprintable()
    shown = str(path).encode("unicode_escape").decode()
    assert message.startswith(f"{shown}: ")
    return message.removeprefix(f"{shown}: ")


def leaf(**fields):
    """Return a sharding dump of one leaf."""
    return json.dumps({".w": {"mesh": MESH, "partition_spec": ["fsdp"], "shape": [16, 6], **fields}})


def test_a_report_and_a_plan_are_loaded_as_they_were_saved(tmp_path):
    tree, plan = stored_report(), {"mesh": {"data": 2}, "specs": Spec((("data",),))}
    save_tree(tree, tmp_path / "tree.json")
    assert load_tree(tmp_path / "tree.json") == tree
    save_tree(tree, tmp_path / "tree.json", **plan)
    assert load_tree(tmp_path / "tree.json") == tree_report(tree, **plan) != tree
    with pytest.raises(SpecError, match="'nope'"):
        save_tree(tree, tmp_path / "other.json", mesh={"data": 2}, specs=Spec((("nope",),)))
    assert not (tmp_path / "other.json").exists()


def stored_report():
    leaves = [
        StoredLeaf(
            path="params/w",
            shape=(16, 6),
            dtype="float32",
            sharding=StoredSharding(Spec((("fsdp",),)), (("fsdp", 4),)),
        ),
        StoredLeaf(path="params/b", shape=(6,), dtype="bfloat16", logical=Spec((("embed",),))),
    ]
    return report_of_stored(StoredTree(type_name="dict", leaves=leaves, others=2), "state", Budget())


def test_report_of_stored_leaves():
    """Leaves without a sharding are counted in full on each device."""
    report = stored_report()
    assert [row.path for row in report.rows] == ["params/w", "params/b"]
    assert [row.shard_nbytes for row in report.rows] == [96, 12]
    assert (report.parameters, report.nbytes, report.fullest_device_nbytes) == (102, 396, 108)
    assert (report.device_count, report.others) == (4, 2)


def test_device_ids_tell_meshes_apart():
    """Two meshes on different devices hold their leaves on different devices."""

    def on(path, *ids):
        sharding = StoredSharding(Spec((("x",),)), (("x", 2),))
        return StoredLeaf(path=path, shape=(4,), dtype="int8", sharding=sharding, device_ids=ids)

    for ids, expected in (((3, 2), (4, 2)), ((1, 0), (2, 4))):
        tree = StoredTree(type_name="dict", leaves=[on("a", 0, 1), on("b", *ids)])
        report = report_of_stored(tree, "x", Budget())
        assert (report.device_count, report.fullest_device_nbytes) == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "an empty file"),
        (leaf()[:-20], "not valid JSON: "),
        ("[" * 200_000, "not valid JSON: nested too deeply"),
        ('{"a":' * 200_000, "not valid JSON: nested too deeply"),
        ('{"report":' + "[" * 200_000, "expected the JSON of a report: "),
        ("[" + "{}," * 5 * 10**6, "10,000,001 values exceed the limit of 7,000,000"),
        (b"\xff\xfe{\0", "not UTF-8 text: invalid start byte at byte 0"),
        ("[]", "JSON of an unknown format: expected a report of save_tree, "),
        ('{"a": {"b": 1}}', "JSON of an unknown format: "),
        (
            to_json(planned_mesh_report({"data": 4})),
            "the report is a MeshReport, not a TreeReport of save_tree",
        ),
        ('{"report": "\x7f"}', "the field 'report' must name one of "),
        (leaf(shape=[-1]), "w: axis 0 of shape (-1,) has a negative length"),
        (leaf(shape=["a"]), ".w: Expected `int`, got `str` - at `$.shape[0]`"),
        (leaf(shape=[True]), ".w: Expected `int`, got `bool` - at `$.shape[0]`"),
        (leaf(partition_spec=["data"]), "w: 'data' is not a mesh axis: the mesh has 'fsdp', 'tensor'"),
        (leaf(partition_spec=["fsdp", "fsdp"]), "w: 'fsdp' is used twice: "),
        (leaf(partition_spec=[None] * 3), "w: the spec has 3 entries, but the array has 2 axes: "),
        (
            leaf(mesh={"axis_names": ["fsdp"], "shape": {"fsdp": 10**9}}),
            "w: 1000000000 devices exceed the limit",
        ),
        (
            leaf(mesh={"axis_names": ["fsdp"], "shape": {"x": 1}}),
            ".w: the mesh has the axes 'fsdp', but sizes of",
        ),
        ('{".a": 1, ".a": 2}', "the key '.a' occurs twice"),
        (
            '{".a": {"partition_spec": [], "shape": []}, "[\'a\']": {"partition_spec": [], "shape": []}}',
            "two arrays",
        ),
        ('{".\\u001b[31m": {"partition_spec": [], "shape": [-1]}}', r"'\x1b[31m': axis 0 of shape (-1,)"),
        ('{"weight_map": 3}', "not an index of safetensors: 'weight_map' is not an object"),
        (
            '{"weight_map": {"w": "../w.safetensors"}}',
            "the shard of 'w' must be the name of a file next to the",
        ),
    ],
)
def test_json_that_is_refused(tmp_path, content, problem):
    assert refusal(written(tmp_path, "x.json", content)).startswith(problem)


@pytest.mark.parametrize(
    ("place", "fields", "problem"),
    [
        ("rows", {"path": "params/b"}, "2 leaves have the path 'params/b'"),
        ("rows", {"mesh": 7}, "params/w is on mesh 7 of 1 meshes"),
        ("rows", {"nbytes": "many"}, "Expected `int | null`, got `str` - at `$.rows[0].nbytes`"),
        (
            "meshes",
            {"axes": None, "device_count": 10**9},
            "1000000000 devices exceed the limit of 1048576",
        ),
    ],
)
def test_reports_that_contradict_themselves(tmp_path, place, fields, problem):
    report = json.loads(to_json(stored_report()))
    report[place][0].update(fields)
    content = json.dumps(report)
    assert refusal(written(tmp_path, "x.json", content)) == f"not a valid TreeReport: {problem}"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.pkl", b"\x80\x04K\x01.", "the format is not known: expected "),
        ("x", b"", "an empty file: save it again"),
        ("x.npz", b"PK", "not a valid npz file: "),
    ],
)
def test_formats_that_are_not_known(tmp_path, name, content, problem):
    assert refusal(written(tmp_path, name, content)).startswith(problem)


def test_arguments_that_do_not_fit_a_file(tmp_path, monkeypatch):
    path = written(tmp_path, "x.json", json.dumps({key: {"partition_spec": [], "shape": []} for key in "ab"}))
    assert refusal(path, item="state") == "not the directory of an Orbax checkpoint: only these have items"
    with pytest.raises(ValueError, match="'float33' is not an array dtype"):
        load_tree(path, dtype="float33")
    monkeypatch.setitem(LIMITS, "arrays", 1)
    assert refusal(path) == "2 arrays exceed the limit of 1"


KEYS = ("", "0", "a/b", "'a'", '"', "\\", "a#2", "\x1b[31m", "\ud800", "größe", "x" * 5000)
MORE_KEYS = (*KEYS, 0, -1, 1.5, float("inf"), True, None, b"x", (0, True), (0, "a/b"), ("\ud800", (None,)))


@pytest.mark.parametrize("key", MORE_KEYS, ids=ascii)
def test_trees_with_any_keys_are_read_as_they_were_written(tmp_path, key):
    array = np.zeros((2, 3))
    for tree in ({key: array}, {"w": {key: [array, array], **dict.fromkeys(KEYS, array)}}):
        report = tree_report(tree)
        save_tree(report, tmp_path / "x.json")
        assert load_tree(tmp_path / "x.json") == report


def test_many_meshes_of_many_devices(tmp_path):
    """The devices of all meshes together are limited; those of a mesh count once."""

    def dump(meshes):
        leaves = {
            str(number): {
                "partition_spec": [None],
                "shape": [1 + number],
                "mesh": {"axis_names": [f"x{number % meshes}"], "shape": {f"x{number % meshes}": 2**20}},
            }
            for number in range(12)
        }
        return written(tmp_path, "x.json", json.dumps(leaves))

    assert load_tree(dump(4)).device_count == 2**20
    assert refusal(dump(5)) == "5,242,880 devices exceed the limit of 4,194,304"


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors", ""])
def test_large_files_are_not_read(tmp_path, suffix):
    """A sparse file of a tebibyte is refused without reading it."""
    path = tmp_path / f"x{suffix}"
    with path.open("wb") as file:
        file.truncate(2**40)
    refusal(path)


def test_devices_pipes_and_links(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert refusal(tmp_path / "pipe.json") == "a device or a pipe, not a regular file: copy it to one"
    assert refusal("/dev/zero") == "a device or a pipe, not a regular file: copy it to one"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert refusal(tmp_path / "loop") == "Too many levels of symbolic links"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_files_without_permission(tmp_path):
    path = written(tmp_path, "x.json", "{}")
    path.chmod(stat.S_IWUSR)
    assert refusal(path) == "Permission denied"


@pytest.mark.parametrize("path", ["missing.json", "", "missing\x1b[31m"])
def test_missing_files(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        load_tree(path)
    assert caught.value.filename == path
    assert str(caught.value).isprintable()


def test_paths_with_escapes(tmp_path):
    path = written(tmp_path, "x\x1b[31m\n.json", "[")
    assert refusal(path).startswith("not valid JSON: ")
    path.write_text(leaf())
    assert load_tree(path).name == str(path).encode("unicode_escape").decode()


@pytest.mark.parametrize("name", ["x.json", "x.npz", "x.safetensors", "x"])
@pytest.mark.parametrize("target", ["kmsg", "self/pagemap"])
def test_files_in_proc_are_not_read(tmp_path, name, target):
    """Some wait for more content, or lose what is read."""
    (tmp_path / name).symlink_to(f"/proc/{target}")
    assert refusal(tmp_path / name) == "an empty file: save it again"


def test_libraries_that_are_not_installed(tmp_path, monkeypatch):
    """The error names the extra that installs them."""
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    install = "which is not installed: pip install 'jax-array-info[checkpoint]'"
    (tmp_path / "item").mkdir()
    value = {"value_type": "jax.Array", "skip_deserialize": False}
    entry = {"key_metadata": [{"key": "w"}], "value_metadata": value}
    written(tmp_path / "item", "_METADATA", json.dumps({"tree_metadata": {"w": entry}, "use_ocdbt": True}))
    assert refusal(tmp_path / "item") == f"reading it needs tensorstore, {install}"


OF_TREES = {
    "tree_report": tree_report,
    "check_report": check_report,
    "assert_tree": assert_tree,
    "tree_diff_report": lambda tree: tree_diff_report(tree, tree),
    "reshard_report": lambda tree: reshard_report(tree, tree),
    "assert_no_regression": lambda tree: assert_no_regression(tree, tree, "removed"),
}


@pytest.mark.parametrize("name", OF_TREES)
def test_a_path_is_read_wherever_a_tree_is_taken(name, tmp_path):
    """As a leaf that is not an array, it would be a tree in which nothing can differ."""
    path = tmp_path / "tree.json"
    save_tree({"w": np.zeros((8, 4))}, path)
    report = OF_TREES[name](str(path))
    assert report == OF_TREES[name](path) == OF_TREES[name](load_tree(path))
    with pytest.raises(FileNotFoundError):
        OF_TREES[name](str(tmp_path / "missing.json"))
    with pytest.raises(FileFormatError, match="the format is not known"):
        OF_TREES[name](written(tmp_path, "words.txt", "words"))


def test_the_facts_of_a_path_are_those_of_its_tree(tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    save_tree({"w": np.zeros((8, 4), np.float32)}, before, mesh={"d": 4})
    save_tree({"w": np.zeros((8, 4), np.float32)}, after, mesh={"d": 4}, specs=P("d"))
    assert tree_report(before, mesh={"d": 2}, specs=P("d")).rows[0].shard_shape == (4, 4)
    assert [one.fields for one in tree_diff_report(before, after).changed] == [("spec",)]
    assert reshard_report(after, before).device_nbytes == 96
    assert [one.code for one in check_report(before).findings] == ["JAI105"]


@pytest.mark.parametrize(
    "call",
    [
        lambda report, path: load_tree(3),
        lambda report, path: save_tree(path, report),
        lambda report, path: tree_report(check_report(report)),
        lambda report, path: sharded_structs(path, mesh={"d": 2}, specs=P()),
        lambda report, path: sharded_structs(report, mesh={"d": 2}, specs=P()),
    ],
)
def test_other_things_than_trees_and_paths_are_refused(call, tmp_path):
    with pytest.raises(UnsupportedValueError, match=r"^expected .*, got <class '.*'>"):
        call(tree_report({"w": np.zeros(3)}), tmp_path / "tree.json")
