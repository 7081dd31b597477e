import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import PartitionSpec as P

from jax_array_info import sharded_structs


def test_leaves_in_boxes_are_placed():
    boxed = {"w": nn.Partitioned(jax.ShapeDtypeStruct((8, 8), jnp.float32), names=("data", None))}
    found = sharded_structs(boxed, mesh={"data": 4}, specs=P("data"))
    assert found["w"].value.sharding.spec == P("data")
