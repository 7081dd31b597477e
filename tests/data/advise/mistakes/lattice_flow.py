"""A lattice Boltzmann method in several modules: what is recorded is whole along ``x``."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from lattice.collision import VELOCITIES, collided, moments
from lattice.record import vorticity

SIZE = 512


def difference(field, axis):
    return (jnp.roll(field, -1, axis) - jnp.roll(field, 1, axis)) / 2


def streamed(populations):
    moved = [jnp.roll(one, by, (0, 1)) for one, by in zip(populations, VELOCITIES, strict=True)]
    return jnp.stack(moved)


def step(populations):
    def advance(populations, _):
        density, flow = moments(populations)
        return streamed(collided(populations, density, flow)), vorticity(flow, difference)

    return jax.lax.scan(advance, populations, length=16)


step = jax.jit(step, donate_argnums=0)


def step_args(mesh):
    sharding = NamedSharding(mesh, P(None, "x", "y"))
    return (jax.ShapeDtypeStruct((9, SIZE, SIZE), jnp.float32, sharding=sharding),)
