"""Type checks of values, without importing JAX before it is needed.

The checks use ``type(value)``: ``isinstance`` reads the value's ``__class__``, which may be wrong or raise.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable

import numpy as np


def type_name(value: object) -> str:
    """Return the name of a value's class, even if its metaclass overrides ``__name__``."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def is_tracer(value: object) -> bool:
    """Return whether a value is a tracer."""
    if "jax" not in sys.modules:
        return False  # no tracer can exist
    import jax

    return issubclass(type(value), jax.core.Tracer)


def is_array(value: object) -> bool:
    """Return whether a value is a concrete jax.Array, PRNG key arrays included."""
    import jax

    return issubclass(type(value), jax.Array) and not is_tracer(value)


def is_array_type(value: object) -> bool:
    """Return whether a value is a JAX or numpy array, a numpy scalar, a ShapeDtypeStruct or a tracer."""
    import jax

    types = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct, jax.core.Tracer)
    return issubclass(type(value), types)


def is_abstract_mesh(mesh: object) -> bool:
    """Return whether a mesh has axes but no devices."""
    import jax

    return issubclass(type(mesh), jax.sharding.AbstractMesh)


def is_mesh(value: object) -> bool:
    """Return whether a value is a Mesh or an AbstractMesh."""
    if "jax" not in sys.modules:
        return False  # no mesh can exist
    import jax

    return issubclass(type(value), (jax.sharding.Mesh, jax.sharding.AbstractMesh))


def is_partition_spec(value: object) -> bool:
    """Return whether a value is a ``jax.sharding.PartitionSpec``."""
    if "jax" not in sys.modules:
        return False  # no spec can exist
    import jax

    return issubclass(type(value), jax.sharding.PartitionSpec)


def is_sharding(value: object) -> bool:
    """Return whether a value is any ``jax.sharding.Sharding``."""
    if "jax" not in sys.modules:
        return False  # no sharding can exist
    import jax

    return issubclass(type(value), jax.sharding.Sharding)


def is_structure(value: object) -> bool:
    """Return whether a value is the structure of a tree, as ``jax.tree.structure`` returns it."""
    import jax

    return type(value) is jax.tree_util.PyTreeDef


def without_format(value: object) -> object:
    """Return the sharding of a ``jax.experimental.layout.Format``, or else the value itself.

    A Format is a sharding, or None, with the layout of each shard in memory. Up to JAX 0.6, its class is
    ``Layout``.
    """
    cls = type(value)
    is_format = cls.__module__ == "jax._src.layout" and hasattr(cls, "sharding")
    return getattr(value, "sharding") if is_format else value  # noqa: B009


def is_bare_xla_sharding(value: object) -> bool:
    """Return whether a value is XLA's HloSharding, which has device positions instead of devices."""
    return type(value).__name__ == "HloSharding" and hasattr(value, "tile_assignment_devices")


@functools.cache
def is_plain_array_type(cls: Hashable) -> bool:
    """Return whether a class is that of concrete JAX arrays, ``jax.ShapeDtypeStruct`` or ``np.ndarray``."""
    import jax

    if cls in (np.ndarray, jax.ShapeDtypeStruct):
        return True
    assert isinstance(cls, type)
    return issubclass(cls, jax.Array) and not issubclass(cls, jax.core.Tracer)
