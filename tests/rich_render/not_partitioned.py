"""A program that inspects values inside functions that XLA does not partition, and prints the reports.

It runs in a process of its own, because XLA aborts the process when asked for a sharding there.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.lax.windowed_reductions import _select_and_scatter as select_and_scatter
from jax.experimental import jet
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import collect_reports, sharding_info, tap_sharding

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
x = jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("a", "b")))
ZERO = jnp.float32(0)
PADDING = ((0, 0), (0, 0))


def shared(look, x):
    """Call one jitted function from a reducer and from elsewhere. Older versions of JAX lower it only once."""
    inner = jax.jit(lambda y: look(y) * 1.0)
    inner(ZERO)
    return inner(x.sum()) + lax.reduce(x, ZERO, lambda a, b: inner(a + b), (0,))


def inlined(look, x):
    """Call a jitted function in a reducer, where its trace comes from the cache of JAX."""
    inner = jax.jit(lambda y: look(y) * 1.0, inline=True)
    inner(ZERO)
    return lax.reduce(x, ZERO, lambda a, b: inner(a + b), (0,))


WAYS = {
    "reduce": lambda look, x: lax.reduce(x, 0.0, lambda a, b: look(a + b), (0,)),
    "reduce of two": lambda look, x: lax.reduce(
        (x, x), (0.0, 1.0), lambda a, b: (look(a[0] + b[0]), a[1] * b[1]), (0,)
    ),
    "reduce, differentiated": lambda look, x: jax.grad(
        lambda x: lax.reduce(x, 0.0, lambda a, b: look(a + b), (0,)).sum()
    )(x),
    "loop in a reduce": lambda look, x: lax.reduce(
        x, 0.0, lambda a, b: lax.fori_loop(0, 1, lambda i, y: look(y), a + b), (0,)
    ),
    "reduce_window": lambda look, x: lax.reduce_window(
        x, 0.0, lambda a, b: look(a + b), (2, 2), (1, 1), "SAME"
    ),
    "scatter_apply": lambda look, x: x.at[jnp.array([0, 1])].apply(lambda y: look(y + 1)),
    "select": lambda look, x: select_and_scatter(
        x, lambda a, b: look(a) >= b, (2, 2), (2, 2), PADDING, x[:4, :4], 0.0, lax.add
    ),
    "scatter": lambda look, x: select_and_scatter(
        x, lax.ge, (2, 2), (2, 2), PADDING, x[:4, :4], 0.0, lambda a, b: look(a + b)
    ),
    "shared": shared,
    "inlined": inlined,
    "jet": lambda look, x: jet.jet(lambda x: jnp.sin(look(x)), (x,), ((x, x),)),
}


def look(x):
    sharding_info(x)
    return x


for name, way in WAYS.items():
    plain = jax.jit(lambda x, way=way: way(lambda y: y, x))(x)
    # In a reducer, JAX rejects a function that it has already traced with an effect.
    for function in (tap_sharding,) if name in ("shared", "inlined") else (tap_sharding, look):
        with collect_reports() as reports:
            inspected = jax.jit(lambda x, way=way, function=function: way(function, x))(x)
            jax.tree.map(np.testing.assert_array_equal, inspected, plain)
        print(name, *(report.unknown_because or report.source for report in reports), sep="|")
