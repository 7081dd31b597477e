"""Values for the backward pass in programs for TPU, where XLA computes some of them elsewhere."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import program_report, topology_mesh

pytestmark = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")

ROWS, WIDTH = 4096, 1024


@pytest.mark.parametrize("count", [2, 4])
def test_the_results_of_blocks_that_are_computed_again_are_saved_and_live(count):
    """What is inside of a block is 8 times as wide, and is not among them."""
    mesh = topology_mesh("v5e:2x2", {"x": 4})

    def weights(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P()))

    def block(x, w):
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"]

    def loss(ws, x):
        for w in ws:
            x = jax.checkpoint(block)(x, w)
        return (x**2).mean()

    ws = [{"up": weights(WIDTH, 8 * WIDTH), "down": weights(8 * WIDTH, WIDTH)}] * count
    memory = program_report(jax.grad(loss), ws, weights(ROWS, WIDTH)).memory
    result = ROWS * WIDTH * 4
    assert memory.saved.nbytes == count * result, "of each block, also of the last"
    live = memory.live_at_backward
    assert (count - 1) * result <= live.nbytes <= live.nbytes + live.vmem_nbytes <= count * result + 2**20
