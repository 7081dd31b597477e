"""Table of the cases of remedies, and the arrays of several of them."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    sharded_structs,
)

REMEDIES = {}
FSDP = {"fsdp": 8}


def remedy_of(code, least=(0, 4, 38)):
    """Return a decorator for a function that returns a report, words of its remedy, and reports with it."""

    def add(function):
        REMEDIES.setdefault(code, []).append(
            pytest.param(code, least, function, id=f"{code}-{function.__name__}")
        )
        return function

    return add


def struct(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def kept(mesh, value, *spec):
    return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))


def planned(sizes, shape, *spec):
    return sharded_structs(jax.ShapeDtypeStruct(shape, jnp.bfloat16), mesh=sizes, specs=P(*spec))


POD = {"data": 256, "model": 16}
PROPAGATION = (0, 10, 1)
