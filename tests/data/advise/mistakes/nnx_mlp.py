"""Flax NNX: blocks of a tensor-parallel MLP, trained with Adam; the constraint of the hidden values forgets ``model``."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, HIDDEN, LAYERS = 256, 1024, 2
optimizer = optax.adam(1e-3)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, HIDDEN, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, WIDTH, rngs=rngs)

    def __call__(self, x):
        hidden = nnx.gelu(self.up(self.norm(x)))
        hidden = jax.lax.with_sharding_constraint(hidden, P("data", None))
        return x + self.down(hidden)


class Model(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])

    def __call__(self, x):
        for block in self.blocks:
            x = jax.lax.with_sharding_constraint(block(x), P("data"))
        return x


graph, _ = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, moments, x, y):
    def loss(params):
        return jnp.mean((nnx.merge(graph, params)(x) - y) ** 2)

    gradient = jax.grad(loss)(params)
    updates, moments = optimizer.update(gradient, moments)
    return optax.apply_updates(params, updates), moments


def step_args(mesh):
    params = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))[1]
    specs = {(WIDTH, HIDDEN): P(None, "model"), (HIDDEN, WIDTH): P("model"), (HIDDEN,): P("model")}

    def struct(leaf):
        spec = specs.get(leaf.shape, P())
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(struct, params)
    moments = jax.tree.map(struct, jax.eval_shape(optimizer.init, params))
    x = jax.ShapeDtypeStruct((2048, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return params, moments, x, x
