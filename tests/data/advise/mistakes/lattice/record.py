"""The recorded fields of each step."""

import jax
from jax.sharding import PartitionSpec as P


def vorticity(flow, difference):
    """Return the vorticity of a flow, as it is recorded."""
    field = difference(flow[1], 0) - difference(flow[0], 1)
    return jax.lax.with_sharding_constraint(field, P(None, "y"))
