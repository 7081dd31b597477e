"""Equinox and Optax: a diffusion model, data-parallel; its noise is made whole on each device."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

BATCH, SIZE, CHANNELS = 32, 32, 16
optimizer = optax.sgd(1e-3, momentum=0.9)


class Net(eqx.Module):
    first: eqx.nn.Conv2d
    middle: eqx.nn.Conv2d
    last: eqx.nn.Conv2d

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(3, CHANNELS, 3, padding=1, key=keys[0])
        self.middle = eqx.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, key=keys[1])
        self.last = eqx.nn.Conv2d(CHANNELS, 3, 3, padding=1, key=keys[2])

    def __call__(self, image, level):
        return self.last(jax.nn.silu(self.middle(jax.nn.silu(self.first(image) + level))))


@functools.partial(jax.jit, donate_argnums=(0, 1), static_argnames="mesh")
def step(net, moments, images, key, mesh):
    levels_key, noise_key = jax.random.split(key)
    levels = jax.random.uniform(levels_key, (BATCH, 1, 1, 1))
    noise = jax.random.normal(noise_key, images.shape)
    images = jax.lax.with_sharding_constraint(images, NamedSharding(mesh, P()))
    noisy = jnp.sqrt(1 - levels) * images + jnp.sqrt(levels) * noise

    def loss(net):
        return jnp.mean((jax.vmap(net)(noisy, levels[:, 0]) - noise) ** 2)

    gradient = jax.grad(loss)(net)
    updates, moments = optimizer.update(gradient, moments)
    return eqx.apply_updates(net, updates), moments


def step_args(mesh):
    def struct(leaf, *spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, P(*spec)))

    net = jax.tree.map(struct, eqx.filter_eval_shape(Net, jax.random.key(0)))
    moments = jax.tree.map(struct, jax.eval_shape(optimizer.init, net))
    images = jax.ShapeDtypeStruct((BATCH, 3, SIZE, SIZE), jnp.float32)
    return net, moments, struct(images, ("data", "model")), struct(jax.eval_shape(jax.random.key, 0))
