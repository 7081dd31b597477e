"""Small files that claim a lot are refused before they take memory."""

import json
import tracemalloc
from pathlib import Path

import pytest

from jax_array_info_core import load_tree
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.trees.stored.reading import LIMITS

pytestmark = pytest.mark.once_per_version


def on_a_mesh_of_its_own(number):
    mesh = {"axis_names": [f"x{number}"], "shape": {f"x{number}": 2**20}}
    return {"partition_spec": [None], "shape": [8], "mesh": mesh}


def report(**row):
    row = {"path": "w", "kind": "planned", "shape": [8], "dtype": "int8", **row}
    return {"report": "TreeReport", "schema_version": 3, "name": None, "type_name": "dict", "rows": [row]}


FILES = {
    "meshes": {str(number): on_a_mesh_of_its_own(number) for number in range(150)},
    "unconstrained": report(spec={"axes": [[]], "unconstrained": [2**29]}),
    "text as device ids": {
        "report": "ShardingLayout",
        "schema_version": 3,
        "shape": [],
        "device_ids": [*"ab" * 10**4, "x" * 10**5],
    },
    "a key of many keys": {"/" * 8 * 10**6: {"partition_spec": [], "shape": []}},
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_files_are_refused_before_they_take_memory(tmp_path, content):
    (tmp_path / "x.json").write_text(json.dumps(content))
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError) as caught:
            load_tree(tmp_path / "x.json")
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_the_limits_are_those_in_the_docs():
    page = Path(__file__).parents[4] / "docs" / "reference" / "observers-oath.md"
    table = page.read_text("utf-8").partition("#### Limits of files")[2].partition("#### ")[0]
    assert all(f"| {limit:,}" in table for limit in LIMITS.values())
