"""Checkpoints of Orbax and safetensors: shapes, dtypes and shardings are read, and no arrays."""

import contextlib
import inspect
import json
import os
import shutil
import struct
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorstore
from etils import epath
from orbax import checkpoint
from safetensors.numpy import save_file

from jax_array_info import to_text
from jax_array_info_core import from_json, load_tree, to_json, tree_diff_report
from jax_array_info_core.arrays.paths import SlashNotation
from jax_array_info_core.changes.gates import diff_with_rules, parse_rule
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.layouts import Spec
from jax_array_info_core.layouts.partition_specs import as_spec
from jax_array_info_core.stored import chunks
from jax_array_info_core.stored import orbax as orbax_files
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


@pytest.mark.parametrize("damaged", ["_METADATA", "_sharding", "manifest.ocdbt"])
def test_damaged_checkpoints(manager, tmp_path, damaged, capfd):
    """The error is one line, and nothing is written to stderr."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    (item / damaged).write_text("[" * 100_000)
    begin = "tensorstore cannot read it: " if damaged == "manifest.ocdbt" else f"{damaged}: "
    assert refusal(item).startswith(begin)
    (item / damaged).unlink()
    if damaged == "_sharding":
        assert load_tree(item).meshes == ()
    elif damaged == "manifest.ocdbt":
        assert refusal(item).endswith(": missing")
    else:
        refusal(item)
    assert capfd.readouterr().err == ""


def node_of(item):
    """Return the file with the nodes of the database."""
    (path,) = (item / "d").iterdir()
    return path


@pytest.mark.parametrize("part", ["manifest", "node", "folder"])
@pytest.mark.parametrize("kind", ["pipe", "device", "log of the kernel"])
def test_files_of_a_database_that_could_wait_are_refused(manager, tmp_path, part, kind):
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    path = {"manifest": item / "manifest.ocdbt", "node": node_of(item), "folder": item / "d"}[part]
    path.rename(tmp_path / "moved")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/proc/kmsg")
    expected = "a device, a pipe or a link, not a regular file"
    assert refusal(item) == f"{path.relative_to(item)}: {expected}"


def test_links_to_regular_files_are_followed(manager, tmp_path):
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    path = node_of(item)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert len(load_tree(item).rows) == 6


def test_large_files_of_a_database(manager, tmp_path):
    """A manifest with holes takes no memory, nor does a node."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    os.truncate(node_of(item), 2**33)
    assert len(load_tree(item).rows) == 6
    os.truncate(item / "manifest.ocdbt", 2**33)
    assert refusal(item).startswith("manifest.ocdbt: 8,589,93")


def test_reading_a_database_ends_in_time(manager, tmp_path, monkeypatch):
    """Even if a file becomes a pipe after it was checked."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    path = node_of(item)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(orbax_files, "_require_regular", lambda directory: None)
    monkeypatch.setattr(orbax_files, "_SECONDS", 1)
    assert refusal(item) == "reading it takes longer than 1 seconds"


def test_a_crash_of_the_library_is_an_error(manager, tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text("import os; os.abort()")
    monkeypatch.setattr(orbax_files.ocdbt, "__file__", str(program))
    assert refusal(manager / "1" / "default") == "tensorstore cannot read it: it crashed"


def test_nodes_that_take_much_memory(manager, tmp_path):
    """Of a database with nodes of up to 4 GiB in a small file, none is read."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    shutil.rmtree(item / "d")
    (item / "manifest.ocdbt").unlink()
    config = {"max_decoded_node_bytes": 2**32 - 1}
    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{item}/"}, "config": config}
    tensorstore.KvStore.open(spec).result().write("x", b"").result()
    assert refusal(item) == "nodes of 4,294,967,295 bytes exceed the limit of 134,217,728"


def test_databases_with_changed_bytes(manager, tmp_path, capfd):
    """Checksums find each change: the rows are those of the checkpoint, or there are none."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    rows = load_tree(item).rows
    random = np.random.default_rng(0)
    for path in [item / "manifest.ocdbt", node_of(item)] * 10:
        data = path.read_bytes()
        changed = bytearray(data)
        changed[random.integers(len(data))] ^= 1 << random.integers(8)
        path.write_bytes(changed[: random.choice([len(data), random.integers(len(data))])])
        with contextlib.suppress(FileFormatError):
            assert load_tree(item).rows == rows
        path.write_bytes(data)
    assert capfd.readouterr().err == ""


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
import threading

from jax_array_info import to_text
from jax_array_info_core import from_json, load_tree, to_json, tree_diff_report

hook, found = sys.unraisablehook, []
threads = [threading.Thread(target=lambda: found.append(load_tree(sys.argv[1]))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print([(report.device_count, len(report.rows)) for report in found])
print(sys.unraisablehook is hook, sorted({"jax", "orbax"} & set(sys.modules)))
"""


@pytest.mark.own_process
@pytest.mark.newest
def test_a_checkpoint_is_read_without_jax(manager):
    """Threads that read it change neither JAX's configuration nor hooks of the process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(manager)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([(8, 6)] * 4), "True []"]


def saved(folder, tree, **options):
    known = inspect.signature(checkpoint.PyTreeCheckpointHandler).parameters
    options = {name: value for name, value in options.items() if name in known}
    with checkpoint.Checkpointer(checkpoint.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(folder, args=checkpoint.args.PyTreeSave(tree))
    return folder


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
        (b"", "an empty file"),
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
            "w: F32[-1] cannot be in the bytes 0 to 4 of 0",
        ),
        (
            header({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}) + b"1234",
            "w: F32[2] cannot be in the bytes 0 to 4 of 4",
        ),
        (
            header(
                b'{"w":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"I8","shape":[2],"data_offsets":[4,6]}}'
            ),
            "w: I8[2] cannot be in the bytes 4 to 6 of 0",
        ),
        (
            header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}) + b"12345",
            "not a valid safetensors file: the arrays take 4 of 5 bytes",
        ),
        (
            header({"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}) + b"1234",
            "w: Expected `int`, got `bool`",
        ),
        (
            header({"w": {"dtype": "\x1b", "shape": [1], "data_offsets": [0, 4]}}),
            "w: the dtype \\x1b is not known",
        ),
    ],
    ids=["empty", "random", "2^60", "deep", "negative", "bytes", "twice", "more", "bool", "dtype"],
)
def test_safetensors_that_are_refused(tmp_path, content, problem):
    (tmp_path / "x.safetensors").write_bytes(content)
    assert refusal(tmp_path / "x.safetensors").startswith(problem)


@pytest.mark.parametrize("options", [{}, {"use_ocdbt": False}, {"use_ocdbt": False, "use_zarr3": True}])
def test_values_are_compared_across_formats(tmp_path, options):
    """An Orbax checkpoint has the values of a safetensors file, and one element that differs is found."""
    mesh = mesh_of((4, 2), ("fsdp", "tensor"))
    tree = {"w": sharded((16, 8), mesh, "fsdp", "tensor"), "b": jnp.ones(3, jnp.bfloat16), "s": jnp.ones(())}
    with checkpoint.Checkpointer(checkpoint.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(tmp_path / "orbax", tree)
    arrays = {name: np.array(value) for name, value in tree.items()}
    save_file(arrays, tmp_path / "same.safetensors")
    arrays["w"][9, 3] += 2
    save_file(arrays, tmp_path / "new.safetensors")
    paths = [tmp_path / name for name in ("orbax", "same.safetensors", "new.safetensors")]
    same, other = (tree_diff_report(paths[0], path, values=True).values for path in paths[1:])
    assert (same.count, same.leaves) == (3, ())
    [leaf] = other.leaves
    assert (leaf.path, leaf.differing_count, leaf.largest_difference, leaf.index) == ("w", 1, 2, (9, 3))


def compared(*paths):
    return tree_diff_report(*paths, values=True)


def test_values_of_the_shards_of_an_index_are_compared(tmp_path):
    """Each leaf is read from the shard that the index names, at its place there."""
    arrays = {name: np.arange(3) + start for start, name in enumerate("abc")}
    save_file({"b": arrays["b"]}, tmp_path / "1.safetensors")
    save_file({"a": arrays["a"], "c": arrays["c"]}, tmp_path / "2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    shards = {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}
    index.write_text(json.dumps({"weight_map": shards}))
    save_file(arrays, tmp_path / "whole.safetensors")
    assert compared(index, tmp_path / "whole.safetensors").values.leaves == ()
    save_file({**arrays, "c": np.array([2, 3, 9])}, tmp_path / "other.safetensors")
    [leaf] = compared(index, tmp_path / "other.safetensors").values.leaves
    assert (leaf.path, leaf.differing_count, leaf.largest_difference, leaf.index) == ("c", 1, 5, (2,))


def test_a_leaf_in_large_chunks_is_unknown_and_the_others_are_compared(tmp_path):
    """It is not decompressed, so it is neither equal nor different. The report names the way out."""
    item = saved(tmp_path / "item", {"a": np.ones(3), "w": np.ones(3, "float32")}, use_ocdbt=False)
    array = json.loads((item / "w" / ".zarray").read_text())
    (item / "w" / ".zarray").write_text(json.dumps({**array, "shape": [2**27], "chunks": [2**27]}))
    diff = compared(item, item)
    [leaf] = diff.values.leaves
    assert (leaf.path, leaf.differing_count, diff.values.count) == ("w", None, 2)
    problem = (
        "a chunk of 536,870,912 bytes exceeds the limit of 201,326,592: save with a smaller chunk_byte_size"
    )
    assert leaf.problem == f"{item}: {problem}"
    assert (diff.values.differing, diff.values.unread, diff.is_empty) == ((), (leaf,), False)
    assert from_json(to_json(diff)) == diff
    text = " ".join(to_text(diff).split())
    assert text.startswith(f"values equal in 1 of 2 leaves, not read in 1 ({item}: a chunk of")
    assert "│ w │ not read │" in text
    [rule] = diff_with_rules(load_tree(item), load_tree(item), [parse_rule("values")], diff.values).rules
    assert (rule.passed, rule.fact) == (False, "values: w (not read)")


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("os.abort()", "tensorstore cannot read it: it crashed"),
        (
            'sys.stdin.readline(); print(\'{"nbytes": 9, "dtype": "int64"}\\n1\')',
            "tensorstore cannot read it: it crashed",
        ),
        ("time.sleep(60)", "reading it takes longer than 1 seconds"),
    ],
    ids=["crash", "crash while it answers", "waits"],
)
def test_a_program_that_reads_no_values_is_one_error(tmp_path, monkeypatch, program, problem):
    item = saved(tmp_path / "item", {"w": np.ones(3)}, use_ocdbt=False)
    (tmp_path / "program.py").write_text(f"import os, sys, time; {program}")
    monkeypatch.setattr(chunks.ocdbt, "__file__", str(tmp_path / "program.py"))
    monkeypatch.setattr(chunks, "_SECONDS", 1)
    with pytest.raises(FileFormatError) as caught:
        compared(item, item)
    assert str(caught.value) == f"{item}: {problem}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"shape": [4]}, "tensorstore cannot read it: the shape is now (4,)"),
        ({"dtype": "<i8"}, "the dtype was float64, and is now int64"),
        (None, "tensorstore cannot read it: "),
    ],
    ids=["shape", "dtype", "chunk"],
)
def test_an_array_that_is_changed_while_it_is_read_is_one_error(tmp_path, monkeypatch, change, problem):
    """Its metadata are read first, and its elements later."""
    item = saved(tmp_path / "item", {"w": np.ones(3)}, use_ocdbt=False)
    if change is None:
        (item / "w" / "0").write_bytes(b"damaged")
    else:
        read = chunks.Chunked.order

        def changed(self):
            file = item / "w" / ".zarray"
            file.write_text(json.dumps(json.loads(file.read_text()) | change))
            return read(self)

        monkeypatch.setattr(chunks.Chunked, "order", changed)
    with pytest.raises(FileFormatError) as caught:
        compared(item, item)
    assert str(caught.value).startswith(f"{item}: {problem}")
