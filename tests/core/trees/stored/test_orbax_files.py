"""Orbax checkpoints with a file for each array: they are read without Orbax, and each file is checked."""

import base64
import json
import os

import pytest

from jax_array_info_core import load_tree
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.layouts import Spec

pytestmark = pytest.mark.newest


def entry(*keys, value="jax.Array", skip=False):
    keys = [{"key": key, "key_type": 2} for key in keys]
    return {"key_metadata": keys, "value_metadata": {"value_type": value, "skip_deserialize": skip}}


NAMED = {
    "sharding_type": "NamedSharding",
    "shape": [2, 2],
    "axis_names": ["x", "y"],
    "axis_types": ["AxisType.Auto", "AxisType.Explicit"],
    "partition_spec": [["x", "y"], None],
    "device_mesh": {"mesh": [[{"id": 0}, {"id": 1}], [{"id": 2}, {"id": 3}]]},
}


def item(folder, sharding=NAMED, array=None, **entries):
    """Write an item with the array ``p.w`` and other entries."""
    (folder / "p.w").mkdir(parents=True)
    array = {"shape": [8, 4], "dtype": "<f4"} if array is None else array
    (folder / "p.w" / ".zarray").write_text(json.dumps(array))
    entries = {"w": entry("p", "w"), **entries}
    (folder / "_METADATA").write_text(json.dumps({"tree_metadata": entries, "use_ocdbt": False}))
    text = sharding if isinstance(sharding, str) else json.dumps(sharding)
    (folder / "_sharding").write_text(json.dumps({base64.b64encode(b"p.w").decode(): text}))
    return folder


def refusal(path):
    with pytest.raises(FileFormatError) as caught:
        load_tree(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    return message.removeprefix(f"{path}: ")


def test_array_with_its_sharding(tmp_path):
    """Axis types are not read, as a restore has its own; empty containers do not count, other values do."""
    others = {
        "step": entry("step", value="scalar"),
        "name": entry("name", value="string"),
        "none": entry("none", value="None", skip=True),
        "list": entry("list", value="List", skip=True),
    }
    report = load_tree(item(tmp_path / "item", **others))
    [row] = report.rows
    assert (row.path, row.shape, row.dtype, row.nbytes) == ("p/w", (8, 4), "float32", 128)
    assert (row.spec, row.shard_shape) == (Spec((("x", "y"), ())), (2, 4))
    assert report.meshes[row.mesh].axes.types == ()
    assert (report.others, report.device_count) == (3, 4)


@pytest.mark.parametrize("sharding", ["", {"sharding_type": "PositionalSharding", "shape": [4]}])
def test_arrays_without_a_known_sharding(tmp_path, sharding):
    [row] = load_tree(item(tmp_path / "item", sharding)).rows
    assert (row.source, row.mesh) == ("unknown", None)


FILES = ["_METADATA", "_sharding", "p.w/.zarray"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device", "log of the kernel"])
def test_files_that_could_wait_are_refused(tmp_path, name, kind):
    """No file is waited for: neither a pipe without a writer nor a file of the system without an end."""
    folder = item(tmp_path / "item")
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero" if kind == "device" else "/proc/kmsg")
    refusal(folder)


@pytest.mark.parametrize("name", FILES)
def test_the_bytes_of_every_file_are_limited(tmp_path, name):
    """A file with holes takes no memory."""
    folder = item(tmp_path / "item")
    os.truncate(folder / name, 2**33)
    assert refusal(folder).startswith(f"{name}: 8,589,93")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "text",
    ["", "\udcff", '{"\udcff": 1}', "[" * 100_000, "{}", "[]", '{"a": "\\ud800"}', "\x1b[31m", "1e999"],
)
def test_damaged_files(tmp_path, name, text):
    folder = item(tmp_path / "item")
    (folder / name).write_text(text, errors="surrogateescape")
    if (name, text) == ("_sharding", "{}"):
        assert load_tree(folder).meshes == ()
    else:
        assert refusal(folder).startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"shape": [-1, 2], "device_mesh": None}, "p/w: mesh axis 'x' has no devices"),
        ({"shape": [10**9, 1], "device_mesh": None}, "p/w: 1000000000 devices exceed"),
        ({"axis_names": ["x", "x"]}, "_sharding: a mesh of sizes (2, 2) with the axes ('x', 'x')"),
        ({"device_mesh": {"mesh": [[{"id": 0}, 1]]}}, "p/w: a mesh of sizes (2, 2) with 1 devices"),
        ({"device_mesh": {"mesh": [{"id": 0}] * 4}}, "p/w: a mesh of sizes (2, 2) with 1 devices"),
        (
            {"device_mesh": {"mesh": [{"id": 2**70 + number} for number in range(4)]}},
            "_sharding: the ids of the devices",
        ),
        ({"partition_spec": [[1]]}, "_sharding: Expected `str"),
        ({"partition_spec": ["z"]}, "p/w: "),
        ({"partition_spec": [[]] * 10**5}, "_sharding: a mesh or a spec of more than 64 axes"),
    ],
)
def test_damaged_shardings(tmp_path, change, problem):
    assert problem in refusal(item(tmp_path / "item", {**NAMED, **change}))


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        ({"shape": [-8, 4], "dtype": "<f4"}, "p/w: axis 0 of shape (-8, 4) has a negative"),
        ({"shape": [True], "dtype": "<f4"}, "p.w/.zarray: Expected `int`"),
        ({"shape": [8], "dtype": [["a", "<f4"]]}, "p.w/.zarray: Expected `str`"),
        ({"shape": [8], "dtype": "M8[Y/0]"}, "p.w/.zarray: the dtype 'M8[Y/0]' is not known"),
        ({"shape": [8], "dtype": "<U3"}, "p.w/.zarray: not an array of numbers"),
        ({"shape": [8]}, "p.w/.zarray: the dtype '' is not known"),
    ],
)
def test_damaged_arrays(tmp_path, array, problem):
    assert problem in refusal(item(tmp_path / "item", array=array))


def test_values_of_types_that_are_not_known(tmp_path):
    """They may be arrays, so leaving them out would make the bytes wrong."""
    folder = item(tmp_path / "item", x=entry("x", value="my.Array"))
    assert refusal(folder) == "x: the type 'my.Array' is not known"


def test_files_outside_of_the_checkpoint_are_not_read(tmp_path):
    folder = item(tmp_path / "item", x=entry("../secret/x"))
    assert refusal(folder) == "../secret/x/.zarray: outside of the checkpoint"


def test_metadata_of_many_keys(tmp_path):
    """The JSON of many keys takes ten times its bytes, so they are counted before."""
    folder = item(tmp_path / "item")
    (folder / "_METADATA").write_bytes(b'{"tree_metadata": {}, "x": [' + b"{}," * 2**22 + b"{}]}")
    assert refusal(folder) == "_METADATA: more than 4,194,304 keys and values"


def test_missing_arrays(tmp_path):
    folder = item(tmp_path / "item")
    (folder / "p.w" / ".zarray").unlink()
    assert refusal(folder) == "p.w/.zarray: missing"
