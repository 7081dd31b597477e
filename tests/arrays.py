"""Arrays and meshes that several tests look at."""

import contextlib
import threading

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


@contextlib.contextmanager
def slow_program():
    """Yield a function that starts a program, whose result is not ready before the block ends.

    On one device, a CPU computes at once what has a callback: there must be several.
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
