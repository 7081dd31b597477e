"""Sharding dumps of MaxText, counted in elements: as int8, an element is a byte."""

import pytest

from jax_array_info_core import load_tree, tree_report
from jax_array_info_core.layouts import MeshAxes, Spec
from jax_array_info_core.trees.stored.array_files import keys_of
from tests.maxtext import DUMPS, flax_rules, mesh_of_dump, write_dump

pytestmark = pytest.mark.newest

QWEN, DEEPSEEK, EXPERT = DUMPS


@pytest.mark.parametrize(
    ("name", "leaves", "replicated", "parameters", "elements", "fullest", "avoidable", "in_leaves"),
    [
        (QWEN, 42, 18, 596_049_920, 1_788_149_763, 111_943_683, 184_320, 15),
        (DEEPSEEK, 84, 24, 15_706_484_224, 47_119_452_675, 2_945_321_475, 355_680, 21),
        (EXPERT, 84, 24, 15_706_484_224, 47_119_452_675, 3_191_228_931, 246_263_136, 72),
    ],
)
def test_totals_of_a_dump(
    tmp_path, name, leaves, replicated, parameters, elements, fullest, avoidable, in_leaves
):
    """Leaves, parameters, elements and elements per device are those of the real training states."""
    report = load_tree(write_dump(tmp_path, name), dtype="int8")
    assert len(report.rows) == leaves
    assert sum(row.replicas == report.device_count for row in report.rows) == replicated
    assert report.parameters == parameters
    assert report.elements == report.nbytes == elements
    assert report.fullest_device_nbytes == report.emptiest_device_nbytes == fullest
    assert report.avoidable_nbytes == avoidable
    assert sum(row.avoidable_nbytes > 0 for row in report.rows) == in_leaves
    assert report.device_count == 16
    assert len(report.meshes) == 1


def test_row_of_a_dump(tmp_path):
    """A row has the dump's spec and mesh, and the given dtype."""
    report = load_tree(write_dump(tmp_path, EXPERT), dtype="bfloat16")
    assert [report.rows[place].path for place in (0, -1)] == ["step", "opt_state/2/count"]
    [row] = [row for row in report.rows if row.path.startswith("params") and "MoeBlock_0/wi_0" in row.path]
    assert row.spec == Spec((("expert",), (), ("fsdp",), ("fsdp_transpose",)))
    assert report.meshes[row.mesh].axes == MeshAxes(
        ("data", "fsdp", "fsdp_transpose", "expert"), (1, 8, 1, 2)
    )
    assert row.shard_shape == (32, 26, 256, 1408)
    assert row.shard_nbytes == 2 * 32 * 26 * 256 * 1408
    assert (row.dtype, row.kind, row.source) == ("bfloat16", "abstract", "array")


@pytest.mark.parametrize("name", DUMPS)
def test_the_rules_of_flax_turn_logical_axes_into_the_specs_of_the_dump(tmp_path, name):
    """On the mesh of the named dump, each leaf of the logical one gets its spec."""
    logical = load_tree(write_dump(tmp_path, name, logical=True), dtype="int8")
    assert logical.meshes == ()
    assert {row.spec for row in logical.rows} == {None}
    planned = tree_report(logical, mesh=mesh_of_dump(name), logical_axes=flax_rules(name))
    named = load_tree(write_dump(tmp_path, name), dtype="int8")
    assert [(row.path, row.spec, row.shard_shape) for row in planned.rows] == [
        (row.path, row.spec, row.shard_shape) for row in named.rows
    ]
    assert planned.meshes == named.meshes
    assert planned.fullest_device_nbytes == named.fullest_device_nbytes
    assert planned.avoidable_nbytes == named.avoidable_nbytes


def test_names_without_a_match_are_listed(tmp_path):
    """MaxText has one list of rules for all models, and shards no axis of some names."""
    logical = load_tree(write_dump(tmp_path, EXPERT, logical=True))
    found = tree_report(logical, mesh=mesh_of_dump(EXPERT), logical_axes=flax_rules(EXPERT)).unmatched_axes
    assert [name.name for name in found.without_rule] == [
        "norm",
        "dense_layers",
        "heads",
        "kv",
        "q_heads",
        "kv_heads",
        "kv_head_dim",
        "moe_layers",
    ]
    assert {rule.name.partition("_")[0] for rule in found.unused_rules} == {"activation", "exp", "q"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        (".step", ("step",)),
        (".opt_state/[0]/.mu", ("opt_state", "0", "mu")),
        ("['a/b']/['c']", ("a/b", "c")),
        ("['a']/['b/c']", ("a", "b/c")),
        ("""["it's"]/['"']""", ("it's", '"')),
        (r"['\x1b[31m']/['\'']", ("\x1b[31m", "'")),
        ("['']/['a']", ("", "a")),
        ("[<flat index 3>]/[(1, 2)]", ("3", "(1, 2)")),
        ("plain/['a'/", ("plain", "['a'", "")),
        ("['a']['b']", ("['a']['b']",)),
    ],
)
def test_keys_of_maxtext_paths(text, keys):
    """Keys are read in JAX's notation; other text up to the next slash is a key as it is."""
    assert keys_of(text) == keys
