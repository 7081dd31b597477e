"""Files of safetensors, and indices of several."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_array_info_core import load_tree
from tests.integrations.checkpoints.states import refusal

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]


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
