"""Values of checkpoints that are compared, by a program of their own."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from orbax import checkpoint
from safetensors.numpy import save_file

from jax_array_info import to_text
from jax_array_info_core import from_json, load_tree, to_json, tree_diff_report
from jax_array_info_core.changes.gates import diff_with_rules, parse_rule
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.stored import chunks
from tests.arrays import mesh_of, sharded
from tests.integrations.checkpoints.states import saved

pytestmark = [pytest.mark.oldest_and_newest, pytest.mark.needs_devices(8)]


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
