import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.arrays import mesh_of


@pytest.fixture
def mesh():
    """Return a mesh of 8 devices."""
    return mesh_of((4, 2), ("a", "b"))


@pytest.fixture
def array(mesh):
    """Return an array whose axes are sharded over those of the mesh."""
    return jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("a", "b")))
