"""Checkpoints that Orbax wrote of flax's states; the minimums have Orbax without flax."""

import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P
from orbax import checkpoint

from jax_array_info_core import PathRules, load_tree, tree_diff_report, tree_report
from jax_array_info_core.layouts import Spec

pytestmark = pytest.mark.newest


def test_the_save_of_an_nnx_state_has_the_paths_of_the_state(tmp_path):
    """Orbax keeps the keys of the variables, and a pure dict has none."""

    def create():
        return nnx.state(nnx.Sequential(*(nnx.Linear(8, 8, rngs=nnx.Rngs(0)) for _ in range(2))))

    trees = {"state": create(), "pure": nnx.to_pure_dict(create())}
    with checkpoint.StandardCheckpointer() as saver:
        for name, tree in trees.items():
            saver.save(tmp_path / name, tree)
    paths = [row.path for row in tree_report(create()).rows]
    for name in trees:
        saved = load_tree(tmp_path / name)
        assert [row.path for row in saved.rows] == paths
        for before, after in ((create(), saved), (saved, create())):
            diff = tree_diff_report(before, after)
            assert (diff.is_empty, diff.unchanged_count) == (True, 4)
        kernels = PathRules({"*/kernel": P("x"), "*": None})
        planned = tree_report(saved, mesh={"x": 8}, specs=kernels)
        assert [row.path for row in planned.rows if row.spec] == [path for path in paths if "kernel" in path]
    both = PathRules({"*/kernel/value": P("x"), "*/bias": P("x")})
    for tree in (create(), load_tree(tmp_path / "state")):
        assert {row.spec for row in tree_report(tree, mesh={"x": 8}, specs=both).rows} == {Spec((("x",),))}
