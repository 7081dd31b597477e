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


class FakeClient:
    """What a mesh asks of the client of a device."""

    platform = "cpu"
    runtime_type = "fake"

    @staticmethod
    def process_index():
        return 0


class FakeDevice:
    """A device that only a mesh sees: as many as a test wants, of any process."""

    platform, device_kind, client = "cpu", "fake", FakeClient

    def __init__(self, number, process_index=0):
        self.id = number
        self.process_index = process_index

    def __repr__(self):
        return f"fake:{self.id}"
