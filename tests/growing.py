"""Helpers for the tests of growth."""

import contextlib
import gc

import jax
import jax.numpy as jnp


@contextlib.contextmanager
def no_collector():
    """Disable automatic garbage collection."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def on_first(nbytes):
    """Return ``(device id, bytes)`` of each device where all bytes are on the first."""
    first, *others = [device.id for device in jax.local_devices()]
    return ((first, nbytes), *((other, 0) for other in others))


def growth_of(report, function):
    """Return the growth at the allocation site in a function."""
    (found,) = [growth for growth in report.origins if growth.origin and growth.origin.function == function]
    return found


def born(number=2):
    return [jnp.ones((10,)) for _ in range(number)]


def elder(number=3):
    return [jnp.ones((5,)) for _ in range(number)]


class Node:
    def __init__(self, array):
        self.me = self
        self.array = array


def make_cycles(number):
    for _ in range(number):
        Node(jnp.ones((100,)))
