"""A training step. The picture of the README is its source with notes."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def model(params, x):
    hidden = jax.nn.relu(x @ params["up"])
    return hidden @ params["down"]


@partial(jax.jit, donate_argnames="params")
def step(params, x, y):
    loss, grads = jax.value_and_grad(
        lambda params: jnp.mean((model(params, x) - y) ** 2)
    )(params)
    params = jax.tree.map(lambda w, g: w - 0.01 * g, params, grads)
    return params, loss


def arguments(mesh):
    """Return shapes and shardings."""

    def array(shape, *spec):
        sharding = jax.NamedSharding(mesh, P(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    params = {
        "up": array((4096, 16_384), "fsdp", "tensor"),
        "down": array((16_384, 4096), "tensor"),
    }
    x = array((8192, 4096), "fsdp")
    return params, x, x
