"""Tables of the leaves of trees."""

import math
from io import BytesIO, TextIOWrapper

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from jax_array_info import check_report, print_tree, tree_diff_report, tree_report
from jax_array_info.engine.render import render, to_text
from jax_array_info.export.formats import to_svg
from jax_array_info.layouts import MeshAxes, Spec
from jax_array_info.reports import TreeMesh, TreeRow
from jax_array_info.style import path_lines, wrapped
from jax_array_info_core.trees.rows import DeviceSet
from jax_array_info_core.trees.totals import tree_of_rows

pytestmark = pytest.mark.newest

MESH = TreeMesh(axes=MeshAxes(("data", "model", "one"), (4, 2, 1)), device_count=8, platform="cpu")
DEVICES = [DeviceSet(MESH, np.arange(8))]


def leaf(path, shape, *spec, shard=None, replicas=1, mesh=0, **fields):
    """Return a row of a float32 leaf, sharded by ``spec`` on the mesh with this index."""
    shard = shape if shard is None else shard
    facts = {
        "kind": "array",
        "dtype": "float32",
        "spec": Spec(tuple(() if entry is None else (entry,) for entry in spec)) if mesh == 0 else None,
        "sharding": "NamedSharding" if mesh == 0 else None,
        "nbytes": 4 * math.prod(shape),
        "shard_nbytes": 4 * math.prod(shard),
        "source": "array",
        **fields,
    }
    return TreeRow(path=path, shape=shape, shard_shape=shard, replicas=replicas, mesh=mesh, **facts)


def tree(*rows, devices=DEVICES, **fields):
    used = max((row.mesh + 1 for row in rows if row.mesh is not None), default=0)
    return tree_of_rows(rows, devices[:used], **fields)


def text_of(report, width=80, encoding="utf-8", **options):
    file = TextIOWrapper(BytesIO(), encoding)
    console = Console(file=file, width=width, color_system=None)
    console.print(render(report, width=width, **options), highlight=False, crop=False)
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def printed(report, width=80, encoding="utf-8", **options):
    return [line.rstrip() for line in text_of(report, width, encoding, **options).splitlines()]


def cells(report, width=200, **options):
    """Return the cells of a table's rows, without its title and heads."""
    lines = printed(report, width, **options)
    return [[cell.strip() for cell in line[1:-1].split("│")] for line in lines if line.startswith("│")]


LAYERS = [leaf(f"params/layers/{i}/mlp/w", (512, 512), "data", "model", shard=(128, 256)) for i in range(32)]


@pytest.mark.parametrize("width", [20, 30, 60, 80, 120, 200])
def test_paths_are_never_truncated_and_lines_fit_the_console(width):
    keys = [
        "params",
        "decoder",
        "post_self_attention_layer_norm",
        "'a key / with spaces'",
        "größe日本",
        "x" * 90,
    ]
    path = "/".join(keys)
    report = tree(leaf(path, (4, 4), "data", shard=(1, 4)), *LAYERS, name="n" * 300)
    for sort in ("tree", "waste"):
        text = text_of(report, width, sort=sort)
        assert max(map(cell_len, text.splitlines())) <= width
        path_cells = "".join(row[0] for row in cells(report, width, sort=sort))
        assert path.replace(" ", "") in path_cells.replace(" ", "")


def test_paths_wrap_after_a_slash():
    assert path_lines("params/layers/0-31/mlp/w", 14) == ["params/layers/", "  0-31/mlp/w"]
    assert path_lines("a/" + "x" * 21, 10) == ["a/", "  " + "x" * 8, "  " + "x" * 8, "  " + "x" * 5]
    assert path_lines("abc/def", 4) == ["abc/", "def"], "too narrow for an indent"
    assert path_lines("", 8) == [""]


@settings(max_examples=50)
@given(st.text("ab/日\u0301", max_size=40), st.integers(2, 20))
def test_the_lines_of_a_path_are_the_whole_path(path, width):
    first, *others = path_lines(path, width)
    assert first + "".join(line.lstrip() for line in others) == path
    assert max(map(cell_len, [first, *others])) <= width


def test_arguments_are_checked_before_anything_is_printed(capsys):
    for options in ({"depth": 0}, {"sort": "size"}, {"max_rows": -1}):
        with pytest.raises(ValueError, match=rf"^{next(iter(options))} must be"):
            print_tree({"w": np.zeros(3)}, **options)
    assert capsys.readouterr() == ("", "")


def test_print_tree_prints_the_table_in_the_width_of_the_console(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    print_tree({"w": np.zeros(3, np.float32)}, "batch")
    out = capsys.readouterr().out
    assert out.startswith("0.0 B on 1 device\n")
    assert "batch: dict" in out
    assert "│   on the host: 12.0 B │            │" in out


def test_inside_jit_the_table_is_printed_once_when_every_leaf_is_known(capsys):
    def step(tree):
        print_tree(tree, "batch")
        return tree

    jax.jit(step)({"b": jnp.zeros(4), "w": jnp.zeros((4, 4))})
    out = capsys.readouterr().out
    assert out.count("batch: dict") == 1
    assert "unknown" not in out
    assert out.count("compiler") == 2


@pytest.mark.parametrize("key", ["a", "0/", "a/0_", "é", "['x']"])
def test_a_path_of_any_length_is_clipped_before_it_is_laid_out(key):
    path = key * (80_000 // len(key))
    report = tree_report({path: np.zeros(4), f"{path}1": np.zeros(8)})
    for shown in (report, tree_diff_report(tree_report({path: np.zeros(8)}), report), check_report(report)):
        assert len(to_text(shown, width=80)) < 30_000
        assert len(to_svg(shown, width=80)) < 200_000


def test_a_label_of_any_length_is_clipped_before_it_is_wrapped():
    assert sum(map(len, wrapped("a b " * 20_000, 10))) < 2_000
