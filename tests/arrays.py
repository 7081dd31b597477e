"""Arrays and meshes that several tests look at."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def mesh_of(sizes, names, devices=None):
    """Return a mesh over the first devices, or over those that are given."""
    count = int(np.prod(sizes))
    devices = jax.devices()[:count] if devices is None else devices
    return Mesh(np.array(devices).reshape(sizes), names)


def sharded(shape, mesh, *spec, dtype=jnp.float32):
    """Return an array of zeros, sharded."""
    return jax.device_put(jnp.zeros(shape, dtype), NamedSharding(mesh, P(*spec)))
