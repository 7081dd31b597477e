"""Arrays, meshes and simulated devices for tests."""

import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def mesh_of(sizes, names, devices=None):
    """Return a mesh over the given devices, by default the first ones of JAX."""
    count = int(np.prod(sizes))
    devices = jax.devices()[:count] if devices is None else devices
    return Mesh(np.array(devices).reshape(sizes), names)


def abstract_mesh(**sizes):
    """Return a mesh without devices; before JAX 0.5, AbstractMesh takes pairs."""
    if jax.__version_info__ < (0, 5):
        return AbstractMesh(tuple(sizes.items()))
    return AbstractMesh(tuple(sizes.values()), tuple(sizes))


def sharded(shape, mesh, *spec, dtype=jnp.float32):
    """Return a sharded array of zeros."""
    return jax.device_put(jnp.zeros(shape, dtype), NamedSharding(mesh, P(*spec)))


class FakeClient:
    """The attributes of a device's client that a mesh reads."""

    platform = "cpu"
    runtime_type = "fake"

    @staticmethod
    def process_index():
        return 0


class FakeDevice:
    """A device for meshes alone, with any id and process."""

    platform, device_kind, client = "cpu", "fake", FakeClient

    def __init__(self, number, process_index=0):
        self.id = number
        self.process_index = process_index

    def __repr__(self):
        return f"fake:{self.id}"


@contextlib.contextmanager
def slow_program():
    """Yield a function that starts a program whose result is not ready until the block ends.

    Needs several devices: on a single CPU device, a program with a callback runs synchronously.
    """
    go_on = threading.Event()
    results = []

    def wait(x):
        assert go_on.wait(60)
        return x

    @jax.jit
    def slow(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    count = len(jax.devices())
    operand = sharded((count, 4), mesh_of((count,), ("a",)), "a")

    def start():
        results.append(slow(operand))
        return results[-1]

    go_on.set()
    start().block_until_ready()
    results.clear()
    go_on.clear()
    try:
        yield start
    finally:
        go_on.set()
        for result in results:
            result.block_until_ready()
