"""Programs with shardings that cost something. Each function returns a jitted function, and its arguments."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Program = tuple[Any, tuple[Any, ...]]
mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


def shaped(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def norm(x: Any) -> Any:
    """It is computed at several places: a constraint in it is one at each of them."""
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def layer(p: Any, x: Any) -> Any:
    h = norm(x) @ p["up"]
    h = jax.nn.gelu(h)
    return x + norm(h) @ p["down"]


def layers_of(count: int | None) -> dict[str, Any]:
    """Return the weights of a layer, or of several in one array."""
    lead: tuple[int, ...] = () if count is None else (count,)
    none = (None,) * len(lead)
    return {
        "up": shaped((*lead, 64, 256), *none, "data", "model"),
        "down": shaped((*lead, 256, 64), *none, "model", "data"),
    }


def unrolled() -> Program:
    """A training step of two layers that donates its weights."""

    def step(p: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            h = x
            for one in p:
                h = layer(one, h)
            return (h * h).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p))

    return jax.jit(step, donate_argnums=0), ([layers_of(None), layers_of(None)], shaped((512, 64), "data"))


def scanned() -> Program:
    """A gradient through a scan whose layers are computed again."""

    def loss(p: Any, x: Any) -> Any:
        @jax.checkpoint
        def body(h: Any, one: Any) -> Any:
            return layer(one, h), None

        h, _ = lax.scan(body, x, p)
        return (h * h).mean()

    return jax.jit(jax.value_and_grad(loss)), (layers_of(3), shaped((512, 64), "data"))


def deposit() -> Program:
    """A scatter of particles into cells that are replicated."""

    def f(position: Any, mass: Any) -> Any:
        cell = jnp.floor(position * 64).astype(jnp.int32)
        density = jnp.zeros((64, 64, 64)).at[cell[:, 0], cell[:, 1], cell[:, 2]].add(mass)
        return jnp.cumsum(density - density.mean(), axis=2)

    particles = ("data", "model")
    return jax.jit(f), (shaped((16384, 3), particles), shaped((16384,), particles))


def carried() -> Program:
    """A scan whose carry is transposed."""

    def f(ws: Any, x: Any) -> Any:
        def body(h: Any, w: Any) -> Any:
            h = jnp.tanh(h @ w)
            return jnp.transpose(h), None

        return lax.scan(body, x, ws)[0]

    return jax.jit(f), (shaped((6, 512, 512)), shaped((512, 512), "data"))


def transformed() -> Program:
    """Parts in which no expression has a constraint, and a Fourier transform."""

    def f(w: Any, x: Any) -> Any:
        y = jax.vmap(lambda row: jnp.tanh(row @ w))(x)
        z = jax.shard_map(
            lambda one: one * 2 + jnp.sin(one), mesh=mesh, in_specs=P("data"), out_specs=P("data")
        )(y)
        for _ in range(2):
            z = jnp.tanh(z)
        return jnp.abs(jnp.fft.fft(z @ w.T, axis=0))

    return jax.jit(f), (shaped((64, 128), None, "model"), shaped((128, 64), "data"))


ALL: tuple[Callable[[], Program], ...] = (unrolled, scanned, deposit, carried, transformed)
