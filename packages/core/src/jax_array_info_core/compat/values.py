"""What a value is to JAX, which is imported by the first function that needs it.

The type decides, not ``isinstance``: that asks the value's own ``__class__``, which may lie or raise.
"""

from __future__ import annotations

import sys

import numpy as np


def type_name(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def is_tracer(value: object) -> bool:
    """Return whether a value stands for another one inside a transformation."""
    if "jax" not in sys.modules:
        return False  # nobody has made one
    import jax

    return issubclass(type(value), jax.core.Tracer)


def is_array(value: object) -> bool:
    """Return whether a value is a concrete jax.Array, PRNG key arrays included."""
    import jax

    return issubclass(type(value), jax.Array) and not is_tracer(value)


def is_array_type(value: object) -> bool:
    """Return whether a value is an array of jax or numpy, or stands for one: never a container."""
    import jax

    kinds = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct, jax.core.Tracer)
    return issubclass(type(value), kinds)


def is_abstract_mesh(mesh: object) -> bool:
    """Return whether a mesh has axes but no devices."""
    import jax

    return issubclass(type(mesh), jax.sharding.AbstractMesh)


def is_mesh(value: object) -> bool:
    """Return whether a value is a mesh, with devices or without."""
    import jax

    return issubclass(type(value), (jax.sharding.Mesh, jax.sharding.AbstractMesh))


def is_partition_spec(value: object) -> bool:
    """Return whether a value is a ``jax.sharding.PartitionSpec``."""
    import jax

    return issubclass(type(value), jax.sharding.PartitionSpec)


def is_sharding(value: object) -> bool:
    """Return whether a value is any ``jax.sharding.Sharding``."""
    import jax

    return issubclass(type(value), jax.sharding.Sharding)


def is_bare_xla_sharding(value: object) -> bool:
    """Return whether a value is XLA's own sharding, which knows positions but no devices."""
    return type(value).__name__ == "HloSharding" and hasattr(value, "tile_assignment_devices")
