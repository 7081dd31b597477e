import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import to_text
from jax_array_info_core import propagation_report
from tests.core.propagation.programs import needs_shardy, origins, struct

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
    assert "P() in shard_map" in to_text(report)
    [opaque] = [one for one in report.caveats if "opaque" in one]
    assert opaque.startswith("pallas_call of test_report_of_shard_maps.py:")
    assert report.unread == ()  # nothing that the report says depends on it


def test_an_interpreted_kernel_propagates_as_the_loop_that_it_is():
    report = propagation_report(lambda x: doubled(x, interpret=True), struct((256, 256), "data"))
    assert report.unread == ()
    assert origins(report.outputs[0]) == {"data": "argument x"}
