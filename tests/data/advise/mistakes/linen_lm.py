"""Flax Linen: a language model with averaged weights; the averages are replicated, and so are the logits."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

VOCABULARY, WIDTH, BATCH, TOKENS = 4096, 256, 32, 64
AVERAGED = P()
optimizer = optax.adam(1e-3)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        y = nn.Dense(4 * WIDTH, use_bias=False, name="up")(y)
        return x + nn.Dense(WIDTH, use_bias=False, name="down")(nn.gelu(y))


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, WIDTH, name="embed")(tokens)
        x = jax.lax.with_sharding_constraint(x, P("fsdp"))
        for number in range(2):
            x = nn.remat(Mlp)(name=f"mlp{number}")(x)
            x = jax.lax.with_sharding_constraint(x, P("fsdp"))
        logits = nn.Dense(VOCABULARY, use_bias=False, name="head")(x)
        return jax.lax.with_sharding_constraint(logits, P("fsdp", None, None))


model = Model()


def specs_of(tree):
    def spec(path, leaf):
        name = jax.tree_util.keystr(path)
        if "embed" in name or "down" in name:
            return P("tensor", "fsdp")
        return P("fsdp", "tensor") if leaf.ndim == 2 else P()

    return jax.tree_util.tree_map_with_path(spec, tree)


@functools.partial(jax.jit, donate_argnums=0)
def step(state, tokens, labels):
    def loss(params):
        logits = model.apply({"params": params}, tokens)
        return jnp.mean(optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, VOCABULARY)))

    gradient = jax.grad(loss)(state["params"])
    updates, moments = optimizer.update(gradient, state["moments"])
    params = optax.apply_updates(state["params"], updates)
    params = jax.lax.with_sharding_constraint(params, specs_of(params))
    averages = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new, state["averages"], params)
    averages = jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, AVERAGED), averages)
    return {"params": params, "moments": moments, "averages": averages}


def step_args(mesh):
    tokens = jax.ShapeDtypeStruct((BATCH, TOKENS), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    with jax.set_mesh(mesh):
        params = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]

    def struct(leaf, spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    state = {"params": params, "moments": jax.eval_shape(optimizer.init, params)}
    state = jax.tree.map(struct, state, specs_of(state))
    state["averages"] = jax.tree.map(lambda leaf: struct(leaf, AVERAGED), params)
    return state, tokens, tokens
