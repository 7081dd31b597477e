"""A training step of Flax NNX with low-rank adapters whose rank is sharded, though it is summed."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SPECS = {"lora_a": P(None, "model"), "lora_b": P("model"), "kernel": P(None, "model")}


class Model(nnx.Module):
    def __init__(self, rngs):
        base = nnx.Linear(256, 512, use_bias=False, rngs=rngs)
        self.layer = nnx.LoRA(256, 16, 512, base_module=base, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


@nnx.jit
def step(model, x):
    def loss(model):
        return (model(x) ** 2).mean()

    return nnx.grad(loss, argnums=nnx.DiffState(0, nnx.LoRAParam))(model)


def step_args(mesh):
    model = Model(nnx.Rngs(0))
    state = nnx.state(model)
    placed = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.device_put(leaf, NamedSharding(mesh, SPECS.get(_name(path), P()))), state
    )
    nnx.update(model, placed)
    return model, jax.device_put(jnp.ones((4096, 256)), NamedSharding(mesh, P("data")))


def _name(path):
    names = [str(getattr(one, "key", getattr(one, "name", ""))) for one in path]
    return next((name for name in reversed(names) if name in SPECS), "")
