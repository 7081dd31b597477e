import math

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import from_json, to_json, to_text
from jax_array_info_core import propagation_report
from jax_array_info_core.facts.pages.propagations import value_spec_words
from jax_array_info_core.geometry.layouts.spec import effective_spec
from tests.core.programs.propagation.programs import needs_shardy, origins, struct

pytestmark = needs_shardy


def test_an_axis_that_a_shard_map_leaves_alone_is_not_from_it():
    def run(x):
        mapped = jax.shard_map(
            jnp.sin, mesh=x0.sharding.mesh, in_specs=P("data"), out_specs=P("data"), axis_names={"data"}
        )
        return mapped(x)

    report = propagation_report(jax.jit(run), x0 := struct((32, 64), "data", "model"))
    [inside] = [one for one in report.values if one.op == "sin"]
    assert origins(inside) == {"model": "argument x"}
    [output] = report.outputs
    assert {one.mesh_axis: one.kind for one in output.axes} == {"data": "shard_map", "model": "argument"}


def test_an_argument_that_also_enters_a_shard_map_is_still_an_origin():
    x = struct((32, 64), "data")

    def both(x, specs):
        inside = jax.shard_map(lambda part: part * 2, mesh=x_mesh, in_specs=specs, out_specs=specs)(x)
        return inside, jnp.tanh(x)

    x_mesh = x.sharding.mesh
    for specs in (P(), P("data")):
        report = propagation_report(lambda x, specs=specs: both(x, specs), x)
        assert origins(report.outputs[1]) == {"data": "argument x"}


def test_an_axis_that_a_shard_map_moves_to_another_dimension_is_from_it():
    x = struct((32, 64), "data", "model")

    def moved(x):
        y = jnp.tanh(x)
        specs = P("model")
        inside = jax.shard_map(lambda part: part * 2, mesh=mesh, in_specs=specs, out_specs=specs)(y)
        return inside, y

    mesh = x.sharding.mesh
    report = propagation_report(moved, x)
    [axis] = [one for one in report.outputs[1].axes if one.mesh_axis == "model"]
    assert axis.kind == "shard_map"


@pytest.mark.needs_devices(8)
def test_a_callback_is_opaque():
    mesh = jax.make_mesh((8,), ("data",))
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))

    def called(y):
        return jax.pure_callback(lambda value: value, jax.ShapeDtypeStruct(y.shape, y.dtype), y) * 2

    report = propagation_report(called, x)
    [opaque] = report.unread
    assert opaque.startswith("pure_callback of test_report_of_shard_maps.py:")
    assert "nothing propagates through pure_callback" in to_text(report)


def doubled(x, *, interpret):
    from jax.experimental import pallas

    def kernel(read, written):
        written[...] = read[...] * 2

    return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=interpret)(
        x
    )


def test_a_kernel_in_a_shard_map_has_a_value_without_axes():
    x = struct((256, 256), "data")

    def run(x):
        mapped = jax.shard_map(
            lambda shard: doubled(shard, interpret=False),
            mesh=mesh,
            in_specs=P("data"),
            out_specs=P("data"),
            check_vma=False,
        )
        return mapped(x)

    mesh = x.sharding.mesh
    report = propagation_report(run, x)
    [value] = [one for one in report.values if one.op == "pallas_call"]
    assert (value.shape, value.axes) == ((64, 256), ())
    assert [one.kind for one in report.outputs[0].axes] == ["shard_map"]
    assert value.in_shard_map
    assert (value.manual_axes.names, value.invariant_axes) == (("data", "model"), None)
    assert "manual over data=4, model=2" in to_text(report)
    [opaque] = [one for one in report.caveats if "opaque" in one]
    assert opaque.startswith("pallas_call of test_report_of_shard_maps.py:")
    assert report.unread == ()  # nothing that the report says depends on it


def test_an_interpreted_kernel_propagates_as_the_loop_that_it_is():
    report = propagation_report(lambda x: doubled(x, interpret=True), struct((256, 256), "data"))
    assert report.unread == ()
    assert origins(report.outputs[0]) == {"data": "argument x"}


def body(u, w):
    """Return a sum of values that differ, or do not differ, along the manual mesh axes."""
    varying = jnp.sin(u)
    alike = jnp.cos(w)
    summed = jnp.tan(jax.lax.psum(varying, "data"))
    moved = jax.lax.ppermute(varying, "data", [(0, 1), (1, 0)])
    sent = jax.lax.ppermute(alike, "data", [(0, 1)])
    looped = jax.lax.scan(lambda carry, _: (jnp.sinh(carry), None), varying, None, length=3)[0]
    called = jax.jit(lambda value: jnp.exp(value))(varying)
    own = jnp.floor(varying + jax.lax.axis_index("data"))
    both = jnp.atan2(varying, alike[: varying.shape[0], : varying.shape[1]])
    return sum(jnp.sum(one) for one in (alike, summed, moved, sent, looped, called, own, both))[None]


@pytest.mark.parametrize(
    ("manual", "in_spec", "words", "spec"),
    [
        ({"data"}, P("data"), "1 of 4 shards over ('data')", "P(None, 'model')"),
        ({"data", "model"}, P("data", "model"), "1 of 8 shards over ('data','model')", "P()"),
        ({"data", "model"}, P("model"), "1 of 2 shards over ('model'), 4 replicas over ('data')", "P()"),
    ],
)
def test_local_values_are_shards_or_replicas_along_the_manual_axes(manual, in_spec, words, spec):
    u, w = struct((64, 64), "data", "model"), struct((64, 64))
    mesh = u.sharding.mesh
    mapped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=(in_spec, P()),
        out_specs=P(("data", "model") if len(manual) > 1 else "data"),
        axis_names=manual,
        check_vma=False,
    )
    report = propagation_report(mapped, u, w)
    found = {one.op: one for one in report.values}
    assert found["sin"].manual_axes.names == tuple(name for name in mesh.axis_names if name in manual)
    assert str(effective_spec(found["sin"].spec, {})) == spec
    for op in ("sin", "exp", "atan2"):
        assert value_spec_words(found[op]).endswith(f"manual: {words}")
    sizes = ", ".join(f"{name}={mesh.shape[name]}" for name in mesh.axis_names if name in manual)
    unknown = [op for op, one in found.items() if one.invariant_axes is None]
    assert {"psum", "tan", "sinh", "floor"} <= set(unknown)
    assert value_spec_words(found["tan"]).endswith(f"manual over {sizes}")
    count = math.prod(mesh.shape[name] for name in manual)
    assert f"manual: {count} replicas over" in value_spec_words(found["cos"])
    moved = {one.invariant_axes for one in report.values if one.op == "ppermute"}
    assert moved == {() if set(in_spec) == manual else None, None}, "an invariant value that is sent is not"
    assert from_json(to_json(report)) == report


def test_values_of_nested_shard_maps_have_the_axes_of_both():
    u = struct((64, 64), "data", "model")
    mesh = u.sharding.mesh

    def outer(part):
        inner = jax.shard_map(
            jnp.sin, in_specs=P(None, "model"), out_specs=P(None, "model"), axis_names={"model"}
        )
        return jnp.tan(inner(part))

    mapped = jax.shard_map(
        outer, mesh=mesh, in_specs=P("data"), out_specs=P("data"), axis_names={"data"}, check_vma=False
    )
    found = {one.op: one for one in propagation_report(mapped, u).values}
    assert value_spec_words(found["sin"]) == "manual: 1 of 8 shards over ('data','model')"
    assert found["tan"].manual_axes.names == ("data",)


def test_values_outside_of_a_shard_map_have_no_manual_axes():
    report = propagation_report(jnp.sin, struct((64, 64), "data"))
    assert {(one.manual_axes, one.in_shard_map) for one in report.values} == {(None, False)}
