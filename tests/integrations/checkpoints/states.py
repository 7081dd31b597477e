"""States that tests save as checkpoints, and what reading them refuses."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from orbax import checkpoint

from jax_array_info_core import load_tree
from jax_array_info_core.errors import FileFormatError
from tests.arrays import mesh_of, sharded


def state():
    mesh = mesh_of((4, 2), ("fsdp", "tensor"))
    layers = [
        {"w": sharded((16, 8), mesh, "fsdp", "tensor"), "b": sharded((8,), mesh, None).astype(jnp.bfloat16)},
        {"w": sharded((16, 8), mesh, ("fsdp", "tensor")), "b": sharded((8,), mesh)},
    ]
    return {
        "params": {"layers": layers, "a/b": sharded((4,), mesh, "fsdp")},
        "on one device": jax.device_put(jnp.ones(3), jax.devices()[5]),
        "step": 7,
    }


def refusal(path, **options):
    with pytest.raises(FileFormatError) as caught:
        load_tree(path, **options)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def saved(folder, tree, **options):
    known = inspect.signature(checkpoint.PyTreeCheckpointHandler).parameters
    options = {name: value for name, value in options.items() if name in known}
    with checkpoint.Checkpointer(checkpoint.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(folder, args=checkpoint.args.PyTreeSave(tree))
    return folder
