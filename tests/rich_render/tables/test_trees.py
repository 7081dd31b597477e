"""Tables of the leaves of trees."""

import dataclasses
import math
import re
from io import BytesIO, TextIOWrapper

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from jax_array_info import print_tree
from jax_array_info.engine.render import render
from jax_array_info.layouts import MeshAxes, Spec, uneven_axes
from jax_array_info.pictures.fitting import path_lines
from jax_array_info.reports import LeafStatistics, TreeMesh, TreeRow
from jax_array_info_core.reports import array as unknown_reasons
from jax_array_info_core.trees.rows import DeviceSet
from jax_array_info_core.trees.totals import tree_of_rows

pytestmark = pytest.mark.oldest_and_newest

MESH = TreeMesh(axes=MeshAxes(("data", "model", "one"), (4, 2, 1)), device_count=8, platform="cpu")
ONE_DEVICE = TreeMesh(axes=None, device_count=1, platform="cpu", devices=(5,))
OTHER_MESH = TreeMesh(axes=MeshAxes(("stage",), (4,)), device_count=4, process_count=2)
DEVICES = [
    DeviceSet(MESH, np.arange(8)),
    DeviceSet(ONE_DEVICE, np.arange(1)),
    DeviceSet(OTHER_MESH, np.arange(8, 12)),
]


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
EMBED = leaf("params/embed", (1024, 512), replicas=8, avoidable_nbytes=1835008)


def test_in_narrow_consoles_other_columns_give_way_to_the_paths():
    report = tree(*LAYERS, EMBED)
    assert printed(report, 80)[3:11] == [
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓",
        "┃ path                     ┃ array              ┃ per device ┃ replicated over ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩",
        "│ params/layers/0-31/mlp/  │ float32[512,512]   │    4.0 MiB │                 │",
        "│   w ×32                  │ P('data', 'model') │            │                 │",
        "│ params/embed             │ float32[1024,512]  │    2.0 MiB │ data, model (8) │",
        "│                          │ P()                │            │                 │",
        "└──────────────────────────┴────────────────────┴────────────┴─────────────────┘",
    ]
    assert printed(report, 40)[4:15] == [
        "                  dict",
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓",
        "┃ path                    ┃ per device ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩",
        "│ params/layers/0-31/mlp/ │    4.0 MiB │",
        "│   w ×32                 │            │",
        "│   float32[512,512],     │            │",
        "│   P('data', 'model')    │            │",
        "│ params/embed            │    2.0 MiB │",
        "│   float32[1024,512],    │            │",
        "│   P(), replicated over  │            │",
    ]
    assert cells(report, 200)[1][-1] == "1.8 MiB", "a wide console also shows the avoidable bytes"


def test_specs_and_bytes_per_device_keep_their_columns_longest():
    long = leaf(
        "params/decoder/self_attention/query/kernel", (4096, 4096), "data", replicas=2, shard=(1024, 4096)
    )
    replicated = leaf("params/embed", (1024, 512), replicas=8)
    assert printed(tree(long, replicated), 68)[2:13] == [
        "                                dict",
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━┓",
        "┃ path                                   ┃ spec       ┃ per device ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━┩",
        "│ params/decoder/self_attention/query/   │ P('data',) │   16.0 MiB │",
        "│   kernel                               │            │            │",
        "│   float32[4096,4096], replicated over  │            │            │",
        "│   model (2 replicas)                   │            │            │",
        "│ params/embed                           │ P()        │    2.0 MiB │",
        "│   float32[1024,512], replicated over   │            │            │",
        "│   data, model (8 replicas)             │            │            │",
    ]


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


def test_what_is_unusual_about_a_leaf_is_below_its_path():
    uneven = leaf(
        "uneven", (17, 16), "data", shard=(5, 16), uneven=uneven_axes((17, 16), {"data": 8}, ("data",))
    )
    rows = [
        (uneven, ["axis 0, 17 % 8 = 1: padded to 24"]),
        (leaf("looks sharded", (64, 64), "one", replicas=8), ["P('one',): mesh axis of size 1"]),
        (leaf("gone", (64,), is_deleted=True, nbytes=None, shard_nbytes=None), ["deleted"]),
        (leaf("host", (64,), is_in_host_memory=True, memory_kind="pinned_host"), ["in pinned_host"]),
        (leaf("numpy", (64,), mesh=None, kind="numpy"), ["on the host: 256.0 B"]),
        (leaf("dataset", (64,), mesh=None, kind="array-like"), ["not in device memory: 256.0 B"]),
        (leaf("weak", (), weak_type=True), ["weakly typed"]),
        (leaf("keys", (2,), dtype="key<fry>"), ["PRNG keys"]),
        (leaf("head", (64,), same_as="weak"), ["same as weak"]),
        (leaf("stage", (64,), mesh=2), ["on mesh 3"]),
        (leaf("one device", (64,), mesh=1), ["on CPU 5"]),
    ]
    shown = [row[0] for row in cells(tree(*(row for row, _ in rows)), max_rows=None)]
    for row, notes in rows:
        place = shown.index(row.path)
        assert shown[place + 1 : place + 1 + len(notes)] == notes
    assert shown[shown.index("weak") + 2] == "same as head"


def test_the_spec_is_shown_without_mesh_axes_of_size_1():
    for axes in ((("one",), ("data",), (), ()), ((), ("data", "one"), (), ())):
        [row] = cells(tree(leaf("w", (1, 64, 32, 128), shard=(1, 16, 32, 128), replicas=2, spec=Spec(axes))))
        assert row[3] == "P(None, 'data')"
    open_spec = Spec((("data",), ()), unconstrained=(1,))
    [row] = cells(tree(leaf("w", (64, 64), shard=(16, 64), replicas=2, spec=open_spec)))
    assert row[3] == "P('data', UNCONSTRAINED)"


def test_several_meshes_are_named_with_their_leaves():
    report = tree(
        leaf("a", (8,), "data"), leaf("b", (8,), "data"), leaf("c", (8,), mesh=1), leaf("d", (8,), mesh=2)
    )
    assert printed(report)[-3:] == [
        "mesh 1: data=4, model=2, one=1, 8 CPU devices, 2 leaves, unless noted",
        "CPU 5: 1 device, 1 leaf",
        "mesh 3: stage=4, 4 devices of 2 processes, 1 leaf",
    ]
    assert [row[-1] for row in cells(tree(*report.rows), depth=1)].count("") < 4


def test_mesh_axes_of_size_1_are_listed_last():
    axes = MeshAxes(("stage", "fsdp", "expert"), (1, 16, 1))
    devices = [DeviceSet(TreeMesh(axes=axes, device_count=16), None)]
    report = tree(leaf("w", (32,), "fsdp", shard=(2,)), devices=devices)
    assert printed(report)[-1] == "mesh: fsdp=16 (of size 1: stage, expert), 16 devices"


def test_bytes_in_host_memory_are_apart():
    report = tree(
        leaf("a/w", (64,), "data", shard=(16,), replicas=2),
        leaf("a/host", (64,), is_in_host_memory=True, memory_kind="pinned_host", replicas=8),
        leaf("a/numpy", (256,), mesh=None, kind="numpy"),
        leaf("a/traced", (64,), mesh=None, kind="tracer", shard_nbytes=None, source="unknown"),
        leaf("a/gone", (64,), is_deleted=True, nbytes=None, shard_nbytes=None),
    )
    assert [row[-1] for row in cells(report, depth=1)] == ["64.0 B", "+ 256.0 B host", "", ""]
    assert [row[0] for row in cells(report, depth=1)] == [
        "a",
        "on the host: 1.0 KiB",
        "1 deleted",
        "1 leaf of unknown size",
    ]
    lines = printed(report)
    assert " ".join(lines).startswith(
        "per device 64.0 B and 256.0 B in pinned_host; evenly sharded 32.0 B; replication costs 32.0 B"
    )
    for line in (
        "on the host: 1.0 KiB, not included above",
        "deleted: 1 leaf",
        "not counted: 1 leaf of unknown size per device",
    ):
        assert line in lines


def test_a_sum_over_several_device_sets_is_an_upper_bound():
    report = tree(leaf("a/0", (8,), "data"), leaf("a/1", (64,), mesh=2))
    assert cells(report, depth=1)[0][-1] == "≤ 288.0 B"
    assert "<= 288.0 B" in text_of(report, depth=1, encoding="ascii")


def test_each_row_of_a_traced_tree_has_its_source():
    removed = {"shard_nbytes": None, "unknown_because": unknown_reasons.REMOVED}
    report = tree(
        leaf("a", (8,), "data", kind="tracer", source="type"),
        leaf("b", (8,), "data", kind="tracer", source="compiler"),
        leaf("c", (8,), mesh=None, kind="tracer", source="unknown", **removed),
    )
    assert [(row[0], row[4]) for row in cells(report)] == [
        ("a", "type"),
        ("b", "compiler"),
        ("c", "unknown"),
        ("sharding unknown: XLA removed the value", ""),
    ]
    assert cells(report)[2][5] == "?"
    assert "source: compiler" in text_of(report, 60)


def test_leaves_without_a_sharding_show_none():
    abstract = {"mesh": None, "kind": "abstract", "source": "unknown"}
    assert cells(tree(leaf("w", (8,), **abstract))) == [["w", "float32[8]", "32.0 B"]]
    assert cells(tree(leaf("v", (8,), "data"), leaf("w", (8,), **abstract)))[1][3] == "no sharding"
    logical = Spec((("embed",), ("mlp",)))
    [row] = cells(tree(leaf("w", (8, 8), **abstract, logical=logical)))
    assert row[2] == "logical P('embed', 'mlp')"


STATISTICS = LeafStatistics(
    mean=1.2345678e-5, std=0.5, least=-1.0, greatest=2.5, zeros=3, nans=0, infinities=0
)


def test_statistics_have_columns_and_leaves_that_are_not_finite_stand_out():
    broken = dataclasses.replace(
        STATISTICS, mean=None, std=None, least=None, greatest=None, nans=2000, infinities=1
    )
    report = tree(
        leaf("a", (8,), "data", statistics=STATISTICS),
        leaf("b", (8,), "data", statistics=broken),
        leaf("c", (8,), mesh=None, kind="abstract"),
    )
    heads = printed(report, 200)[3].split("┃")
    assert [head.strip() for head in heads][5:10] == ["mean", "std", "least", "greatest", "zeros"]
    assert [row[4:9] for row in cells(report)] == [
        ["1.235e-05", "0.5", "-1", "2.5", "3"],
        ["", "", "", "", "3"],
        [""] * 5,
        [""] * 5,
    ]
    assert [row[0] for row in cells(report)][1:3] == ["b", "2,000 NaN, 1 infinite"]
    assert [row[0] for row in cells(report, sort="nan")][:2] == ["b", "2,000 NaN, 1 infinite"]
    assert "  mean 1.235e-05, std 0.5," in text_of(report, 60)


def test_waste_shows_the_avoidable_bytes_at_any_width():
    report = tree(*LAYERS, EMBED)
    for width in (60, 80, 200):
        assert cells(report, width, sort="waste")[0][0] == "params/embed"
        assert cells(report, width, sort="waste")[0][-1] == "1.8 MiB"
    assert re.search(r"│ +1\.8 MiB would be │\n.*│ +saved │", text_of(report, 46, sort="waste"))


def test_a_depth_sums_prefixes_and_max_rows_the_rest():
    report = tree(*LAYERS, EMBED, leaf("step", (), replicas=8))
    assert cells(report, depth=2) == [
        ["params/layers", "32 leaves", "", "", "4.0 MiB", "", ""],
        ["params/embed", "float32[1024,512]", "[1024,512]", "P()", "2.0 MiB", "data, model (8)", "1.8 MiB"],
        ["step", "float32[]", "[]", "P()", "4.0 B", "data, model (8)", ""],
    ]
    assert cells(report, max_rows=1)[-1] == ["2 more leaves", "", "", "", "2.0 MiB", "1.8 MiB"]
    assert cells(report, max_rows=0) == [], "a table without rows is left out"


def test_a_tree_without_arrays_has_totals_only():
    assert printed(tree(type_name="State", others=2)) == [
        "the tree has no arrays",
        "State",
        "global size 0.0 B, 0 leaves, 0 elements; not arrays: 2 leaves",
    ]
    [row] = cells(tree(leaf("", (8,)), devices=DEVICES[1:]))
    assert row == ["(root)", "float32[8]", "32.0 B"]


def test_none_shows_every_row():
    rows = [leaf(f"{chr(97 + i % 26)}{'b' * (i // 26)}", (i + 1,), "data") for i in range(1000)]
    assert len(cells(tree(*rows), max_rows=None)) == 1000


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
