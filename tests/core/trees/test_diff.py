"""Differences between two trees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, to_json
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.trees.tree_diff import tree_diff_report
from jax_array_info_core.trees.tree_report import tree_report
from tests.arrays import mesh_of, sharded

pytestmark = pytest.mark.newest

MESH = {"x": 4, "y": 2, "one": 1}


def leaf(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def planned(specs, mesh=MESH, **leaves):
    return tree_report(leaves or {name: leaf(8, 16) for name in specs}, mesh=mesh, specs=specs)


def changes(diff):
    return {change.before.path: change.fields for change in diff.changed}


def test_leaves_are_added_removed_and_changed_by_path():
    before = {"layers": [{"w": leaf(4, 8)}], "old": leaf(2), "same": leaf(3)}
    after = {"layers": [{"w": leaf(4, 9, dtype=jnp.bfloat16)}], "new": leaf(2), "same": leaf(3)}
    diff = tree_diff_report(before, after)
    assert [row.path for row in diff.added] == ["new"]
    assert [row.path for row in diff.removed] == ["old"]
    assert changes(diff) == {"layers/0/w": ("shape", "dtype")}
    assert diff.unchanged_count == 1
    assert (diff.nbytes_before, diff.nbytes_after) == (4 * (32 + 2 + 3), 2 * 36 + 4 * (2 + 3))


def test_the_bytes_per_device_are_those_of_the_fullest_device():
    diff = tree_diff_report(planned({"w": P("x")}), planned({"w": P("x", "y")}))
    assert (diff.device_nbytes_before, diff.device_nbytes_after) == (8 * 16, 8 * 8)
    assert changes(diff) == {"w": ("spec",)}


def test_a_leaf_without_a_sharding_differs_from_a_sharded_one():
    assert changes(tree_diff_report({"w": leaf(8, 16)}, planned({"w": P()}))) == {"w": ("spec",)}
    assert changes(tree_diff_report({"w": np.zeros(3, np.float32)}, {"w": jnp.zeros(3)})) == {"w": ("spec",)}
    assert tree_diff_report({"w": np.zeros(3, np.float32)}, {"w": leaf(3)}).is_empty


def test_a_single_device_is_a_replicated_mesh_of_one_device():
    array = {"w": jnp.zeros((8, 16))}
    assert tree_diff_report(array, planned({"w": P()}, {"x": 1})).is_empty
    assert tree_diff_report(planned({"w": P("x")}, {"x": 1}), array).is_empty
    assert changes(tree_diff_report(array, planned({"w": P()}))) == {"w": ("spec",)}


@pytest.mark.needs_devices(8)
def test_a_placed_tree_equals_the_planned_tree():
    mesh = mesh_of((4, 2), ("x", "y"))
    placed = {"w": sharded((8, 16), mesh, "x"), "b": sharded((16,), mesh)}
    specs = {"w": P("x"), "b": P()}
    abstract = {"w": leaf(8, 16), "b": leaf(16)}
    diff = tree_diff_report(placed, tree_report(abstract, mesh={"x": 4, "y": 2}, specs=specs))
    assert diff.is_empty
    assert diff.unchanged_count == 2
    assert diff.device_nbytes_before == diff.device_nbytes_after


def test_unusual_leaves_are_equal_to_themselves():
    deleted = jnp.zeros(3)
    tree = {
        "k": jax.random.key(0),
        "n": np.zeros((2, 0)),
        "deleted": deleted,
        "none": None,
        "": jnp.zeros(()),
    }
    tree["symbolic"] = jax.ShapeDtypeStruct((2,), jnp.float32)
    tree["tied"] = tree["k"]
    deleted.delete()
    diff = tree_diff_report(tree, tree)
    assert diff.is_empty
    assert diff.unchanged_count == 6


def test_traced_leaves_are_compared_by_shape_and_dtype():
    found = []

    def step(tree):
        found.append(tree_diff_report(tree, {"w": leaf(8, 17), "b": leaf(8)}))
        return tree

    jax.eval_shape(step, {"w": leaf(8, 16), "b": leaf(8)})
    assert changes(found[0]) == {"w": ("shape",)}


def test_abstract_shardings_have_no_devices_and_can_be_compared():
    axes = (("x", 4),)
    mesh = AbstractMesh(axes) if jax.__version_info__ < (0, 5) else AbstractMesh((4,), ("x",))
    tree = {"w": jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P("x")))}
    assert tree_diff_report(tree, planned({"w": P("x")})).is_empty


def test_values_are_refused(tmp_path):
    np.save(tmp_path / "w.npy", np.zeros(3))
    for tree in (tmp_path / "w.npy", {"w": np.zeros(3)}):
        with pytest.raises(UnsupportedValueError) as caught:
            tree_diff_report(tree, tree, values=True)
        assert str(caught.value) == "values of files are not compared: load them, then numpy.testing"


specs = st.lists(st.sampled_from([None, "x", "y", "one", ("x", "y"), ("y", "one")]), max_size=2).filter(
    lambda names: (
        len({n for e in names if e for n in ([e] if isinstance(e, str) else e)})
        == sum(len([e] if isinstance(e, str) else e) for e in names if e)
    )
)
trees = st.dictionaries(st.sampled_from("abcd"), specs.map(lambda names: P(*names)), min_size=1)


@settings(max_examples=60)
@given(trees, trees)
def test_a_tree_equals_itself_and_changes_are_symmetric(one, other):
    before, after = planned(one), planned(other)
    assert tree_diff_report(before, before).is_empty
    there, back = tree_diff_report(before, after), tree_diff_report(after, before)
    assert there.added == back.removed
    assert there.removed == back.added
    assert sorted(changes(there).items()) == sorted(changes(back).items())
    assert there.unchanged_count + len(there.changed) + len(there.removed) == len(before.rows)
    assert from_json(to_json(there)) == there
