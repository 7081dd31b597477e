"""Checkpoints of Orbax: shapes, dtypes and shardings are read, and no arrays."""

import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from etils import epath
from orbax import checkpoint

from jax_array_info_core import load_tree
from jax_array_info_core.arrays.paths import SlashNotation
from jax_array_info_core.geometry.layouts.spec import as_spec
from jax_array_info_core.layouts import Spec
from tests.arrays import mesh_of, sharded
from tests.integrations.checkpoints.states import refusal, saved, state

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]


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
    assert refusal(root / "2").startswith("an Orbax checkpoint that is not completely written: ")


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


class Moments(NamedTuple):
    mu: object
    nu: object


def trees():
    mesh = mesh_of((4, 2), ("fsdp", "tensor"))
    reverse = jax.sharding.Mesh(np.array(jax.devices()[::-1]).reshape(2, 4), ("x", "y"))
    empty = {"a": {}, "b": [], "c": None, "d": (), "e": [{}, None, np.ones(3)]}
    numbers = {"i": 1, "f": 1.5, "np": np.float32(2), "array": np.zeros(()), "text": "x"}
    names = {"a.b": np.ones(1), "c d": np.ones(3), "é": np.ones(4), "x'y": np.ones(5), "q/r": np.ones(2)}
    names |= {"s/": np.ones(6), "t\\u": np.ones(7)}
    dtypes = ("int8", "uint16", ">i4", "float16", "float64", "complex64", "bool", "int4", "float8_e4m3fn")
    return {
        "state": state(),
        "empty": empty | {"x": np.ones(2)},
        "nothing": {"c": None},
        "numbers": numbers,
        "names": names,
        "dtypes": {name: np.zeros((2, 3), getattr(ml_dtypes, name, name)) for name in dtypes},
        "nested": (
            Moments(np.ones(2), (jnp.ones(3), [np.ones(4)])),
            {1: np.ones(1), 10: np.ones(3), 2: np.ones(2)},
        ),
        "reverse": {
            "x": sharded((8, 8), reverse, "x", "y"),
            "y": sharded((8, 8, 2), mesh, "fsdp", None, "tensor"),
        },
        "long": [np.ones(number) for number in range(1, 13)],
    }


def rows_of_orbax(folder):
    """Return what Orbax says of each array: path, shape, dtype, spec and devices of a mesh."""
    handler = checkpoint.PyTreeCheckpointHandler()
    found = handler.metadata(epath.Path(folder))
    entries, _ = jax.tree_util.tree_flatten_with_path(getattr(found, "tree", found))
    rows = {}
    for keys, value in entries:
        if hasattr(value, "shape") and not type(value).__name__.startswith("Scalar"):
            spec = getattr(value.sharding, "partition_spec", None)
            shape = None if spec is None else tuple(map(int, value.sharding.shape))
            path = SlashNotation().children([keys])[0][1:]
            plain = None if spec is None else as_spec(spec)
            rows[path] = (tuple(value.shape), str(value.dtype), plain, shape)
    return rows


@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize("ocdbt", [False, True])
@pytest.mark.parametrize("name", sorted(trees()))
def test_rows_are_those_of_orbax(tmp_path, name, ocdbt, zarr3):
    """Each format has the paths, shapes, dtypes and shardings that Orbax itself reads."""
    folder = saved(tmp_path / "item", trees()[name], use_ocdbt=ocdbt, use_zarr3=zarr3)
    report = load_tree(folder)
    rows = {}
    for row in report.rows:
        axes = None if row.mesh is None else report.meshes[row.mesh].axes
        rows[row.path] = (row.shape, row.dtype, row.spec, axes and axes.sizes)
    assert rows == rows_of_orbax(folder)
    assert report.others == {"state": 1, "empty": 2, "nothing": 1, "numbers": 4}.get(name, 0)
