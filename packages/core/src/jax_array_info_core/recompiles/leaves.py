"""Array arguments of a compiled call as plain records."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arrays.paths import SlashNotation
from ..compat.arrays import is_committed
from ..compat.shardings import host_memory_kind, sharding_facts
from ..compat.values import is_array, is_sharding, type_name
from ..layouts.spec import effective_spec
from ..quantities import format_devices
from ..text import plain_shape, plain_text


class SharedOver(NamedTuple):
    """The sharding of a committed array."""

    text: str
    """Its spec, or another short form."""

    mesh: str
    """The mesh, such as ``data=4, model=2``; empty without one."""

    devices: str
    layout: Hashable
    """Equal for shardings that place an array of one rank alike; None where it is unknown."""


class Leaf(NamedTuple):
    """One leaf of an argument: an array, a scalar, None or another object."""

    shape: tuple[int | str, ...] | None
    """None for a value that is not an array."""

    dtype: str
    """For a value that is not an array, the name of its class."""

    weak_type: bool = False
    is_committed: bool = False
    sharding: SharedOver | None = None
    """The sharding, if the array is committed or the program has one for it."""


class Leaves:
    """Reader of the leaves of one call. Equal shardings are read once."""

    def __init__(self, *, is_x64: bool) -> None:
        self._is_x64 = is_x64
        self._shardings: dict[tuple[int, int], SharedOver | None] = {}

    def of_argument(self, name: str, value: Any) -> Iterator[tuple[str, Leaf]]:
        """Yield the path and the facts of each leaf of an argument."""
        import jax

        found, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is None)
        if len(found) == 1 and not found[0][0]:
            yield name, self.of_value(value)
            return
        paths = SlashNotation().children([keys for keys, _ in found])
        for path, (_, leaf) in zip(paths, found, strict=True):
            yield name + path, self.of_value(leaf)

    def of_value(self, value: Any) -> Leaf:
        """Return the facts of one value. Its elements are not read."""
        if is_array(value):
            committed = is_committed(value)
            sharding = self.of_sharding(value.sharding, value.shape) if committed else None
            weak = bool(getattr(value, "weak_type", False))
            return Leaf(plain_shape(value.shape), plain_text(value.dtype), weak, committed, sharding)
        if type(value) in (bool, int, float, complex):
            return Leaf((), self._canonical(np.dtype(type(value))), type(value) is not bool)
        if isinstance(value, np.ndarray | np.generic):
            return Leaf(plain_shape(value.shape), self._canonical(value.dtype))
        if value is None:
            return Leaf(None, "None")
        return self.of_type(value)

    def of_type(self, value: Any, sharding: Any = None) -> Leaf:
        """Return the facts of an abstract value, with the sharding that a program has for it."""
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is None or dtype is None:
            return Leaf(None, type_name(value))
        found = self.of_sharding(sharding, shape) if is_sharding(sharding) else None
        weak = bool(getattr(value, "weak_type", False))
        return Leaf(plain_shape(shape), plain_text(dtype), weak, found is not None, found)

    def of_sharding(self, sharding: Any, shape: Any) -> SharedOver | None:
        """Return the facts of a sharding; None if they cannot be read."""
        key = (id(sharding), len(shape))
        if key not in self._shardings:
            self._shardings[key] = _shared_over(sharding, shape)
        return self._shardings[key]

    def _canonical(self, dtype: np.dtype[Any]) -> str:
        """Return the name of the dtype that JAX gives to a value of the host."""
        name = str(dtype)
        if self._is_x64:
            return name
        shorter = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
        return shorter.get(name, name)


def _shared_over(sharding: Any, shape: Any) -> SharedOver | None:
    try:
        facts = sharding_facts(sharding, plain_shape(shape))
    except Exception:
        # A sharding may be a class of the user's, and this runs inside the user's call.
        return None
    description, layout = facts.description, facts.layout
    devices = format_devices(None, facts.devices.ids)
    text, mesh = devices, ""
    if description is not None and description.spec is not None and description.mesh is not None:
        sizes = description.mesh.shape
        text = str(effective_spec(description.spec, sizes))
        mesh = ", ".join(f"{name}={size}" for name, size in sizes.items())
    elif description is not None and description.text:
        text = description.text
    if facts.memory_kind and host_memory_kind(sharding):
        text += f" in {facts.memory_kind}"
    key = None if layout is None else (layout.device_ids.shape, hash(layout.device_ids.tobytes()))
    return SharedOver(text, mesh, devices, None if key is None else (key, facts.memory_kind))
