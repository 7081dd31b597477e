"""Particles in cells: the charge of all particles is summed on each device, and the field is gathered for all."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

CELLS, COUNT, STEPS = 256, 1 << 18, 10
SPACING, SECONDS = 1 / CELLS, 1e-3


def cells_of(positions):
    """Return the cells of particles."""
    cells = jnp.floor(positions / SPACING).astype(jnp.int32) % CELLS
    return jax.lax.with_sharding_constraint(cells, P(None, None))


def field(density):
    """Return the electric field of a density."""
    modes = jnp.fft.rfft2(density)
    x = jnp.fft.fftfreq(CELLS, SPACING)[:, None]
    y = jnp.fft.rfftfreq(CELLS, SPACING)[None]
    potential = modes / jnp.maximum(x * x + y * y, 1)
    return jnp.stack([jnp.fft.irfft2(-1j * x * potential), jnp.fft.irfft2(-1j * y * potential)], -1)


@jax.jit
def step(positions, velocities):
    def push(state, _):
        positions, velocities = state
        cells = cells_of(positions)
        density = jnp.zeros((CELLS, CELLS)).at[cells[:, 0], cells[:, 1]].add(1.0)
        force = field(density)[cells[:, 0], cells[:, 1]]
        velocities = velocities - SECONDS * force
        return (positions + SECONDS * velocities, velocities), jnp.mean(velocities**2)

    return jax.lax.scan(push, (positions, velocities), length=STEPS)


def step_args(mesh):
    struct = jax.ShapeDtypeStruct((COUNT, 2), jnp.float32, sharding=NamedSharding(mesh, P("i")))
    return struct, struct
