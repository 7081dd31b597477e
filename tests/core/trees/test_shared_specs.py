"""Specs that leaves with different numbers of axes share."""

import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    PathRules,
    check_report,
    from_json,
    reshard_report,
    sharded_structs,
    to_json,
    tree_report,
)
from jax_array_info_core.errors import SpecError
from tests.arrays import mesh_of
from tests.core.trees.checks.findings import abstract

pytestmark = pytest.mark.once_per_version


STATE = {
    "params": {"b": abstract(16), "w": abstract(16, 8)},
    "opt": {"count": abstract(), "mu": abstract(16, 8)},
}
MESH = {"x": 4, "y": 2}
SHARED = {
    "one spec": (P("x"), ["P('x',)", "P('x',)", "P('x',)"], 1),
    "two entries": (P("x", "y"), ["P()", "P('x', 'y')", "P('x', 'y')"], 2),
    "an entry of None": (P("x", None), ["P('x',)", "P('x', None)", "P('x', None)"], 1),
    "of subtrees": ({"params": P("x"), "opt": P("x", "y")}, ["P('x',)", "P('x',)", "P('x', 'y')"], 1),
    "patterns": (PathRules({"*w": P(), "opt/*": P("y"), "*": P("x")}), ["P('x',)", "P()", "P('y',)"], 1),
}


@pytest.mark.parametrize("name", SHARED)
def test_leaves_with_fewer_axes_are_replicated_wherever_a_spec_is_shared(name):
    """The state of an optimizer counts its steps in a scalar."""
    specs, expected, count = SHARED[name]
    report = tree_report(STATE, mesh=MESH, specs=specs)
    rows = {row.path: str(row.spec) for row in report.rows}
    assert rows.pop("opt/count") == "P()"
    assert [rows["params/b"], rows["params/w"], rows["opt/mu"]] == expected
    assert report.shorter_count == count
    check = check_report(STATE, mesh=MESH, specs=specs, expect=specs)
    assert "JAI104" not in str(check)
    assert "JAI106" not in str(check)
    assert (check.shorter_count, check.expected_shorter_count) == (count, count)
    replicated = tree_report(STATE, mesh=MESH, specs=P())
    for target in (report, specs):
        moved = reshard_report(replicated, target)
        assert moved.shorter_count == count


def test_a_planned_tree_remembers_its_replicated_leaves():
    report = tree_report(STATE, mesh=MESH, specs=P("x"))
    again = from_json(to_json(report))
    assert again == report
    assert check_report(again).shorter_count == 1
    assert from_json(to_json(report).replace('"shorter_count"', '"unknown_field"')).shorter_count == 0
    assert tree_report(again, mesh={"x": 8}).shorter_count == 0


@pytest.mark.parametrize(
    ("tree", "specs"),
    [
        ({"a": abstract(), "b": abstract()}, P("x")),
        ({"w": abstract(16), "n": {"a": abstract()}}, {"w": P("x"), "n": P("x")}),
        ({"w": abstract(16), "a": abstract()}, PathRules({"w": P("x"), "*": P("x")})),
    ],
)
def test_a_spec_that_no_leaf_has_enough_axes_for_is_an_error(tree, specs):
    with pytest.raises(SpecError, match="the spec has 1 entry, but the array has 0 axes"):
        tree_report(tree, mesh=MESH, specs=specs)
    assert "JAI104" in str(check_report(tree, mesh=MESH, specs=specs))
    with pytest.raises(SpecError, match="the spec has 1 entry, but the array has 0 axes"):
        reshard_report(tree_report(tree, mesh=MESH, specs=P()), specs)


@pytest.mark.parametrize(
    "specs", [{"w": P("x"), "a": P("x")}, PathRules({"w": P("x"), "?": P("x")}), {"w": P("x"), "a": P(None)}]
)
def test_a_spec_of_one_leaf_must_fit_it(specs):
    with pytest.raises(SpecError, match="a: the spec has 1 entry, but the array has 0 axes"):
        tree_report({"w": abstract(16), "a": abstract()}, mesh=MESH, specs=specs)


@pytest.mark.needs_devices(8)
def test_structs_are_replicated_too():
    structs = sharded_structs(STATE, mesh=mesh_of((4, 2), ("x", "y")), specs=P("x"))
    assert structs["opt"]["count"].sharding.spec == P()
    assert structs["params"]["w"].sharding.spec == P("x")
