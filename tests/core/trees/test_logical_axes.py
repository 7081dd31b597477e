"""Rules that replace logical axis names with mesh axes. ``tests/integrations`` compares them with Flax."""

import jax
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import PathRules, check_report, from_json, to_json, tree_report
from jax_array_info_core.errors import SpecError
from jax_array_info_core.geometry.layouts.spec import as_spec
from jax_array_info_core.layouts import Spec
from jax_array_info_core.reports import UnmatchedAxes, UnmatchedName

pytestmark = pytest.mark.newest

MESH = {"fsdp": 4, "tensor": 2, "sequence": 2}


def planned(names, rules, shape=(16, 16, 16), **options):
    """Return the report of one leaf whose axes have the given names."""
    tree = {"w": jax.ShapeDtypeStruct(shape[: len(names)], "float32")}
    return tree_report(tree, mesh=MESH, specs={"w": P(*names)}, logical_axes=rules, **options)


@pytest.mark.parametrize(
    ("names", "rules", "expected"),
    [
        (
            ("embed", "mlp"),
            (("embed", "fsdp"), ("mlp", ("tensor", "sequence"))),
            ("fsdp", ("tensor", "sequence")),
        ),
        (("embed", "mlp"), [["mlp", "fsdp"], ["embed", "fsdp"]], (None, "fsdp")),
        (("embed", "mlp"), {"mlp": "fsdp", "embed": "fsdp"}, (None, "fsdp")),
        (("embed", "mlp"), {"embed": ["fsdp"], "mlp": None}, ("fsdp", None)),
        (
            ("embed", "mlp"),
            (("embed", "fsdp"), ("mlp", ("fsdp", "tensor")), ("mlp", "tensor")),
            ("fsdp", "tensor"),
        ),
        (("embed", "mlp"), (("embed", None), ("embed", "fsdp"), ("mlp", ())), (None, None)),
        (("embed", "norm"), (("embed", "fsdp"),), ("fsdp", None)),
        (("embed",), (("embed", ("data", "fsdp")), ("embed", "tensor")), ("fsdp",)),
        (("embed",), (("embed", "data"), ("embed", "tensor")), (None,)),
        (("embed",), (("embed", P.UNCONSTRAINED),), (P.UNCONSTRAINED,)),
        (("embed",), {"embed": P("fsdp", "tensor")}, (("fsdp", "tensor"),)),
        (
            (("fsdp", "tensor"), "embed"),
            (("embed", "fsdp"), ("embed", "sequence")),
            (("fsdp", "tensor"), "sequence"),
        ),
        (("fsdp", "embed"), (("embed", "fsdp"), ("embed", "tensor")), ("fsdp", "tensor")),
        (("fsdp", "embed"), (("embed", "fsdp"), ("fsdp", "tensor")), ("tensor", "fsdp")),
    ],
)
def test_a_name_takes_the_first_rule_whose_mesh_axes_are_free(names, rules, expected):
    assert planned(names, rules).rows[0].spec == as_spec(P(*expected))


def test_whether_a_mesh_axis_divides_the_array_axis_does_not_matter():
    rules = (("embed", "fsdp"), ("embed", "tensor"))
    assert planned(("embed",), rules, shape=(6,)).rows[0].spec == Spec((("fsdp",),))


def test_names_without_a_match_are_listed_with_similar_names():
    rules = (("embed", ("fsdp", "dat")), ("mpl", "tensor"), ("batch", "fsdp"), ("embed", "fsdp"))
    report = planned(("embed", "mlp", "norm"), rules)
    assert report.unmatched_axes == UnmatchedAxes(
        without_rule=(UnmatchedName(name="mlp", similar=("mpl",)), UnmatchedName(name="norm")),
        unused_rules=(UnmatchedName(name="mpl", similar=("mlp",)), UnmatchedName(name="batch")),
        left_out=("dat",),
    )
    assert from_json(to_json(report)) == report
    assert planned(("fsdp", "embed"), rules).unmatched_axes.without_rule == ()
    assert tree_report(report, mesh=MESH).unmatched_axes is None


@pytest.mark.parametrize("rules", [(), {}, {"embd": "fsdp"}])
def test_rules_that_match_no_leaf_are_an_error(rules):
    with pytest.raises(SpecError, match="no leaf has a logical axis of the rules") as error:
        planned(("embed", "mlp"), rules)
    assert "the logical axes of the leaves are 'embed', 'mlp'" in str(error.value)
    assert ("'embd' (similar: 'embed')" in str(error.value)) == bool(rules)
    tree = {"w": jax.ShapeDtypeStruct((16,), "float32")}
    for function in (tree_report, check_report):
        with pytest.raises(SpecError, match="the logical axes of the leaves are none: pass them in specs"):
            function(tree, mesh=MESH, specs=PathRules({"*": P("fsdp")}), logical_axes=rules)
    assert tree_report({}, mesh=MESH, logical_axes=rules).rows == ()


@pytest.mark.parametrize(
    "rules",
    [
        "embed=fsdp",
        3,
        [("embed",)],
        [("embed", "x", "y")],
        [(1, "x")],
        ["ab"],
        {"embed": 3},
        {"embed": [None]},
        {"embed": P(("fsdp", "tensor"))},
    ],
)
def test_something_else_in_place_of_rules_is_an_error(rules):
    with pytest.raises(
        SpecError, match="logical_axes must be pairs of a logical axis name and its mesh axes"
    ):
        planned(("embed",), rules)


def test_the_error_has_only_the_pair_that_is_no_rule():
    """Such as if a file of shardings is passed in place of one of rules."""
    with pytest.raises(SpecError, match=r"got \('mlp', 3\)$"):
        planned(("embed",), [("embed", "fsdp"), ("mlp", 3)])
    with pytest.raises(SpecError) as error:
        planned(("embed",), {"step": {"mesh": ["fsdp"] * 999}})
    assert len(str(error.value)) < 400


def test_a_name_on_two_axes_is_an_error():
    with pytest.raises(SpecError, match="w: logical axis 'embed' is on two array axes"):
        planned(("embed", "embed"), {"embed": "fsdp"})


def test_a_check_lists_names_without_a_match():
    tree = {"w": jax.ShapeDtypeStruct((16, 16), "float32")}
    report = check_report(
        tree, mesh=MESH, specs=P("embed", "mlp"), logical_axes={"embed": "fsdp", "mpl": "tensor"}
    )
    assert report.unmatched_axes.without_rule == (UnmatchedName(name="mlp", similar=("mpl",)),)
