"""Programs of real kinds with a sharding that is wrong, whose right one is known."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

EVERY = ("data", "model")


def _struct(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


@jax.jit
def lora(adapter, frozen, x):
    """The adapter is sharded over its rank, which is summed."""

    def loss(adapter):
        y = x @ frozen + x @ adapter["a"] @ adapter["b"]
        return (y**2).mean()

    return jax.value_and_grad(loss)(adapter)


def lora_args(mesh):
    adapter = {"a": _struct(mesh, (256, 16), None, "model"), "b": _struct(mesh, (16, 512), "model", None)}
    return adapter, _struct(mesh, (256, 512), None, "model"), _struct(mesh, (4096, 256), "data", None)


@jax.jit
def halo(u, source):
    """The right side of a Poisson equation is sharded over rows, and its solution over columns."""

    def body(u, _):
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0)
        u = (around + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - source) / 4
        return u, jnp.sum(u * u)

    return lax.scan(body, u, length=4)


def halo_args(mesh):
    return _struct(mesh, (512, 512), None, EVERY), _struct(mesh, (512, 512), EVERY, None)


@jax.jit
def poisson(density):
    """A spectral solver in slabs: the second transform is along the sharded dimension."""
    modes = jnp.fft.fft2(density, axes=(1, 2))
    modes = jnp.fft.fft(modes, axis=0)
    return jnp.abs(modes) ** 2


def poisson_args(mesh):
    return _struct(mesh, (64, 64, 64), EVERY, None, None, dtype=jnp.complex64)


def experts(up, x, *, mesh):
    """Tokens go to their experts and back by all-to-all, and are summed along the sequence, which is sharded."""

    @jax.shard_map(mesh=mesh, in_specs=(P(EVERY), P(EVERY)), out_specs=P(EVERY))
    def layer(x, up):
        tokens = x.reshape(8, -1, x.shape[-1])
        tokens = lax.all_to_all(tokens, EVERY, 0, 0)
        tokens = jax.nn.relu(tokens @ up[0])
        tokens = lax.all_to_all(tokens, EVERY, 0, 0)
        return tokens.reshape(x.shape)

    y = layer(x, up).reshape(4, 1024, 256)
    return jnp.cumsum(y, axis=1)


def experts_args(mesh):
    return _struct(mesh, (8, 256, 256), EVERY), _struct(mesh, (4096, 256), EVERY, None)


def decode(caches, weights, x, position):
    """Two heads do not divide over the model axis, so that caches are sharded over the size of a head."""

    def layer(x, one):
        cache, w = one
        q = (x @ w["q"]).reshape(16, 8, 32)
        k = (x @ w["k"]).reshape(16, 1, 2, 32)
        cache = lax.dynamic_update_slice(cache, k, (0, position, 0, 0))
        scores = jnp.einsum("bhgd,bshd->bhgs", q.reshape(16, 2, 4, 32), cache)
        o = jnp.einsum("bhgs,bshd->bhgd", jax.nn.softmax(scores), cache)
        return x + o.reshape(16, 256) @ w["o"], cache

    return lax.scan(layer, x, (caches, weights))


decode = jax.jit(decode, donate_argnums=0)


def decode_args(mesh):
    weights = {
        "q": _struct(mesh, (3, 256, 256)),
        "k": _struct(mesh, (3, 256, 64)),
        "o": _struct(mesh, (3, 256, 256)),
    }
    caches = _struct(mesh, (3, 16, 1024, 2, 32), None, "data", None, None, "model")
    return caches, weights, _struct(mesh, (16, 256), "data"), _struct(mesh, (), dtype=jnp.int32)
