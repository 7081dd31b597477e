"""Leaves that are sharded differently from the other leaves of their kind."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import CheckError, assert_tree, check_report, from_json, to_json, tree_report
from tests.arrays import mesh_of, sharded
from tests.core.trees.checks.findings import abstract, kinds, paths, the_finding
from tests.maxtext import DUMPS, write_dump

pytestmark = pytest.mark.newest

MESH = {"fsdp": 4, "tensor": 2}
ROWS, COLUMNS = P("fsdp", "tensor"), P("tensor", "fsdp")


def checked(specs, **options):
    """Return the check of layers with these specs."""
    layers = [{"wo": abstract(256, 512)} for _ in specs]
    return check_report(layers, mesh=MESH, specs=[{"wo": spec} for spec in specs], **options)


def odd(specs, **options):
    """Return the paths of the odd ones of layers with these specs."""
    return [
        path
        for finding in checked(specs, **options).findings
        if finding.kind == "odd one out"
        for path in paths(finding)
    ]


@pytest.mark.needs_devices(8)
def test_one_layer_of_four_is_found_without_an_expectation():
    mesh = mesh_of((4, 2), ("fsdp", "tensor"))
    tree = {f"layer{number}": {"wo": sharded((512, 64), mesh, "tensor", "fsdp")} for number in range(4)}
    tree["layer2"]["wo"] = sharded((512, 64), mesh, "fsdp", "tensor")
    for one in (tree, tree_report(tree), from_json(to_json(tree_report(tree)))):
        finding = the_finding(check_report(one), "odd one out")
        [leaf] = finding.leaves
        assert (leaf.path, str(leaf.spec), str(leaf.expected)) == (
            "layer2/wo",
            "P('fsdp', 'tensor')",
            "P('tensor', 'fsdp')",
        )
        assert leaf.remedy == "unlike 3 others"
    with pytest.raises(CheckError, match="JAI111 odd-one-out: 1 leaf is sharded differently"):
        assert_tree(tree)
    assert_tree(tree, ignore_codes="JAI111")
    assert_tree(tree, ignore="layer2/*")


def test_blocks_in_blocks_are_one_kind_of_leaf():
    """All numbers of a path count: here, the stage and the layer."""
    tree = {"stages": [{"layers": [abstract(512, 64) for _ in range(3)]} for _ in range(2)]}
    specs = {"stages": [{"layers": [ROWS] * 3}, {"layers": [ROWS, COLUMNS, ROWS]}]}
    finding = the_finding(check_report(tree, mesh=MESH, specs=specs), "odd one out")
    assert paths(finding) == ["stages/1/layers/1"]
    assert finding.leaves[0].remedy == "unlike 5 others"


def test_moments_are_apart_from_parameters():
    """Moments that are all sharded further are no odd ones; one of them is."""
    layers = [abstract(512, 64) for _ in range(4)]
    state = {"params": layers, "opt_state": {"mu": layers}}
    specs = {"params": [P("tensor")] * 4, "opt_state": {"mu": [P(("tensor", "fsdp"))] * 4}}
    assert "odd one out" not in kinds(check_report(state, mesh=MESH, specs=specs))
    specs["opt_state"]["mu"][1] = P("tensor", "fsdp")
    assert paths(the_finding(check_report(state, mesh=MESH, specs=specs), "odd one out")) == [
        "opt_state/mu/1"
    ]


@pytest.mark.parametrize(
    ("specs", "found"),
    [
        ([ROWS] * 3 + [COLUMNS], ["3/wo"]),
        ([ROWS] * 2 + [COLUMNS], []),
        ([ROWS] * 2 + [COLUMNS] * 2, []),
        ([ROWS, COLUMNS] * 4, []),
        ([ROWS, ROWS, ROWS, COLUMNS] * 3, []),
        ([COLUMNS, ROWS, ROWS, ROWS, ROWS, ROWS] * 2, []),
        ([ROWS] * 6 + [COLUMNS] * 2, ["6/wo", "7/wo"]),
        ([ROWS] * 6 + [COLUMNS, P("fsdp", None)], ["7/wo", "6/wo"]),
        ([ROWS] * 5 + [COLUMNS] * 3, []),
        ([ROWS] * 4 + [P("fsdp", ("tensor",))], []),
        ([ROWS] * 9 + [COLUMNS] + [ROWS] * 2, ["9/wo"]),
    ],
)
def test_at_most_a_quarter_that_does_not_alternate_is_odd(specs, found):
    """Equivalent specs are equal, and layer 10 is after layer 9."""
    assert odd(specs) == found


@given(st.lists(st.booleans(), min_size=1, max_size=24))
def test_the_odd_ones_are_a_minority(columns):
    found = odd([COLUMNS if one else ROWS for one in columns])
    assert 4 * len(found) <= len(columns)
    if found:
        rare = columns.count(True) < columns.count(False)
        assert {*found} == {f"{number}/wo" for number, one in enumerate(columns) if one is rare}


def test_leaves_of_other_shapes_scalars_and_keys_are_apart():
    tree = [abstract(512, 64)] * 3 + [abstract(64, 512)]
    specs = [ROWS] * 3 + [COLUMNS]
    assert "odd one out" not in kinds(check_report(tree, mesh=MESH, specs=specs))


@pytest.mark.needs_devices(8)
def test_an_expected_sharding_is_no_odd_one_and_a_leaf_on_one_device_is_listed_once():
    specs = [ROWS] * 3 + [COLUMNS]
    tree = [{"wo": abstract(256, 512)} for _ in specs]
    expect = [{"wo": spec} for spec in specs]
    assert kinds(check_report(tree, mesh=MESH, specs=expect, expect=expect)) == []
    mesh = mesh_of((8,), ("x",))
    large = [sharded((512, 512), mesh, "x") for _ in range(4)] + [jnp.zeros((512, 512))]
    assert kinds(check_report(large)) == ["fewer devices"]
    assert kinds(check_report(large, ignore_codes="JAI102")) == ["odd one out"]
    biases = [sharded((512,), mesh, "x") for _ in range(4)] + [jnp.zeros(512)]
    assert kinds(check_report(biases)) == ["odd one out"], "small, but wrong"
    scalars = [jax.device_put(0.0, NamedSharding(mesh, P())) for _ in range(4)] + [jnp.float32(0)]
    assert kinds(check_report([*scalars, large[0]])) == []


@pytest.mark.parametrize("name", DUMPS)
def test_a_model_that_is_sharded_by_rules_has_no_odd_one(name, tmp_path):
    assert "odd one out" not in kinds(check_report(str(write_dump(tmp_path, name))))


@pytest.mark.needs_devices(8)
def test_what_was_compared_is_known():
    tree = {"w": sharded((512, 64), mesh_of((8,), ("x",)), "x")}
    assert check_report(tree).is_uncompared
    assert not check_report(tree, expect=P("x")).is_uncompared
    assert not check_report({"w": abstract(512, 64)}, mesh={"x": 8}, specs=P("x")).is_uncompared
