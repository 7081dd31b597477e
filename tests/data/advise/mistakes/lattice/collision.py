"""Equilibria and collisions of populations."""

import jax.numpy as jnp

VELOCITIES = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)


def moments(populations):
    """Return density and velocity."""
    density = populations.sum(0)
    velocities = jnp.array(VELOCITIES, jnp.float32)
    return density, jnp.einsum("iv,ixy->vxy", velocities, populations) / density


def collided(populations, density, flow):
    """Return populations nearer to their equilibrium."""
    velocities, weights = jnp.array(VELOCITIES, jnp.float32), jnp.array(WEIGHTS)
    along = 3 * jnp.einsum("iv,vxy->ixy", velocities, flow)
    energy = 1.5 * jnp.sum(flow * flow, 0)
    equilibrium = weights[:, None, None] * density * (1 + along + along * along / 2 - energy)
    return populations + (equilibrium - populations) / 0.6
