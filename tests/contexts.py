"""Where a function may be called from: each context runs it on one value, and says how its sharding is known.

``run`` takes ``look`` (a function that looks at a value and returns it), a sharded array, and its mesh of two
axes, a and b. ``source`` is the one that is true there, from a version of jax on, ``called_under`` the
transformation that the report names; None where the value is concrete.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
EVERYWHERE = (0, 0)
SHARD_MAP_IS_TYPED = (0, 5)  # before, only what is lowered is known to be inside shard_map
PMAP_IS_SHARD_MAP = (0, 8)
HAS_EXPLICIT = (0, 6)
HAS_REFS = (0, 7)
EAGER_PARTIAL_SHARD_MAP = (0, 7)


class Context(NamedTuple):
    """A way to call a function on an array."""

    run: object
    source: str
    since: tuple = EVERYWHERE
    reports: int = 1
    called_under: str | None = "jit"


CONTEXTS = {}


def context(source, since=EVERYWHERE, reports=1, called_under="jit"):
    """Remember a context by the name of its function."""

    def remember(run):
        CONTEXTS[run.__name__.replace("_", " ")] = Context(run, source, since, reports, called_under)
        return run

    return remember


def shard_map(function, mesh, spec, axis_names=None):
    """Return the function inside shard_map, manual over some axes or all; as each version calls it."""
    if hasattr(jax, "shard_map"):
        names = {} if axis_names is None else {"axis_names": set(axis_names)}
        return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, **names)
    from jax.experimental.shard_map import shard_map as experimental

    auto = frozenset() if axis_names is None else frozenset(mesh.axis_names) - set(axis_names)
    return experimental(function, mesh=mesh, in_specs=spec, out_specs=spec, auto=auto)


@context("array", called_under=None)
def concrete(look, x, mesh):
    return look(x)


@context("compiler")
def jit(look, x, mesh):
    return jax.jit(look)(x)


@context("compiler")
def jit_on_one_device(look, x, mesh):
    return jax.jit(look)(jnp.zeros((8, 8)))


@context("compiler")
def nested_jit(look, x, mesh):
    inner = jax.jit(look)
    return jax.jit(lambda y: inner(y + 1))(x)


@context("array", called_under="vmap")
def vmap(look, x, mesh):
    return jax.vmap(look)(x)


@context("compiler")
def jit_of_vmap(look, x, mesh):
    return jax.jit(jax.vmap(look, in_axes=1))(x)


@context("compiler")
def vmap_of_jit(look, x, mesh):
    return jax.vmap(jax.jit(look))(x)


@context("compiler")
def vmap_of_vmap(look, x, mesh):
    return jax.jit(jax.vmap(jax.vmap(look)))(x)


@context("array", called_under="autodiff")
def grad(look, x, mesh):
    return jax.grad(lambda y: look(y).sum())(x)


@context("array", called_under="autodiff")
def vmap_of_grad(look, x, mesh):
    return jax.vmap(jax.grad(lambda y: look(y).sum()))(x)


@context("array", called_under="vmap")
def grad_of_vmap(look, x, mesh):
    return jax.grad(lambda y: jax.vmap(look)(y).sum())(x)


@context("array", called_under="autodiff")
def jvp(look, x, mesh):
    return jax.jvp(look, (x,), (x,))


@context("array", called_under="autodiff")
def vjp(look, x, mesh):
    return jax.vjp(look, x)[1](x)


@context("array", called_under="autodiff")
def linearize(look, x, mesh):
    return jax.linearize(look, x)[1](x)


@context("compiler")
def jit_of_grad(look, x, mesh):
    return jax.jit(jax.value_and_grad(lambda y: look(jnp.sin(y)).sum()))(x)


@context("compiler")
def scan(look, x, mesh):
    return jax.jit(lambda xs: jax.lax.scan(lambda carry, y: (carry, look(y)), 0, xs))(x)


@context("compiler")
def scan_without_jit(look, x, mesh):
    return jax.lax.scan(lambda carry, y: (carry, look(y)), 0, x)


@context("compiler")
def while_loop(look, x, mesh):
    return jax.jit(lambda x: jax.lax.while_loop(lambda y: y.sum() < 3, lambda y: look(y) + 1, x))(x)


@context("compiler", reports=2)
def cond(look, x, mesh):
    return jax.jit(lambda x: jax.lax.cond(x.sum() > 0, lambda y: look(y) + 1, lambda y: look(y) * 2, x))(x)


@context("compiler")
def remat(look, x, mesh):
    return jax.jit(jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(look(jnp.sin(y))))(x).sum()))(x)


@context("compiler")
def custom_vjp(look, x, mesh):
    return _with_custom_vjp(look, lambda x: x)(x)


@context("compiler", reports=2)
def custom_vjp_differentiated(look, x, mesh):
    function = _with_custom_vjp(look, look)
    return jax.jit(jax.value_and_grad(lambda x: function(x).sum()))(x)


def _with_custom_vjp(forward, backward):
    function = jax.custom_vjp(lambda x: jnp.sin(forward(x)))
    function.defvjp(lambda x: (jnp.sin(forward(x)), x), lambda x, ct: (backward(ct) * jnp.cos(x),))
    return jax.jit(function)


@context("manual")
def custom_partitioning(look, x, mesh):
    from jax.experimental.custom_partitioning import custom_partitioning

    function = custom_partitioning(lambda x: look(x * 2))

    def partition(mesh, operands, result):
        return mesh, lambda x: look(x * 2), operands[0].sharding, (operands[0].sharding,)

    rules = {"partition": partition, "infer_sharding_from_operands": lambda mesh, args, out: args[0].sharding}
    try:
        function.def_partition(**rules, sharding_rule="i j -> i j")
    except TypeError:  # jax 0.4.38 has no sharding_rule
        function.def_partition(**rules)
    return jax.jit(function)(x)


@context("manual")
def pmap(look, x, mesh):
    return jax.pmap(look)(jnp.zeros((len(jax.devices()), 8)))


@context("manual")
def shard_map_in_jit(look, x, mesh):
    return jax.jit(shard_map(look, mesh, P("a")))(x)


@context("manual", called_under="shard_map")
def shard_map_alone(look, x, mesh):
    return shard_map(look, mesh, P("a"))(x)


@context("manual")
def partial_shard_map(look, x, mesh):
    return jax.jit(shard_map(look, mesh, P("a"), axis_names=("a",)))(x)


@context("manual", EAGER_PARTIAL_SHARD_MAP, called_under="shard_map")
def partial_shard_map_alone(look, x, mesh):
    return shard_map(look, mesh, P("a"), axis_names=("a",))(x)


@context("compiler")
def checkify(look, x, mesh):
    from jax.experimental import checkify

    return jax.jit(checkify.checkify(look))(x)


@context("compiler")
def jit_in_checkify(look, x, mesh):
    from jax.experimental import checkify

    return checkify.checkify(jax.jit(look))(x)


@context("compiler")
def with_sharding_constraint(look, x, mesh):
    sharding = NamedSharding(mesh, P("b", "a"))
    return jax.jit(lambda x: look(jax.lax.with_sharding_constraint(x, sharding)))(x)


@context("compiler")
def ahead_of_time(look, x, mesh):
    return jax.jit(look).lower(x).compile()


@context("compiler")
def ahead_of_time_without_data(look, x, mesh):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    return jax.jit(look).lower(like).compile()


@context("compiler")
def donated_argument(look, x, mesh):
    return jax.jit(lambda x: look(x) + 1, donate_argnums=0)(x + 1)


@context("unknown")
def export(look, x, mesh):
    from jax import export

    return export.export(jax.jit(look))(x)


@context("unknown")
def eval_shape(look, x, mesh):
    return jax.eval_shape(look, x)


@context("unknown")
def make_jaxpr(look, x, mesh):
    return jax.make_jaxpr(look)(x)


@context("compiler")
def key(look, x, mesh):
    keys = jax.random.split(jax.random.key(0), 8)
    return jax.jit(look)(jax.device_put(keys, NamedSharding(mesh, P("a"))))


@context("array", HAS_REFS, called_under=None)
def ref(look, x, mesh):
    return look(jax.new_ref(x))


@context("unknown")
def reducer(look, x, mesh):
    return jax.lax.reduce(x, 0.0, lambda a, b: look(a + b), (0, 1))


@context("unknown", called_under="autodiff")
def jet(look, x, mesh):
    from jax.experimental import jet

    return jet.jet(lambda y: jnp.sin(look(y)), (x,), ((x,),))


@context("compiler", HAS_REFS)
def ref_in_jit(look, x, mesh):
    return jax.jit(lambda ref: look(ref)[...])(jax.new_ref(x))


def _explicit(mesh, *kinds):
    types = tuple(getattr(jax.sharding.AxisType, kind) for kind in kinds)
    return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=types)


@context("type", HAS_EXPLICIT)
def explicit_mesh(look, x, mesh):
    sharding = NamedSharding(_explicit(mesh, "Explicit", "Explicit"), P("a", "b"))
    return jax.jit(look)(jax.device_put(x, sharding))


@context("type", HAS_EXPLICIT)
def mixed_mesh(look, x, mesh):
    sharding = NamedSharding(_explicit(mesh, "Explicit", "Auto"), P("a"))
    return jax.jit(look)(jax.device_put(x, sharding))


@context("type", HAS_EXPLICIT)
def eval_shape_on_explicit_mesh(look, x, mesh):
    sharding = NamedSharding(_explicit(mesh, "Explicit", "Explicit"), P("a", "b"))
    return jax.eval_shape(look, jax.device_put(x, sharding))


def expected(name):
    """Return how a sharding is known in a context, None where this jax lacks it."""
    found = CONTEXTS[name]
    return found.source if found.since <= VERSION else None
