"""The shardings of the parameters."""

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

BATCH = P("fsdp")
PARAMETERS = {
    "embed": P("tensor", "fsdp"),
    "layers": {"up": P(None, "fsdp", "tensor"), "down": P(None, "fsdp", "tensor")},
    "head": P("fsdp", "tensor"),
}


def keep(mesh, x, spec):
    """Constrain a value."""
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def of_parameters(mesh):
    """Return the shardings of a tree of parameters."""
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), PARAMETERS, is_leaf=lambda x: isinstance(x, P)
    )
