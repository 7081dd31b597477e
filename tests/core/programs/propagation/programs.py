"""Functions and arguments on meshes without devices."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import sharded_structs

needs_shardy = [
    pytest.mark.once_per_version,
    pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"),
]
MESH = {"data": 4, "model": 2}


def struct(shape, *spec, mesh=MESH, dtype=jnp.float32):
    """Return the type of a sharded array."""
    return sharded_structs(jax.ShapeDtypeStruct(shape, dtype), mesh=mesh, specs=P(*spec))


def constrained(x, like, *spec):
    """Return a value with a sharding constraint, on the mesh of an argument."""
    return jax.lax.with_sharding_constraint(x, NamedSharding(like.sharding.mesh, P(*spec)))


def explicit_mesh():
    """Return the mesh with axes of type Explicit."""
    return AbstractMesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)


def origins(row):
    """Return the origin of each mesh axis as text."""
    return {one.mesh_axis: str(one) for one in row.axes}


def line_of(function, offset=1):
    """Return the number of a line of a function; 0 is its ``def``."""
    return function.__code__.co_firstlineno + offset
