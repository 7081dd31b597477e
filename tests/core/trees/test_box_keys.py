"""Keys of boxes, which are no part of a path."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    PathRules,
    check_report,
    from_json,
    load_tree,
    reshard_report,
    to_json,
    tree_diff_report,
    tree_report,
)
from jax_array_info_core.layouts import Spec
from jax_array_info_core.trees import tree_diff as snapshots

pytestmark = pytest.mark.once_per_version


@jax.tree_util.register_pytree_with_keys_class
class Box:
    """A box like ``nn.Partitioned``."""

    def __init__(self, value):
        self.value = value

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey("value"), self.value)], None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def leaf(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")


def boxed():
    """Return a tree with boxes around leaves, one around a dict, and keys that look like those of boxes."""
    return {
        "attn": {"key": leaf(8), "value": leaf(8)},
        "bias": Box(leaf(8)),
        "both": Box(Box(leaf(8))),
        "many": Box({"a": leaf(8), "b": Box(leaf(8))}),
        "none": Box(None),
        "one": {"value": leaf(8)},
    }


PATHS = {
    "attn/key": None,
    "attn/value": None,
    "bias": "bias/value",
    "both": "both/value/value",
    "many/value/a": None,
    "many/value/b": "many/value/b/value",
    "one/value": None,
}


def test_the_key_of_a_box_around_a_leaf_is_not_in_its_path():
    report = tree_report(boxed())
    assert {row.path: row.full_path for row in report.rows} == PATHS
    assert from_json(to_json(report)) == report
    planned = tree_report(report, mesh={"x": 8}, specs=P("x"))
    assert {row.path: row.full_path for row in planned.rows} == PATHS
    (root,) = tree_report(Box(leaf(8))).rows
    assert root.paths == ("", "value")


@pytest.mark.parametrize("pattern", ["bias", "bias/value", "bi*"])
def test_patterns_match_with_and_without_the_key(pattern):
    def sharded(report):
        return [row.path for row in report.rows if row.spec]

    rules = PathRules({pattern: P("x")})
    assert sharded(tree_report(boxed(), mesh={"x": 8}, specs=rules)) == ["bias"]
    planned = tree_report(boxed(), mesh={"x": 8}, specs=P())
    checked = check_report(planned, expect=rules, ignore=["one*", pattern], replicated_over="x")
    assert (checked.findings, checked.ignored_count) == ((), 2)
    (finding,) = check_report(planned, expect=rules, replicated_over="x").findings
    assert [one.path for one in finding.leaves] == ["bias"]


@pytest.mark.parametrize(
    ("box", "spec"),
    [
        (Box, P("x")),
        (Box, Box(P("x"))),
        (Box, {"value": P("x")}),
        (lambda array: array, P("x")),
        (lambda array: array, Box(P("x"))),
    ],
)
def test_specs_in_boxes_belong_to_leaves_with_and_without_boxes(box, spec):
    specs = {"a": spec, "b": P("y")}
    report = tree_report({"a": box(leaf(8)), "b": leaf(8)}, mesh={"x": 8, "y": 1}, specs=specs)
    assert [row.spec for row in report.rows] == [Spec((("x",),)), Spec((("y",),))]


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["a/value", "b/value"], ["a", "b"]),
        (["a/0", "b/0"], ["a", "b"]),
        (["a/value", "b/kernel"], ["a/value", "b/kernel"]),
        (["a/value", "b/0"], ["a/value", "b/0"]),
        (["a/value", "a/value/value"], ["a/value", "a/value/value"]),
        (["value"], ["value"]),
    ],
)
def test_in_files_a_key_is_left_out_that_every_leaf_has(tmp_path, names, paths):
    np.savez(tmp_path / "tree.npz", **{name: np.zeros(3) for name in names})
    report = load_tree(tmp_path / "tree.npz")
    assert [row.path for row in report.rows] == paths
    assert [row.paths[-1] for row in report.rows] == names


def test_leaves_are_compared_with_and_without_keys_of_boxes(tmp_path):
    """A tree with boxes, one without, and files of both."""
    w = np.zeros(8, "float32")
    trees = [{"a": Box(w), "b": Box(w)}, {"a": w, "b": w}, {"a": {"value": w}, "b": {"value": w}}]
    np.savez(tmp_path / "boxes.npz", **{"a/value": w, "b/value": w})
    trees.append(load_tree(tmp_path / "boxes.npz"))
    plain, keys = trees[1], trees[2]
    for before in trees:
        for after in trees:
            diff = tree_diff_report(before, after)
            differs = {id(before), id(after)} == {id(plain), id(keys)}
            assert (len(diff.added), len(diff.removed)) == ((2, 2) if differs else (0, 0))
            from_json(to_json(diff))
    assert reshard_report(trees[0], trees[2]).rows == ()


def test_a_snapshot_with_keys_of_boxes_stays_valid(tmp_path):
    w = np.zeros(8, "float32")
    path = tmp_path / "stored.json"
    snapshots.update(path, {"a": {"value": w}})
    snapshots.compare(path, {"a": Box(w)}, shown="stored.json", command="")
