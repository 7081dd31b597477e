"""Two-dimensional turbulence by Fourier transforms in slabs: the transforms have no constraint between them."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SIZE = 1024


def to_modes(field):
    """Return the Fourier modes of a field, sharded over the second dimension."""
    return jnp.fft.fft(jnp.fft.fft(field, axis=1), axis=0)


def to_field(modes):
    """Return the field of Fourier modes, sharded over the first dimension."""
    return jnp.fft.ifft(jnp.fft.ifft(modes, axis=0), axis=1)


@jax.jit
def step(vorticity):
    """Advance the vorticity once."""
    numbers = jnp.fft.fftfreq(SIZE, 1 / SIZE)
    x, y = numbers[:, None], numbers[None, :]
    squares = x * x + y * y
    modes = to_modes(vorticity)
    stream = modes / jnp.maximum(squares, 1)
    u, v = to_field(1j * y * stream), to_field(-1j * x * stream)
    slopes = to_field(1j * x * modes), to_field(1j * y * modes)
    return vorticity - 1e-3 * (u * slopes[0] + v * slopes[1])


def step_args(mesh):
    return (jax.ShapeDtypeStruct((SIZE, SIZE), jnp.complex64, sharding=NamedSharding(mesh, P("x"))),)
