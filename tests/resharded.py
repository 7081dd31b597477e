"""Programs whose values XLA can only reshard by replication, and programs that look alike and are right."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.arrays import per_shard

BEFORE = P("y", None, "x")
AFTER = P(None, ("x", "y"))
"""XLA has no direct way between these, on a mesh of x=4 and y=2."""


def grid():
    """Return a mesh of x=4 and y=2."""
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))


def to(value, *spec):
    """Return a value with a constraint."""
    return jax.lax.with_sharding_constraint(value, NamedSharding(grid(), P(*spec)))


def array(spec, *shape, dtype="float32"):
    """Return the type of an array."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(grid(), spec))


def running_sum(x):
    return to(jnp.cumsum(x, axis=1), *AFTER)


def moment(first, gradient):
    return to(0.9 * first + 0.1 * jnp.swapaxes(gradient, 0, 2), *AFTER)


def chosen(a, b):
    return to(jnp.where(a > 0, a, to(b, *BEFORE)), *AFTER)


def projected(x, w):
    return to((to(x, *BEFORE) @ w).astype(jnp.bfloat16), *AFTER)


def joined(a, b):
    return to(jnp.concatenate([to(a, *BEFORE), to(b, *BEFORE)], 1), *AFTER)


def pooled(x):
    window = (1, 2, 1)
    return to(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID"), *AFTER)


def flags(x):
    return to(jnp.bitwise_xor(x, 3), *AFTER)


def layers(x, weights):
    def layer(h, w):
        return to(to(jax.nn.gelu(h @ w), *BEFORE), *AFTER), None

    return jax.lax.scan(layer, x, weights)[0]


def called(x):
    return jax.jit(lambda z: to(z * 3, *AFTER))(jnp.exp(x))


def dropped(key, x):
    return to(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape) * x, *AFTER)


REPLICATED = {
    "running sum": lambda: (running_sum, array(BEFORE, 16, 64, 16)),
    "moment of a transposed gradient": lambda: (
        moment,
        array(AFTER, 16, 16, 16),
        array(P("x", None, "y"), 16, 16, 16),
    ),
    "choice": lambda: (chosen, array(AFTER, 16, 16, 16), array(BEFORE, 16, 16, 16)),
    "tensor parallelism": lambda: (
        projected,
        array(BEFORE, 16, 16, 64, dtype="bfloat16"),
        array(P(None, "x"), 64, 32, dtype="bfloat16"),
    ),
    "concatenation": lambda: (joined, array(BEFORE, 16, 8, 16), array(BEFORE, 16, 8, 16)),
    "pooling": lambda: (pooled, array(BEFORE, 16, 32, 16)),
    "bytes": lambda: (flags, array(BEFORE, 16, 16, 16, dtype="int8")),
    "scanned layers": lambda: (layers, array(AFTER, 16, 16, 16), array(P(), 3, 16, 16)),
    "call": lambda: (called, array(BEFORE, 16, 16, 16)),
    "dropout": lambda: (dropped, array(P(), 2, dtype="uint32"), array(BEFORE, 16, 16, 16)),
}
"""Each: a function that returns a function and its arguments."""


def convolved(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return to(
        jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers),
        None,
        None,
        None,
        ("x", "y"),
    )


def attended(x, w):
    scores = to(jnp.einsum("bsd,dhk->bhsk", to(x, "y", "x"), w), None, ("x", "y"))
    return jax.nn.softmax(scores, -1)


def predicted(x, head):
    """The weights are gathered over x, and each device takes its columns along y, of which one is padding."""
    return to(x @ head, "x", "y")


def cached(keys, new, at):
    return to(jax.lax.dynamic_update_slice(keys, new, (0, at, 0, 0)), None, None, ("x", "y"))


def routed(x, chances):
    return to(jnp.einsum("tec,td->ecd", chances, x), None, ("x", "y")) * 1.5


def best(x):
    return to(jax.lax.top_k(x, 8)[0], None, ("x", "y"))


def window(x, at):
    """Each device takes the same part of the whole, at a place that is data."""
    return jax.lax.dynamic_slice(to(x * 2, *BEFORE), (at, 0, 0), (8, 16, 16))


def summed(x):
    """Each device takes all values up to the last one of its shard: the sharding stays."""
    return to(jnp.cumsum(x, 0), ("x", "y"))


def neighbors(x):
    """Each device takes the part of another one."""

    def of_shard(x):
        whole = jax.lax.all_gather(x, "x", tiled=True)
        following = (jax.lax.axis_index("x") + 1) % 4
        return x * jax.lax.dynamic_slice_in_dim(whole, following * x.shape[0], x.shape[0])

    return per_shard(of_shard, grid(), P("x"), P("x"))(x)


def checked(x):
    """A callback runs on one device."""

    def check(is_wrong):
        assert not is_wrong
        return np.zeros((16, 16, 16), np.float32)

    zeros = jax.pure_callback(check, jax.ShapeDtypeStruct((16, 16, 16), jnp.float32), jnp.isnan(x).any())
    return to(x + zeros, *BEFORE)


RIGHT = {
    "convolution": lambda: (convolved, array(P("y", None, "x"), 8, 16, 16, 8), array(P(), 3, 3, 8, 16)),
    "attention": lambda: (attended, array(P("y", "x"), 8, 32, 64), array(P(), 64, 8, 16)),
    "uneven vocabulary": lambda: (predicted, array(P("x"), 32, 64), array(P("x"), 64, 57)),
    "cache": lambda: (
        cached,
        array(BEFORE, 8, 64, 8, 16),
        array(BEFORE, 8, 1, 8, 16),
        jax.ShapeDtypeStruct((), "int32"),
    ),
    "experts": lambda: (routed, array(P("y", "x"), 64, 32), array(P("y"), 64, 4, 16)),
    "largest elements": lambda: (best, array(P("y", "x"), 16, 16, 64)),
    "window of all": lambda: (window, array(BEFORE, 16, 16, 16), jax.ShapeDtypeStruct((), "int32")),
    "running sum of shards": lambda: (summed, array(P(("x", "y")), 64, 16)),
    "parts of neighbors": lambda: (neighbors, array(P("x"), 64, 8)),
}
"""Programs without such a value, like ``REPLICATED``."""

CALLBACK = {"callback": lambda: (checked, array(BEFORE, 16, 16, 16))}
"""A value that one device has, which XLA may warn of: no constraint changes that."""
