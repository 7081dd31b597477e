"""Flax NNX: decoding with a cache in each layer, sharded over the sequence as for one long prompt."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, HEADS, SIZE, BATCH, LENGTH, LAYERS = 512, 8, 64, 16, 1024, 3


class Cache(nnx.Variable):
    pass


class Layer(nnx.Module):
    def __init__(self, rngs):
        linear = functools.partial(nnx.Linear, use_bias=False, rngs=rngs)
        self.q, self.k, self.v = (linear(WIDTH, HEADS * SIZE) for _ in range(3))
        self.o = linear(HEADS * SIZE, WIDTH)
        self.keys = Cache(jnp.zeros((BATCH, LENGTH, HEADS, SIZE), jnp.bfloat16))
        self.values = Cache(jnp.zeros((BATCH, LENGTH, HEADS, SIZE), jnp.bfloat16))

    def __call__(self, x, position):
        q, k, v = (
            one(x).reshape(BATCH, 1, HEADS, SIZE).astype(jnp.bfloat16) for one in (self.q, self.k, self.v)
        )
        keys = jax.lax.dynamic_update_slice(self.keys[...], k, (0, position, 0, 0))
        values = jax.lax.dynamic_update_slice(self.values[...], v, (0, position, 0, 0))
        self.keys[...], self.values[...] = keys, values
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys) / 8
        scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -1e9)
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), values)
        return x + self.o(out.reshape(BATCH, HEADS * SIZE))


class Decoder(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])

    def __call__(self, x, position):
        for layer in self.layers:
            x = layer(x, position)
        return x


graph = nnx.split(nnx.eval_shape(lambda: Decoder(nnx.Rngs(0))), nnx.Param, Cache)[0]


@functools.partial(jax.jit, donate_argnums=1)
def step(params, caches, x, position):
    model = nnx.merge(graph, params, caches)
    x = model(x, position)
    return x, nnx.split(model, nnx.Param, Cache)[2]


def step_args(mesh):
    _, params, caches = nnx.split(nnx.eval_shape(lambda: Decoder(nnx.Rngs(0))), nnx.Param, Cache)

    def struct(leaf, *spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, P(*spec)))

    def weight(path, leaf):
        return struct(leaf, "model") if "'o'" in jax.tree_util.keystr(path) else struct(leaf, None, "model")

    params = jax.tree_util.tree_map_with_path(weight, params)
    caches = jax.tree.map(lambda leaf: struct(leaf, None, "data"), caches)
    x = struct(jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32), "data")
    return params, caches, x, struct(jax.ShapeDtypeStruct((), jnp.int32))
