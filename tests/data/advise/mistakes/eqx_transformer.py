"""Equinox: an encoder whose values between the layers are kept whole on each device."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, HEADS, TOKENS, BATCH, LAYERS = 256, 8, 64, 128, 2


class Layer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norms: list

    def __init__(self, key):
        keys = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=keys[0])
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, jax.nn.gelu, key=keys[1])
        self.norms = [eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)]

    def __call__(self, x):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Encoder(eqx.Module):
    layers: list

    def __init__(self, key):
        self.layers = [Layer(one) for one in jax.random.split(key, LAYERS)]

    def __call__(self, x):
        for layer in self.layers:
            x = jax.vmap(layer)(x)
            x = eqx.filter_shard(x, P())
        return x


@eqx.filter_jit
def step(model, x):
    def loss(model):
        return jnp.mean(model(x) ** 2)

    gradient = eqx.filter_grad(loss)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradient))


def step_args(mesh):
    model = Encoder(jax.random.key(0))
    model = jax.tree.map(
        lambda leaf: jax.device_put(leaf, NamedSharding(mesh, P())) if eqx.is_array(leaf) else leaf, model
    )
    sharding = NamedSharding(mesh, P(("data", "model")))
    return model, jax.device_put(jnp.ones((BATCH, TOKENS, WIDTH)), sharding)
