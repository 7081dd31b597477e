"""A training step in several modules: one row of the table of shardings is wrong."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from modular.model import SHAPES, VOCABULARY, logits
from modular.shardings import BATCH, of_parameters

optimizer = optax.adam(1e-3)


@functools.partial(jax.jit, donate_argnums=0, static_argnames="mesh")
def step(state, batch, mesh):
    def loss(params):
        labels = jax.nn.one_hot(batch["labels"], VOCABULARY)
        return jnp.mean(optax.softmax_cross_entropy(logits(params, batch["tokens"], mesh), labels))

    gradient = jax.grad(loss)(state["params"])
    gradient = jax.lax.with_sharding_constraint(gradient, of_parameters(mesh))
    updates, moments = optimizer.update(gradient, state["moments"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": jax.lax.with_sharding_constraint(params, of_parameters(mesh)), "moments": moments}


def step_args(mesh):
    is_shape = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
    params = jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding),
        SHAPES,
        of_parameters(mesh),
        is_leaf=is_shape,
    )
    moments = optax.tree_map_params(
        optimizer,
        lambda _, sharded: sharded,
        jax.eval_shape(optimizer.init, params),
        params,
        transform_non_params=lambda leaf: leaf,
    )
    tokens = jax.ShapeDtypeStruct((16, 128), jnp.int32, sharding=NamedSharding(mesh, BATCH))
    return {"params": params, "moments": moments}, {"tokens": tokens, "labels": tokens}
