"""Contexts in which an array can be inspected, from eager code to shard_map in jit, and the expected reports.

``run`` takes ``inspect`` (a function that inspects a value and returns it), a sharded array, and its mesh of two
axes, a and b. ``source`` is the expected source of the sharding in the report, on the versions of JAX since
``since``. ``called_under`` is the transformation under which the value is traced, or None for a concrete value.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
EVERYWHERE = (0, 0)
PMAP_IS_SHARD_MAP = (0, 8)
HAS_EXPLICIT = (0, 6)
HAS_REFS = (0, 7)
EAGER_PARTIAL_SHARD_MAP = (0, 7)


class Context(NamedTuple):
    """A context that calls a function on an array."""

    run: object
    source: str
    since: tuple = EVERYWHERE
    reports: int = 1
    called_under: str | None = "jit"


CONTEXTS = {}


def context(source, since=EVERYWHERE, reports=1, called_under="jit"):
    """Register a context under the name of its function."""

    def register(run):
        CONTEXTS[run.__name__.replace("_", " ")] = Context(run, source, since, reports, called_under)
        return run

    return register


def shard_map(function, mesh, spec, axis_names=None):
    """Return the function inside shard_map, manual over the given axes or all, on any version of jax."""
    if hasattr(jax, "shard_map"):
        names = {} if axis_names is None else {"axis_names": set(axis_names)}
        return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, **names)
    from jax.experimental.shard_map import shard_map as experimental

    auto = frozenset() if axis_names is None else frozenset(mesh.axis_names) - set(axis_names)
    return experimental(function, mesh=mesh, in_specs=spec, out_specs=spec, auto=auto)


@context("array", called_under=None)
def outside_transformations(inspect, x, mesh):
    return inspect(x)


@context("compiler")
def jit(inspect, x, mesh):
    return jax.jit(inspect)(x)


@context("compiler")
def jit_on_one_device(inspect, x, mesh):
    return jax.jit(inspect)(jnp.zeros((8, 8)))


@context("compiler")
def nested_jit(inspect, x, mesh):
    inner = jax.jit(inspect)
    return jax.jit(lambda y: inner(y + 1))(x)


@context("array", called_under="vmap")
def vmap(inspect, x, mesh):
    return jax.vmap(inspect)(x)


@context("compiler")
def jit_of_vmap(inspect, x, mesh):
    return jax.jit(jax.vmap(inspect, in_axes=1))(x)


@context("compiler")
def vmap_of_jit(inspect, x, mesh):
    return jax.vmap(jax.jit(inspect))(x)


@context("compiler")
def jit_of_nested_vmap(inspect, x, mesh):
    return jax.jit(jax.vmap(jax.vmap(inspect)))(x)


@context("array", called_under="autodiff")
def grad(inspect, x, mesh):
    return jax.grad(lambda y: inspect(y).sum())(x)


@context("array", called_under="autodiff")
def vmap_of_grad(inspect, x, mesh):
    return jax.vmap(jax.grad(lambda y: inspect(y).sum()))(x)


@context("array", called_under="vmap")
def grad_of_vmap(inspect, x, mesh):
    return jax.grad(lambda y: jax.vmap(inspect)(y).sum())(x)


@context("array", called_under="autodiff")
def jvp(inspect, x, mesh):
    return jax.jvp(inspect, (x,), (x,))


@context("array", called_under="autodiff")
def vjp(inspect, x, mesh):
    return jax.vjp(inspect, x)[1](x)


@context("array", called_under="autodiff")
def linearize(inspect, x, mesh):
    return jax.linearize(inspect, x)[1](x)


@context("compiler")
def jit_of_grad(inspect, x, mesh):
    return jax.jit(jax.value_and_grad(lambda y: inspect(jnp.sin(y)).sum()))(x)


@context("compiler")
def scan(inspect, x, mesh):
    return jax.jit(lambda xs: jax.lax.scan(lambda carry, y: (carry, inspect(y)), 0, xs))(x)


@context("compiler")
def scan_without_jit(inspect, x, mesh):
    return jax.lax.scan(lambda carry, y: (carry, inspect(y)), 0, x)


@context("compiler")
def while_loop(inspect, x, mesh):
    return jax.jit(lambda x: jax.lax.while_loop(lambda y: y.sum() < 3, lambda y: inspect(y) + 1, x))(x)


@context("compiler", reports=2)
def cond(inspect, x, mesh):
    return jax.jit(
        lambda x: jax.lax.cond(x.sum() > 0, lambda y: inspect(y) + 1, lambda y: inspect(y) * 2, x)
    )(x)


@context("compiler")
def remat(inspect, x, mesh):
    return jax.jit(jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(inspect(jnp.sin(y))))(x).sum()))(x)


@context("compiler")
def custom_vjp(inspect, x, mesh):
    return _with_custom_vjp(inspect, lambda x: x)(x)


@context("compiler", reports=2)
def custom_vjp_differentiated(inspect, x, mesh):
    function = _with_custom_vjp(inspect, inspect)
    return jax.jit(jax.value_and_grad(lambda x: function(x).sum()))(x)


def _with_custom_vjp(forward, backward):
    function = jax.custom_vjp(lambda x: jnp.sin(forward(x)))
    function.defvjp(lambda x: (jnp.sin(forward(x)), x), lambda x, ct: (backward(ct) * jnp.cos(x),))
    return jax.jit(function)


@context("manual")
def custom_partitioning(inspect, x, mesh):
    from jax.experimental.custom_partitioning import custom_partitioning

    function = custom_partitioning(lambda x: inspect(x * 2))

    def partition(mesh, operands, result):
        return mesh, lambda x: inspect(x * 2), operands[0].sharding, (operands[0].sharding,)

    rules = {"partition": partition, "infer_sharding_from_operands": lambda mesh, args, out: args[0].sharding}
    try:
        function.def_partition(**rules, sharding_rule="i j -> i j")
    except TypeError:  # jax 0.4.38 has no sharding_rule
        function.def_partition(**rules)
    return jax.jit(function)(x)


@context("manual")
def pmap(inspect, x, mesh):
    return jax.pmap(inspect)(jnp.zeros((len(jax.devices()), 8)))


@context("manual")
def shard_map_in_jit(inspect, x, mesh):
    return jax.jit(shard_map(inspect, mesh, P("a")))(x)


@context("manual", called_under="shard_map")
def shard_map_alone(inspect, x, mesh):
    return shard_map(inspect, mesh, P("a"))(x)


@context("manual")
def partial_shard_map(inspect, x, mesh):
    return jax.jit(shard_map(inspect, mesh, P("a"), axis_names=("a",)))(x)


@context("manual", EAGER_PARTIAL_SHARD_MAP, called_under="shard_map")
def partial_shard_map_alone(inspect, x, mesh):
    return shard_map(inspect, mesh, P("a"), axis_names=("a",))(x)


@context("compiler")
def checkify(inspect, x, mesh):
    from jax.experimental import checkify

    return jax.jit(checkify.checkify(inspect))(x)


@context("compiler")
def jit_in_checkify(inspect, x, mesh):
    from jax.experimental import checkify

    return checkify.checkify(jax.jit(inspect))(x)


@context("compiler")
def with_sharding_constraint(inspect, x, mesh):
    sharding = NamedSharding(mesh, P("b", "a"))
    return jax.jit(lambda x: inspect(jax.lax.with_sharding_constraint(x, sharding)))(x)


@context("compiler")
def ahead_of_time(inspect, x, mesh):
    return jax.jit(inspect).lower(x).compile()


@context("compiler")
def ahead_of_time_without_data(inspect, x, mesh):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    return jax.jit(inspect).lower(like).compile()


@context("compiler")
def donated_argument(inspect, x, mesh):
    return jax.jit(lambda x: inspect(x) + 1, donate_argnums=0)(x + 1)


@context("unknown")
def export(inspect, x, mesh):
    from jax import export

    return export.export(jax.jit(inspect))(x)


@context("unknown")
def eval_shape(inspect, x, mesh):
    return jax.eval_shape(inspect, x)


@context("unknown")
def make_jaxpr(inspect, x, mesh):
    return jax.make_jaxpr(inspect)(x)


@context("compiler")
def prng_key(inspect, x, mesh):
    keys = jax.random.split(jax.random.key(0), 8)
    return jax.jit(inspect)(jax.device_put(keys, NamedSharding(mesh, P("a"))))


@context("array", HAS_REFS, called_under=None)
def ref_without_jit(inspect, x, mesh):
    return inspect(jax.new_ref(x))


@context("unknown")
def reducer_function(inspect, x, mesh):
    return jax.lax.reduce(x, 0.0, lambda a, b: inspect(a + b), (0, 1))


@context("unknown", called_under="autodiff")
def jet(inspect, x, mesh):
    from jax.experimental import jet

    return jet.jet(lambda y: jnp.sin(inspect(y)), (x,), ((x,),))


@context("compiler", HAS_REFS)
def ref_in_jit(inspect, x, mesh):
    return jax.jit(lambda ref: inspect(ref)[...])(jax.new_ref(x))


def _explicit(mesh, *axis_types):
    types = tuple(getattr(jax.sharding.AxisType, name) for name in axis_types)
    return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=types)


@context("type", HAS_EXPLICIT)
def explicit_mesh(inspect, x, mesh):
    sharding = NamedSharding(_explicit(mesh, "Explicit", "Explicit"), P("a", "b"))
    return jax.jit(inspect)(jax.device_put(x, sharding))


@context("type", HAS_EXPLICIT)
def mixed_mesh(inspect, x, mesh):
    sharding = NamedSharding(_explicit(mesh, "Explicit", "Auto"), P("a"))
    return jax.jit(inspect)(jax.device_put(x, sharding))


@context("type", HAS_EXPLICIT)
def eval_shape_on_explicit_mesh(inspect, x, mesh):
    sharding = NamedSharding(_explicit(mesh, "Explicit", "Explicit"), P("a", "b"))
    return jax.eval_shape(inspect, jax.device_put(x, sharding))


def expected(name):
    """Return the expected source of a sharding in a context, or None if this version of jax lacks it."""
    found = CONTEXTS[name]
    return found.source if found.since <= VERSION else None
