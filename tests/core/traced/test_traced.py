"""Reports of traced values while JAX traces, in each transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import array_report, to_json
from jax_array_info_core.reports import BatchAxes
from tests.arrays import mesh_of, sharded


def test_a_traced_value_is_reported_while_tracing():
    reports = []

    @jax.jit
    def function(x):
        reports.append(array_report(x, "x"))
        return x + 1

    function(jnp.zeros((4, 2)))
    [report] = reports
    assert (report.kind, report.shape, report.nbytes, report.source) == ("tracer", (4, 2), 32, "unknown")
    assert (report.sharding, report.value) == (None, None)


def test_a_value_under_vmap_has_its_batched_axis():
    reports = []
    jax.vmap(lambda x: reports.append(array_report(x)) or x, in_axes=1)(jnp.zeros((4, 2)))
    assert (reports[0].shape, reports[0].batch) == ((4,), BatchAxes(axes=(1,), shape=(4, 2)))


def test_symbolic_dimensions_are_strings():
    from jax import export

    (rows,) = export.symbolic_shape("rows")
    reports = []

    def function(x):
        reports.append(array_report(x))
        return x

    export.export(jax.jit(function))(jax.ShapeDtypeStruct((rows, 4), jnp.float32))
    assert (reports[0].shape, reports[0].nbytes) == (("rows", 4), None)
    to_json(reports[0])


def test_traced_keys_and_refs_are_reported():
    reports = []
    jax.jit(lambda key: reports.append(array_report(key)) or key)(jax.random.key(0))
    assert (reports[0].kind, reports[0].dtype, reports[0].nbytes) == ("tracer", "key<fry>", 8)
    if hasattr(jax, "new_ref"):
        jax.jit(lambda ref: reports.append(array_report(ref)) or ref[...])(jax.new_ref(jnp.zeros(3)))
        assert (reports[1].kind, reports[1].shape) == ("tracer", (3,))


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
    report_kinds = []

    def function(x):
        report_kinds.append(array_report(x).kind)
        return x * 2

    TRANSFORMATIONS[name](function)(array)
    assert set(report_kinds) == {"tracer"}


def test_a_value_inside_shard_map_has_the_shape_of_one_shard():
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    count = len(jax.devices())
    mesh = mesh_of((count,), ("a",))
    reports = []

    def function(x):
        reports.append(array_report(x))
        return x

    jax.jit(shard_map(function, mesh=mesh, in_specs=P("a"), out_specs=P("a")))(jnp.zeros((count, 3)))
    assert reports[0].shape == (1, 3)
    assert reports[0].sharding is None, "P() would read as replicated"
    if jax.__version_info__ >= (0, 6, 0):
        assert (reports[0].source, reports[0].varying_axes) == ("manual", ("a",))


def test_explicit_axes_give_a_traced_value_the_sharding_in_its_type():
    if not hasattr(jax, "set_mesh"):
        pytest.skip(f"jax {jax.__version__} has no set_mesh")
    mesh = jax.make_mesh((len(jax.devices()),), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    reports = []

    @jax.jit
    def function(x):
        reports.append(array_report(x))
        return x

    function(jax.device_put(jnp.zeros((8, 8)), NamedSharding(mesh, P("a"))))
    assert (reports[0].source, reports[0].sharding.spec.axes[0]) == ("type", ("a",))
    assert (
        array_report(jax.typeof(jax.device_put(jnp.zeros(8), NamedSharding(mesh, P("a"))))).source == "type"
    )


@pytest.mark.needs_devices(8)
@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="jax.set_mesh exists since JAX 0.7")
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
