import jax
import jax.numpy as jnp
import optax
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec as P

from jax_array_info import check_report, sharded_structs


def test_leaves_in_boxes_are_placed():
    boxed = {"w": nn.Partitioned(jax.ShapeDtypeStruct((8, 8), jnp.float32), names=("data", None))}
    found = sharded_structs(boxed, mesh={"data": 4}, specs=P("data"))
    assert found["w"].value.sharding.spec == P("data")


@pytest.mark.parametrize(
    ("name", "optimizer", "dtype"),
    [
        ("adam", optax.adam(1e-3), None),
        ("adamw", optax.adamw(1e-3), None),
        ("lion", optax.lion(1e-3), None),
        ("momentum", optax.sgd(1e-3, momentum=0.9), None),
        ("lion", optax.lion(1e-3, mu_dtype=jnp.float32), jnp.float32),
        ("momentum", optax.sgd(1e-3, momentum=0.9, accumulator_dtype=jnp.float32), jnp.float32),
    ],
)
def test_planned_moments_are_those_of_optax(name, optimizer, dtype):
    """Without ``moment_dtype``, each has the dtype of its parameter, which an update keeps."""
    params = {"w": jnp.ones((64, 32), jnp.bfloat16), "scale": jnp.ones(32)}
    state = optimizer.init(params)
    _, updated = optimizer.update(params, state, params)
    nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(updated) if leaf.ndim)
    report = check_report(params, optimizer=name, moment_dtype=dtype)
    assert report.optimizer_nbytes == nbytes
