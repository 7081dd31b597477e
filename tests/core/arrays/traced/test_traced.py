"""Reports of traced values while JAX traces, in each transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import array_report, to_json
from jax_array_info_core.reports import BatchAxes
from tests.arrays import mesh_of, sharded
from tests.contexts import shard_map


def reports_in(trace, inspect=array_report):
    """Return the reports of a value in each run of a function, which a transformation traces."""
    reports = []
    trace(lambda x: reports.append(inspect(x)) or x)
    return reports


def test_a_traced_value_is_reported_while_tracing():
    [report] = reports_in(lambda f: jax.jit(f)(jnp.zeros((4, 2))), lambda x: array_report(x, "x"))
    assert (report.name, report.kind, report.shape, report.nbytes) == ("x", "tracer", (4, 2), 32)
    assert (report.source, report.sharding, report.value) == ("unknown", None, None)


def test_a_value_under_vmap_has_its_batched_axis():
    [report] = reports_in(lambda f: jax.vmap(f, in_axes=1)(jnp.zeros((4, 2))))
    assert (report.shape, report.batch) == ((4,), BatchAxes(axes=(1,), shape=(4, 2)))


def test_symbolic_dimensions_are_strings():
    (rows,) = export.symbolic_shape("rows")
    struct = jax.ShapeDtypeStruct((rows, 4), jnp.float32)
    [report] = reports_in(lambda f: export.export(jax.jit(f))(struct))
    assert (report.shape, report.nbytes) == (("rows", 4), None)
    to_json(report)


def test_traced_keys_and_refs_are_reported():
    [report] = reports_in(lambda f: jax.jit(f)(jax.random.key(0)))
    assert (report.kind, report.dtype, report.nbytes) == ("tracer", "key<fry>", 8)
    if hasattr(jax, "new_ref"):
        [report] = reports_in(lambda f: jax.jit(lambda ref: f(ref)[...])(jax.new_ref(jnp.zeros(3))))
        assert (report.kind, report.shape) == ("tracer", (3,))


TRANSFORMATIONS = {
    "jit": lambda f: jax.jit(f),
    "vmap": lambda f: jax.vmap(f),
    "jit of vmap": lambda f: jax.jit(jax.vmap(f)),
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "remat": lambda f: jax.checkpoint(f),
    "scan": lambda f: lambda x: jax.lax.scan(lambda carry, y: (carry, f(y)), 0, x)[1],
    "cond": lambda f: lambda x: jax.lax.cond(True, f, f, x),
    "while": lambda f: lambda x: jax.lax.while_loop(lambda y: False, f, x),
    "eval_shape": lambda f: lambda x: jax.eval_shape(f, x),
    "make_jaxpr": lambda f: lambda x: jax.make_jaxpr(f)(x),
    "pmap": lambda f: jax.pmap(f),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_report_inside_a_transformation_does_not_break_it(name):
    count = len(jax.devices())
    array = sharded((count, count, 2), mesh_of((count,), ("a",)), "a")
    reports = reports_in(lambda f: TRANSFORMATIONS[name](lambda x: f(x) * 2)(array))
    assert {report.kind for report in reports} == {"tracer"}


def test_a_value_inside_shard_map_has_the_shape_of_one_shard():
    count = len(jax.devices())
    mesh = mesh_of((count,), ("a",))
    [report, *_] = reports_in(lambda f: jax.jit(shard_map(f, mesh, P("a")))(jnp.zeros((count, 3))))
    assert report.shape == (1, 3)
    assert report.sharding is None, "P() would read as replicated"
    if jax.__version_info__ >= (0, 6, 0):
        assert (report.source, report.varying_axes) == ("manual", ("a",))


has_set_mesh = pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="jax.set_mesh exists since JAX 0.7")


@has_set_mesh
def test_explicit_axes_give_a_traced_value_the_sharding_in_its_type():
    mesh = jax.make_mesh((len(jax.devices()),), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    array = jax.device_put(jnp.zeros((8, 8)), NamedSharding(mesh, P("a")))
    [report] = reports_in(lambda f: jax.jit(f)(array))
    assert (report.source, report.sharding.spec.axes[0]) == ("type", ("a",))
    assert array_report(jax.typeof(array)).source == "type"


@pytest.mark.needs_devices(8)
@has_set_mesh
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (P("a", "b"), "P('a', 'b')"),
        (P("a"), "P('a',)"),
        (P(None, ("b", "a")), "P(None, ('b', 'a'))"),
        (P(), "P()"),
    ],
)
def test_explicit_axes_have_the_spec_as_written_and_the_devices_of_set_mesh(spec, words):
    types = (jax.sharding.AxisType.Explicit,) * 2
    devices = np.array(jax.devices()[:8])[::-1].reshape(4, 2)
    mesh = Mesh(devices, ("a", "b"), axis_types=types)
    x = jax.device_put(jnp.zeros((8, 8, 8)), NamedSharding(mesh, spec))
    reports = []

    def function(x):
        reports.append(array_report(x))
        return x

    jax.jit(function)(x)
    with jax.set_mesh(mesh):
        jax.jit(function)(x)
        jax.eval_shape(lambda x: function(x), x)
    # The mesh of another type is not the one of the value.
    with jax.set_mesh(Mesh(devices, ("a", "b"))):
        jax.eval_shape(lambda x: function(x), jax.ShapeDtypeStruct(x.shape, x.dtype))
    assert [str(report.sharding.spec) for report in reports[:3]] == [words] * 3
    assert [report.layout.platform for report in reports[:3]] == [None, "cpu", "cpu"]
    assert [report.layout.device_ids.ravel()[0] for report in reports[:3]] == [0, 7, 7]
    assert reports[1].layout == array_report(x).layout
    assert (reports[3].source, reports[3].layout) == ("unknown", None)
