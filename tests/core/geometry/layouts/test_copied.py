"""Shardings as they are copied from programs, messages and types."""

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import xla_report
from jax_array_info_core.arrays.plans import xla_reports
from jax_array_info_core.errors import NotationError, UnsupportedValueError
from jax_array_info_core.geometry.layouts.xla import parse_copied
from jax_array_info_core.layouts import Spec

pytestmark = pytest.mark.newest

MESH = {"x": 4, "y": 2}
TILED = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"


def explained(text, mesh=None):
    """Return the text and the spec of each report."""
    return [(one.text, one.spec and str(one.spec)) for one in xla_reports(text, mesh)]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("sharding={devices=[4,2]<=[8]}", "P('x', 'y')"),
        ('sharding={devices=[4,2]<=[8] metadata={op_name="a/b"}}', "P('x', 'y')"),
        ('sharding={devices=[4,2]<=[8]}, metadata={op_name="jit(f)/mul" source_line=3}', "P('x', 'y')"),
        (" sharding = {devices=[4,2]<=[8]},", "P('x', 'y')"),
        ('mhlo.sharding = "{devices=[4,2]<=[8]}"', "P('x', 'y')"),
        ("GSPMDSharding({devices=[4,2]<=[8]})", "P('x', 'y')"),
        ("GSPMDSharding({devices=[4,2]<=[8]}, memory_kind=pinned_host)", "P('x', 'y')"),
        ("GSPMDSharding({replicated})", "P()"),
        ("sharding={mesh['x'=4,'y'=2], [{'x'}, {'y'}]}", "P('x', 'y')"),
        ('#sdy.sharding<@mesh, [{"x"}, {"y"}]>', "P('x', 'y')"),
        ('sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>', "P('x', 'y')"),
        ('sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>, jax.result_info = "result[0]"', "P('x', 'y')"),
        ('<@mesh, [{"x"}, {"y"}]>', "P('x', 'y')"),
        ('#sdy.sharding<@"a mesh", [{"x", ?}p1, {"y"}p0]>', "P('x', 'y')"),
        ('#sdy.sharding<@mesh, [{"x", "y"}, {}]>', "P(('x', 'y'),)"),
        ('#sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)2}]>', None),
        ('#sdy.sharding<@mesh, [{"y"}], unreduced={"x"}>', "P('y', unreduced={'x'})"),
        ('#sdy.sharding<@mesh, [{"y"}], replicated={"x"}>', "P('y',)"),
        ("#sdy.sharding<@mesh, [{}, {?}]>", "P()"),
        ("#sdy.sharding<@mesh, []>", "P()"),
        ("float32[8@x,8@y]", "P('x', 'y')"),
        ("f32[8@(x,y),8]", "P(('x', 'y'),)"),
        ("float32[8,8@y]", "P(None, 'y')"),
        ("bfloat16[8,8]@x,y", "P('x', 'y')"),
        ("bfloat16[8,8]@x", "P('x',)"),
        ("float32[8,8]", "P()"),
    ],
)
def test_a_sharding_is_read_with_what_stands_around_it(text, spec):
    report = xla_report(text, MESH)
    assert (report.spec and str(report.spec), report.mesh.sizes) == (spec, (4, 2))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{replicated}, {devices=[4]<=[4]}}", [("{replicated}", None), ("{devices=[4]<=[4]}", None)]),
        ("sharding={{replicated}}", [("{replicated}", None)]),
        (
            "{{manual}, {maximal device=1},/*index=2*/{devices=[2,2]<=[4] last_tile_dims={manual}}}",
            [
                ("{manual}", None),
                ("{maximal device=1}", None),
                ("{devices=[2,2]<=[4] last_tile_dims={manual}}", None),
            ],
        ),
        (
            '#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, <@mesh, []>]>',
            [("P('x',)", "P('x',)"), ("{replicated}", None)],
        ),
    ],
)
def test_a_tuple_has_a_report_for_each_sharding(text, found):
    assert explained(text) == found


def test_one_report_of_a_tuple_is_refused_with_the_way_out():
    with pytest.raises(UnsupportedValueError, match="expected one sharding, got a tuple of 2: pass one of"):
        xla_report("{{replicated}, {manual}}")
    assert xla_report("{{replicated}}").kind == "replicated"


@pytest.mark.parametrize("text", ['#sdy.sharding<@mesh, [{"x"}, {}]>', "float32[8@x,8]"])
def test_mesh_axes_need_a_mesh_for_their_devices_but_not_for_their_spec(text):
    known = xla_report(text, MESH)
    assert (known.text, known.layout.device_ids.shape) == (TILED, (4, 1, 2))
    unknown = xla_report(text)
    assert (unknown.text, unknown.kind, unknown.mesh, unknown.layout) == ("P('x',)", "tiled", None, None)
    assert unknown.spec == Spec((("x",),))
    assert unknown.patterns == ("mesh axes of unknown sizes: pass a mesh to list the devices of each shard",)


def test_the_type_of_an_array_has_its_shape():
    assert xla_report("float32[8@x,6]", MESH).layout.shape == (8, 6)
    assert xla_report("float32[8@x,6]", MESH, (4, 6)).layout.shape == (4, 6)
    [uneven] = xla_report("float32[7@x]", MESH).uneven
    assert "7 % 4 = 3" in uneven


def test_a_given_mesh_has_precedence_over_the_mesh_in_the_text():
    text = "{mesh['x'=4,'y'=2], [{'y'}]}"
    assert str(xla_report(text).spec) == "P('y',)"
    assert str(xla_report(text, {"a": 4, "b": 2}).spec) == "P('b',)"


@pytest.mark.parametrize(
    ("text", "mesh", "problem"),
    [
        ("foo(", None, "expected a sharding, such as {devices=[4,2]<=[8]}, #sdy.sharding<@mesh, "),
        ("", None, "expected a sharding, such as "),
        ('#sdy.sharding<@mesh, [{"x"}, {}]', None, "expected a sharding, such as "),
        ("{devices=[4]<=[8", None, "expected ',' or ']'\n  {devices=[4]<=[8\n"),
        ("{replicated} {manual}", None, "expected the end"),
        ("{{replicated}, {devices=[4]<=[4}", None, "expected ',' or '}'"),
        ("{{replicated}, manual}", None, "expected ',' or '}'"),
        ('#sdy.sharding<@mesh, [{"z"}]>', MESH, "expected a mesh axis: x, y"),
        ('#sdy.sharding<@mesh, [{"x"}, {"x"}]>', None, "mesh axis 'x' is used twice"),
        ('#sdy.sharding<@mesh, [{"x":(1)2}]>', None, "expected whole mesh axes: pass a mesh with their"),
        ("float32[8@z]", MESH, "expected a mesh axis: x, y"),
        ("float32[8@]", None, "expected the name of a mesh axis"),
    ],
)
def test_other_texts_are_errors_with_the_position(text, mesh, problem):
    with pytest.raises(NotationError) as raised:
        parse_copied(text, mesh)
    assert str(raised.value).startswith(f"cannot be read: {problem}")


@pytest.mark.needs_devices(8)
@pytest.mark.skipif(jax.__version_info__ < (0, 6), reason="before JAX 0.6 no type prints as f32[8@x,8]")
def test_the_forms_are_those_that_jax_prints():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    for spec in (P("x", "y"), P(("x", "y"), None), P(None, "y")):
        array = jax.device_put(jax.numpy.ones((8, 8)), NamedSharding(mesh, spec))
        ids = xla_report(str(jax.typeof(array)), MESH).layout.device_ids
        assert ids.size == 8
        found = xla_report(str(jax.typeof(array)), MESH).spec
        assert found.axes == tuple(
            (names,) if isinstance(names, str) else names or () for names in (spec if spec[-1] else spec[:-1])
        )
