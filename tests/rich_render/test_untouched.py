"""Programs that behave the same with and without an inspection: checks, donation, kernels, abstract meshes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import collect_reports, sharding_info, tap_sharding
from tests.arrays import mesh_of, sharded
from tests.contexts import VERSION

pytestmark = pytest.mark.needs_devices(8)


def look(x):
    sharding_info(x, "look")
    return tap_sharding(x, "tap")


def info(x):
    sharding_info(x)
    return x


def abstract(mesh):
    """Return the mesh without its devices. The constructor differs between versions of JAX."""
    return mesh.abstract_mesh


def test_a_program_is_lowered_for_an_abstract_mesh():
    mesh = mesh_of((4, 2), ("a", "b"))
    like = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(abstract(mesh), P("a", "b")))
    with collect_reports() as reports:
        lowered = jax.jit(lambda x: look(x) * 2).trace(like).lower(lowering_platforms=("cpu",))
        assert reports == []
        if VERSION < (0, 8):
            return  # JAX cannot compile a program lowered without devices
        lowered.compile(device_assignment=tuple(jax.devices()[7::-1]))
    for report in reports:
        assert report.sharding.spec.axes == (("a",), ("b",))
        assert report.layout.index_of(7) == (slice(0, 2), slice(0, 4))


def test_a_program_is_lowered_for_several_platforms():
    with collect_reports():
        text = jax.jit(lambda x: look(x) * 2).trace(jnp.ones(3)).lower(lowering_platforms=("cpu", "tpu"))
        assert "InspectSharding" not in text.as_text()


def test_a_call_on_other_devices_is_reported_although_the_lowering_is_cached():
    function = jax.jit(lambda x: look(x) * 2)
    for start in (0, 4):
        mesh = mesh_of((4,), ("a",), jax.devices()[start : start + 4])
        with collect_reports() as reports:
            function(sharded((8,), mesh, "a"))
        assert [report.layout.index_of(start) for report in reports] == [(slice(0, 2),)] * 2
    for device in jax.devices()[1:3]:
        with collect_reports() as reports:
            function(jax.device_put(jnp.ones(8), device))
        assert [report.devices for report in reports] == [(device.id,)] * 2


@pytest.mark.parametrize("option", ["jax_enable_checks", "jax_check_tracer_leaks"])
def test_the_checks_of_jax_pass(option):
    array = sharded((8, 8), mesh_of((8,), ("a",)), "a")
    before = getattr(jax.config, option)
    jax.config.update(option, True)
    try:
        with collect_reports() as reports:
            function = jax.jit(lambda x: jnp.sin(look(x)))
            for way in (function, jax.jit(jax.vmap(function)), jax.grad(lambda x: function(x).sum())):
                way(array)
                way(array)
    finally:
        jax.config.update(option, before)
    assert len(reports) >= 6


def test_a_pallas_kernel_is_unchanged():
    pallas = pytest.importorskip("jax.experimental.pallas")

    def kernel(source, target):
        sharding_info(source)
        target[...] = look(source[...]) * 2

    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    with collect_reports() as reports:
        result = pallas.pallas_call(kernel, out_shape=shape, interpret=True)(jnp.ones((8, 8)))
    np.testing.assert_array_equal(result, np.full((8, 8), 2))
    assert {report.unknown_because for report in reports} == {"a Pallas kernel sees a block"}


@pytest.mark.parametrize(
    "way",
    [
        lambda f: lambda x: jax.lax.fori_loop(0, 2, lambda i, y: f(y), x),
        lambda f: lambda x: jax.lax.map(f, x),
        lambda f: lambda x: jax.lax.switch(1, [f, f], x),
        lambda f: lambda x: jax.lax.associative_scan(lambda a, b: f(a) + b, x),
        lambda f: jax.jacfwd(lambda x: f(x[0])),
        lambda f: jax.jacrev(lambda x: f(x[0])),
        lambda f: jax.hessian(lambda x: (f(x[0]) ** 3).sum()),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: lambda x: jax.vjp(f, x)[1](x),
        lambda f: lambda x: jax.linearize(f, x)[1](x),
        lambda f: lambda x: jax.vmap(f, in_axes=(None,), axis_size=3)(x),
        lambda f: lambda x: jax.vmap(lambda i, y: f(y), in_axes=(0, None))(jnp.arange(3), x),
        lambda f: jax.checkpoint(f, policy=jax.checkpoint_policies.nothing_saveable),
        lambda f: jax.named_call(f, name="named"),
        lambda f: lambda x: jnp.vectorize(f, signature="(n)->(n)")(x),
        lambda f: lambda x: jax.eval_shape(f, x) and x,
    ],
)
@pytest.mark.parametrize("outer", [lambda f: f, jax.jit])
def test_every_transformation_gives_the_same_result(way, outer):
    array = jnp.arange(16.0).reshape(4, 4)
    with collect_reports() as reports:
        inspected = outer(way(lambda x: jnp.sin(look(x))))(array)
    assert reports
    plain = outer(way(jnp.sin))(array)
    jax.tree.map(np.testing.assert_array_equal, inspected, plain)


@pytest.mark.parametrize("function", [info, tap_sharding])
def test_an_inspection_of_a_used_value_leaves_donation_unchanged(function):
    def donated(look):
        x, y = jnp.ones((8, 8)), jnp.ones((8, 8)) * 2
        jitted = jax.jit(lambda x, y: (look(x) + 1, look(x + 1) * y), donate_argnums=(0, 1))
        aliases = jitted.lower(x, y).compile().memory_analysis().alias_size_in_bytes
        jitted(x, y)
        return aliases, x.is_deleted(), y.is_deleted()

    with collect_reports():
        assert donated(function) == donated(lambda x: x)


@pytest.mark.parametrize(
    ("result", "untouched", "with_info"),
    [
        (lambda x, y: jnp.zeros(8), (False, False), (True, False)),  # else JAX drops the argument
        (lambda x, y: y + 1, (False, True), (True, False)),  # JAX donates the first argument that fits
    ],
    ids=["it is kept", "it is donated instead of a later one"],
)
def test_an_argument_that_only_sharding_info_uses_is_donated(result, untouched, with_info):
    """Two documented limits."""
    deleted = []
    for function in (lambda x: x, tap_sharding, info):
        x, y = jnp.ones(8), jnp.ones(8) * 2
        with collect_reports():
            jax.jit(lambda x, y, function=function: (function(x), result(x, y))[1], donate_argnums=(0, 1))(
                x, y
            )
        deleted.append((x.is_deleted(), y.is_deleted()))
    assert deleted == [untouched, untouched, with_info]
