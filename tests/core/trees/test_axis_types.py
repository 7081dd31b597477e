"""Axis types, Auto and Explicit, as a part of shardings: where they are compared, and where they are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    PathRules,
    assert_tree,
    check_report,
    program_diff_report,
    program_report,
    reshard_report,
    tree_diff_report,
    tree_report,
    watch_compiles,
)
from jax_array_info_core.errors import CheckError
from jax_array_info_core.geometry.layouts.spec import other_types
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.programs.gates import diff_with_rules, parse_rule

DATA = P("data")
AxisType = getattr(jax.sharding, "AxisType", None)
pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(AxisType is None, reason="axis types are public from JAX 0.6 on"),
]


def sharding(*types, spec=DATA):
    """Return a sharding on a mesh of data=4 and model=2 with these types of axes."""
    devices = np.array(jax.devices()[:8]).reshape(4, 2)
    axis_types = tuple(getattr(AxisType, name) for name in types)
    return NamedSharding(Mesh(devices, ("data", "model"), axis_types=axis_types), spec)


def auto(spec=DATA):
    return sharding("Auto", "Auto", spec=spec)


def explicit(spec=DATA):
    return sharding("Explicit", "Explicit", spec=spec)


def mixed(spec=DATA):
    return sharding("Explicit", "Auto", spec=spec)


def tree(placed, make=jax.device_put):
    return {"w": make(jnp.ones((8, 8)), placed)}


def struct(value, placed):
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=placed)


@pytest.mark.parametrize(("make", "other_make"), [(jax.device_put, struct), (struct, struct)])
@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (explicit, auto, ("Explicit", "Auto")),
        (auto, mixed, ("Auto", "data Explicit, model Auto")),
        (explicit, mixed, ("Explicit", "data Explicit, model Auto")),
    ],
)
@pytest.mark.parametrize("spec", [P("data", "model"), P()])
def test_trees_on_axes_of_other_types_differ(one, other, texts, make, other_make, spec):
    diff = tree_diff_report(tree(one(spec), make), tree(other(spec), other_make))
    [change] = diff.changed
    assert (change.after.path, change.fields) == ("w", ("axis_types",))
    assert (change.before_types, change.after_types) == texts
    assert diff.device_nbytes_before == diff.device_nbytes_after
    for rule, passes in (("axis_types", False), ("changed", False), ("spec", True)):
        results = diff_with_rules(
            tree_report(tree(one(spec))), tree_report(tree(other(spec))), [parse_rule(rule)]
        )
        [result] = results.rules
        assert result.passed is passes
        assert passes or result.fact == "{}: w ({} to {})".format(rule, *texts)


def test_types_that_are_not_known_do_not_differ():
    known = MeshAxes(("data",), (4,), ("Explicit",))
    for other in (None, MeshAxes(("data",), (4,)), MeshAxes(("model",), (4,), ("Auto",))):
        assert not other_types(known, other)
        assert not other_types(other, known)
    assert other_types(known, MeshAxes(("x", "data"), (2, 8), ("Auto", "Manual"))), "by name, of any size"


def unexpected(state, expect):
    """Return the remedies of the leaves with another sharding than the expected one."""
    findings = [one for one in check_report(state, expect=expect).findings if one.code == "JAI106"]
    return [leaf.remedy for one in findings for leaf in one.leaves]


def test_an_expected_sharding_has_types_and_an_expected_spec_has_none():
    state = tree(auto())
    for expect in ({"w": explicit()}, PathRules({"w": explicit()}), explicit()):
        assert unexpected(state, expect) == ["axis types Auto, expected Explicit"]
        with pytest.raises(CheckError, match="axis types Auto, expected Explicit"):
            assert_tree(state, expect=expect)
    for placed in (auto(), explicit(), mixed()):
        for expect in ({"w": placed}, P("data"), PathRules({"w": P("data")})):
            assert unexpected(tree(placed), expect) == []


def test_plans_have_no_types():
    for placed in (auto(), explicit()):
        planned = tree_report(tree(mixed()), mesh=placed.mesh, specs=P("data"))
        assert tree_diff_report(tree(mixed()), planned).is_empty
        assert unexpected(planned, {"w": mixed()}) == []


def test_a_moment_on_axes_of_another_type_than_its_parameter_is_sharded_differently():
    state = {"params": tree(explicit()), "opt": {"mu": tree(auto())}}
    [finding] = [one for one in check_report(state).findings if one.code == "JAI107"]
    assert [(leaf.path, leaf.remedy) for leaf in finding.leaves] == [
        ("opt/mu/w", "axis types Auto, expected Explicit")
    ]


def test_a_change_of_axis_types_sends_nothing():
    for target in (auto(), {"w": auto()}):
        report = reshard_report(tree(explicit()), target)
        assert (report.nbytes, report.rows, report.unmoved_count) == (0, (), 1)


@pytest.mark.parametrize("start", [auto, explicit])
def test_a_recompilation_names_axis_types(start):
    f = jax.jit(lambda a: a * 2)
    with watch_compiles(f) as watch:
        f(tree(start())["w"])
        f(tree(mixed())["w"])
        f(tree(mixed(P("model")))["w"])
    reasons = [one.reason for one in watch.report().compilations]
    before = start().mesh.axis_types[0].name
    assert reasons[1] == f"a: axis types {before} became data Explicit, model Auto"
    assert reasons[2] == "a: sharding P('data',) became P('model',)"


def test_programs_whose_arguments_are_on_axes_of_other_types_differ():
    reports = [program_report(jnp.sin, struct(jnp.ones((8, 8)), placed)) for placed in (auto(), explicit())]
    diff = program_diff_report(*reports)
    assert {change.path for change in diff.shardings} == {"x", "outputs"}
    [result] = diff_with_rules(*reports, [parse_rule("sharding")]).rules
    assert not result.passed
    assert "P('data',) over axes of type Auto to P('data',) over axes of type Explicit" in result.fact
    assert program_diff_report(reports[0], reports[0]).is_empty
