"""Loops around ``shard_map``: propagation gives the shardings of the compiled program, and their origins."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import propagation_report
from jax_array_info_core.geometry.layouts.spec import Spec, placement
from tests.core.programs.propagation.programs import needs_shardy

pytestmark = [*needs_shardy, pytest.mark.needs_devices(8)]

LOOPS = {
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "scan": lambda f: lambda u: lax.scan(lambda c, _: (f(c), None), u, None, length=4)[0],
    "scan of xs": lambda f: lambda u: lax.scan(lambda c, x: (f(c) + x[:, None], x), u, u)[0],
    "scan to ys": lambda f: lambda u: lax.scan(lambda c, _: (c + 1, f(c)), u, None, length=3)[1][0],
    "unrolled scan": lambda f: lambda u: lax.scan(lambda c, _: (f(c), None), u, None, length=4, unroll=2)[0],
    "scan of checkpoint": lambda f: LOOPS["scan"](jax.checkpoint(f)),
    "scan of jit": lambda f: LOOPS["scan"](jax.jit(lambda u: f(jax.jit(f)(u)))),
    "scan of cond": lambda f: LOOPS["scan"](LOOPS["cond"](f)),
    "nested scan": lambda f: LOOPS["scan"](LOOPS["scan"](f)),
    "fori_loop": lambda f: lambda u: lax.fori_loop(0, 5, lambda _, c: f(c), u),
    "while_loop": lambda f: lambda u: lax.while_loop(lambda c: c.sum() < 9, f, u),
    "cond": lambda f: lambda u: lax.cond(u[0, 0] > 0, f, lambda v: v, u),
    "map": lambda f: lambda u: lax.map(lambda number: f(u + number), jnp.arange(3.0))[0],
}


def mesh_of(*sizes, names=("a", "b")):
    """Return a mesh of 8 devices."""
    return Mesh(np.reshape(jax.devices()[:8], sizes), names)


def mapped(body, spec, *axis_names):
    """Return a function inside of a ``shard_map``, which is manual over all mesh axes if none are named."""
    names = {"axis_names": {*axis_names}} if axis_names else {}
    return lambda u: jax.shard_map(body, mesh=mesh_of(4, 2), in_specs=spec, out_specs=spec, **names)(u)


def neighbor(part):
    """Add the neighbor's part."""
    return part + lax.ppermute(part, "a", [(number, (number + 1) % 4) for number in range(4)])


BODIES = {
    "whole": mapped(lambda u: jnp.tanh(u + lax.psum(u, "a")), P("a")),
    "halo": mapped(neighbor, P("a", "b")),
    "partial": mapped(lambda u: jnp.tanh(u + lax.psum(u, "a")), P("a"), "a"),
    "partial, replicated": mapped(lambda u: u + lax.psum(u, "b"), P(), "b"),
    "behind a call": lambda u: BODIES["whole"](jax.jit(jnp.sin)(u)),
    "with a loop": mapped(lambda u: lax.fori_loop(0, 3, lambda _, c: neighbor(c), u), P("a")),
}


def struct_of(mesh, shape, *spec):
    """Return the type of an array on the devices of a mesh."""
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def kinds(row):
    """Return what kind of origin each mesh axis of a value has."""
    return {axis.mesh_axis: axis.kind for axis in row.axes}


def assert_as_compiled(function, *arguments):
    """Check the shardings of outputs, and return the report."""
    lowered = jax.jit(function).lower(*arguments)
    report = propagation_report(lowered)
    assert report.reason is None
    sizes = dict(arguments[0].sharding.mesh.shape)
    compiled = jax.tree.leaves(lowered.compile().output_shardings)
    for leaf, sharding in zip(report.outputs, compiled, strict=True):
        entries = tuple((one,) if isinstance(one, str) else tuple(one or ()) for one in sharding.spec)
        found = [placement(spec, sizes) for spec in (leaf.spec, Spec(entries))]
        assert found[0] == found[1], (leaf.path, str(leaf.spec), sharding.spec)
    return report


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_around_a_shard_map_and_its_gradient_have_answers(loop, body):
    function = LOOPS[loop](BODIES[body])
    for spec in ((), ("b", "a")):
        argument = struct_of(mesh_of(4, 2), (16, 16), *spec)
        assert propagation_report(function, argument).reason is None
    if loop != "while_loop":
        gradient = jax.grad(lambda u: (function(u) ** 2).sum())
        assert propagation_report(gradient, argument).reason is None


@pytest.mark.parametrize("body", ["whole", "halo", "partial", "with a loop"])
def test_values_in_a_loop_have_the_origins_that_they_have_outside(body):
    for spec in ((), ("a",), ("b", "a")):
        argument = struct_of(mesh_of(4, 2), (16, 16), *spec)
        outside = propagation_report(BODIES[body], argument)
        for loop in ("jit", "checkpoint", "scan", "nested scan", "fori_loop", "while_loop"):
            report = propagation_report(LOOPS[loop](BODIES[body]), argument)
            for one, other in zip(
                (*report.arguments, *report.outputs), (*outside.arguments, *outside.outputs), strict=True
            ):
                assert (str(one.spec), kinds(one)) == (str(other.spec), kinds(other)), (loop, spec)


@pytest.mark.parametrize("body", ["whole", "partial"])
@pytest.mark.parametrize("loop", ["nested scan", "fori_loop", "while_loop", "scan of checkpoint"])
def test_outputs_of_a_loop_are_sharded_as_compiled(loop, body):
    assert_as_compiled(LOOPS[loop](BODIES[body]), struct_of(mesh_of(4, 2), (16, 16), "b", "a"))


def heat(u):
    """Step a partial differential equation, with the rows of both neighbors."""

    def part(u):
        above = lax.ppermute(u[-1:], "z", [(number, (number + 1) % 8) for number in range(8)])
        below = lax.ppermute(u[:1], "z", [(number, (number - 1) % 8) for number in range(8)])
        rows = jnp.concatenate([above, u, below])
        return u + 0.1 * (rows[2:] - 2 * u + rows[:-2])

    mesh = mesh_of(8, names=("z",))
    return jax.shard_map(part, mesh=mesh, in_specs=P("z"), out_specs=P("z"))(u)


def bodies(x, v):
    """Move bodies for a time; their positions go around a ring."""

    def forces(x):
        def ring(_, carried):
            total, other = carried
            apart = x[:, None] - other[None]
            total += (apart / (1e-3 + (apart**2).sum(-1, keepdims=True))).sum(1)
            return total, lax.ppermute(other, "z", [(number, (number + 1) % 8) for number in range(8)])

        return lax.fori_loop(0, 8, ring, (x * 0, x))[0]

    def step(state):
        x, v, time = state
        v -= 0.01 * jax.shard_map(forces, mesh=x_mesh, in_specs=P("z"), out_specs=P("z"))(x)
        return x + 0.01 * v, v, time + 0.01

    x_mesh = mesh_of(8, names=("z",))
    return lax.while_loop(lambda state: state[2] < 1, step, (x, v, jnp.float32(0)))


def layers(experts, weights, x):
    """Return what layers of experts make of tokens, which move to their expert and back."""
    mesh = mesh_of(2, 4, names=("data", "expert"))

    def part(experts, x):
        sent = lax.all_to_all(x.reshape(4, -1, x.shape[-1]), "expert", 0, 0)
        return lax.all_to_all(jax.nn.relu(sent @ experts[0]), "expert", 0, 0).reshape(x.shape)

    @jax.checkpoint
    def layer(h, one):
        specs = P("expert"), P(("data", "expert"))
        moved = jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=specs[1])
        return h + moved(one[0], jnp.tanh(h @ one[1])), None

    return lax.scan(layer, x, (experts, weights))[0]


def test_programs_of_this_shape_are_sharded_as_compiled():
    ring = functools.partial(struct_of, mesh_of(8, names=("z",)))
    report = assert_as_compiled(lambda u: lax.fori_loop(0, 100, lambda _, u: heat(u), u), ring((64, 8), "z"))
    assert kinds(report.outputs[0]) == {"z": "shard_map"}
    assert_as_compiled(jax.grad(lambda u: LOOPS["scan of checkpoint"](heat)(u).sum()), ring((64, 8), "z"))
    assert_as_compiled(bodies, ring((64, 3), "z"), ring((64, 3), "z"))
    on_grid = functools.partial(struct_of, mesh_of(2, 4, names=("data", "expert")))
    arguments = (
        on_grid((3, 4, 16, 16), None, "expert"),
        on_grid((3, 16, 16), None, None, "expert"),
        on_grid((64, 16), "data"),
    )
    assert_as_compiled(layers, *arguments)
    assert_as_compiled(jax.grad(lambda *one: (layers(*one) ** 2).mean(), argnums=(0, 1)), *arguments)
