"""Checkpoints of Orbax and safetensors: shapes, dtypes and shardings are read, and no arrays."""

import json
import os
import shutil
import struct
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from orbax import checkpoint
from safetensors.numpy import save_file

from jax_array_info_core import FileFormatError, Spec, load_tree
from tests.arrays import mesh_of, sharded

pytestmark = [pytest.mark.oldest_and_newest, pytest.mark.needs_devices(8)]


def state():
    mesh = mesh_of((4, 2), ("fsdp", "tensor"))
    layers = [
        {"w": sharded((16, 8), mesh, "fsdp", "tensor"), "b": sharded((8,), mesh, None).astype(jnp.bfloat16)},
        {"w": sharded((16, 8), mesh, ("fsdp", "tensor")), "b": sharded((8,), mesh)},
    ]
    return {
        "params": {"layers": layers, "a/b": sharded((4,), mesh, "fsdp")},
        "on one device": jax.device_put(jnp.ones(3), jax.devices()[5]),
        "step": 7,
    }


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    """A manager of three steps with one item."""
    root = tmp_path_factory.mktemp("checkpoints")
    tree = state()
    with checkpoint.CheckpointManager(root) as saver:
        for step in (1, 2, 10):
            saver.save(step, args=checkpoint.args.StandardSave(tree))
    return root


def refusal(path, **options):
    with pytest.raises(FileFormatError) as caught:
        load_tree(path, **options)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_checkpoint_has_the_shardings_of_the_arrays(manager):
    """Each row has the shape, dtype and spec that the array had; a Python number is not an array."""
    report = load_tree(manager / "10" / "default")
    rows = {row.path: row for row in report.rows}
    assert sorted(rows) == [
        "on one device",
        "params/'a/b'",
        "params/layers/0/b",
        "params/layers/0/w",
        "params/layers/1/b",
        "params/layers/1/w",
    ]
    first, second = rows["params/layers/0/w"], rows["params/layers/1/w"]
    assert (first.spec, first.shard_shape, first.shard_nbytes) == (Spec((("fsdp",), ("tensor",))), (4, 4), 64)
    assert (second.spec, second.shard_shape) == (Spec((("fsdp", "tensor"),)), (2, 8))
    assert (rows["params/layers/0/b"].dtype, rows["params/layers/0/b"].replicas) == ("bfloat16", 8)
    assert report.meshes[first.mesh].axes.shape == {"fsdp": 4, "tensor": 2}
    assert report.meshes[rows["on one device"].mesh].axes is None
    assert (report.others, report.parameters, report.device_count) == (1, 276, 8)
    assert report.fullest_device_nbytes == 64 + 64 + 16 + 32 + 4 + 12
    assert report.emptiest_device_nbytes == report.fullest_device_nbytes - 12


def test_a_manager_is_read_at_its_newest_step(manager):
    """The step is named, and 10 is newer than 2."""
    newest = load_tree(manager)
    assert newest.name == f"{manager}, step 10"
    for folder in (manager / "10", manager / "10" / "default"):
        report = load_tree(folder)
        assert report.name == str(folder)
        assert report.rows == newest.rows


def test_steps_that_were_not_finished_are_skipped(manager, tmp_path):
    """A temporary directory and a step without a commit do not count."""
    root = tmp_path / "copy"
    shutil.copytree(manager, root)
    (root / "10").rename(root / "10.orbax-checkpoint-tmp-3")
    (root / "2" / "commit_success.txt").unlink(missing_ok=True)
    (root / "2" / "_CHECKPOINT_METADATA").write_text('{"commit_timestamp_nsecs": null}')
    assert load_tree(root).name == f"{root}, step 1"
    assert refusal(root / "2") == "an Orbax checkpoint that was not completely written"


def test_items_of_a_step(tmp_path):
    """Of several items with arrays, one has to be chosen; the error names them."""
    mesh = mesh_of((8,), ("x",))
    with checkpoint.CheckpointManager(tmp_path) as saver:
        items = checkpoint.args.Composite(
            state=checkpoint.args.StandardSave({"w": sharded((16,), mesh, "x")}),
            ema=checkpoint.args.PyTreeSave({"w": sharded((16,), mesh)}),
            config=checkpoint.args.JsonSave({"lr": 1}),
        )
        saver.save(3, args=items)
    assert refusal(tmp_path).startswith("step 3 has the items 'ema', 'state': choose one with item='ema'")
    assert refusal(tmp_path, item="config") == (
        "step 3 has no item 'config' with arrays: it has 'ema', 'state'"
    )
    for item, replicas in (("state", 1), ("ema", 8)):
        report = load_tree(tmp_path, item=item)
        assert report.name == f"{tmp_path}, step 3, item {item}"
        assert [row.replicas for row in report.rows] == [replicas]


@pytest.mark.parametrize("damaged", ["_METADATA", "_sharding", "manifest.ocdbt"])
def test_damaged_checkpoints(manager, tmp_path, damaged, capfd):
    """Orbax's error becomes one line, without a traceback on stderr."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    (item / damaged).write_text("[" * 100_000)
    assert refusal(item).startswith("orbax-checkpoint cannot read it: ")
    (item / damaged).unlink()
    if damaged == "_sharding":
        assert load_tree(item).meshes == ()
    else:
        refusal(item)
    assert "Traceback" not in capfd.readouterr().err


def test_damaged_shardings(manager, tmp_path):
    """A mesh of 10⁹ devices takes no memory."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    text = {"sharding_type": "NamedSharding", "axis_names": ["x"], "partition_spec": []}
    known = json.loads((item / "_sharding").read_text())
    for shape, problem in (([10**9], "1000000000 devices exceed"), ([-1], "mesh axis 'x' has no devices")):
        sharding = json.dumps({**text, "shape": shape})
        (item / "_sharding").write_text(json.dumps(dict.fromkeys(known, sharding)))
        assert problem in refusal(item)


PROGRAM = """
import sys

import jax
from jax_array_info_core import load_tree
from jax_array_info_core.compat import has_backends
from jax_array_info_core.compat.platforms import only_cpu

report = load_tree(sys.argv[1])
print(report.device_count, len(report.rows), has_backends(), jax.config.jax_platforms)
with only_cpu():
    print(jax.config.jax_platforms, jax.device_count())
print(has_backends(), jax.config.jax_platforms)
"""


@pytest.mark.own_process
@pytest.mark.newest
def test_a_checkpoint_of_8_devices_is_read_on_1(manager):
    """JAX stays on the CPU meanwhile, and can start on any platform afterwards."""
    env = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu,nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(manager)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "8 6 False cpu,nonexistent",
        "cpu 1",
        "False cpu,nonexistent",
    ]


def test_safetensors(tmp_path):
    """Names are divided at dots; the shapes and dtypes are those of the header."""
    arrays = {
        "layers.0.w": np.zeros((4, 3), ml_dtypes.bfloat16),
        "layers.0.b": np.zeros(3, "float16"),
        "mask": np.zeros((2, 0), "bool"),
    }
    save_file(arrays, tmp_path / "model.safetensors")
    report = load_tree(tmp_path / "model.safetensors")
    assert {row.path: (row.shape, row.dtype, row.nbytes) for row in report.rows} == {
        "layers/0/w": ((4, 3), "bfloat16", 24),
        "layers/0/b": ((3,), "float16", 6),
        "mask": ((2, 0), "bool", 0),
    }
    assert (report.nbytes, report.type_name) == (30, "safetensors")


def test_index_of_safetensors(tmp_path):
    """The shards are next to the index, whose order the leaves have."""
    save_file({"b": np.zeros(2, "int8")}, tmp_path / "1.safetensors")
    save_file({"a": np.zeros(3, "int8"), "c": np.zeros(4, "int8")}, tmp_path / "2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    shards = {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 9}, "weight_map": shards}))
    assert [(row.path, row.nbytes) for row in load_tree(index).rows] == [("a", 3), ("b", 2), ("c", 4)]
    index.write_text(json.dumps({"weight_map": {**shards, "d": "2.safetensors"}}))
    assert refusal(index) == "the shard 2.safetensors: has no array 'd', which the index lists"
    index.write_text(json.dumps({"weight_map": {**shards, "d": "3.safetensors"}}))
    assert refusal(index) == "the shard 3.safetensors is missing in the folder of the index"
    (tmp_path / "1.safetensors").write_bytes(b"damaged")
    index.write_text(json.dumps({"weight_map": shards}))
    assert refusal(index) == "the shard 1.safetensors: not a safetensors file: it has only 7 bytes"


def header(fields, length=None):
    text = json.dumps(fields).encode() if not isinstance(fields, bytes) else fields
    return struct.pack("<Q", len(text) if length is None else length) + text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a safetensors file: it has only 0 bytes"),
        (
            bytes(range(1, 200)),
            "not a valid safetensors file: the header would take 578,437,695,752,307,201 of 199",
        ),
        (
            header({}, 2**60),
            "not a valid safetensors file: the header would take 1,152,921,504,606,846,976 of 10",
        ),
        (header(b"[" * 200_000), "not a valid safetensors file: "),
        (
            header({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
            "not a valid safetensors file: ",
        ),
        (
            header({"w": {"dtype": "\x1b", "shape": [1], "data_offsets": [0, 4]}}),
            "not a valid safetensors file: ",
        ),
    ],
    ids=["empty", "random", "2^60", "deep", "negative", "dtype"],
)
def test_safetensors_that_are_refused(tmp_path, content, problem):
    (tmp_path / "x.safetensors").write_bytes(content)
    assert refusal(tmp_path / "x.safetensors").startswith(problem)
