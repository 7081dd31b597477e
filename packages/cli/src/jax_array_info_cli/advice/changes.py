"""Changes of shardings, applied to a function and its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax_array_info_core.compat.jitted import jitted_types
from jax_array_info_core.compat.lowering import requested_outputs, sharded_struct
from jax_array_info_core.compat.shardings import is_named
from jax_array_info_core.geometry.layouts.spec import MeshAxes, Spec
from jax_array_info_core.programs.advice.edits import Axes, Site


class Text(NamedTuple):
    """A text in the place of an expression of the source."""

    site: Site
    code: str
    imports: str = ""
    """Import that it needs; empty if the file has the names."""


class Change(NamedTuple):
    """Changes of a program that this process applies together."""

    texts: tuple[Text, ...] = ()
    """Those of its source."""
    arguments: tuple[tuple[int, Axes], ...] = ()
    """Numbers of the program's arguments that change, with their mesh axes."""
    outputs: tuple[tuple[int, Axes], ...] = ()
    """Numbers of the outputs' leaves that change."""
    donated: tuple[int, ...] = ()
    """Numbers of the program's arguments that are donated."""
    argument_count: int = 0
    """Number of the program's arguments."""
    mesh: MeshAxes | None = None
    """The mesh of the program."""


def partition_spec(axes: Axes) -> Any:
    """Return the PartitionSpec with these mesh axes."""
    import jax

    return jax.sharding.PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in axes))


def is_explicit_mesh(mesh: Any) -> bool:
    """Return whether a mesh has axes of type Explicit."""
    return any("Explicit" in str(kind) for kind in mesh.axis_types)


def mesh_of_leaves(leaves: Sequence[Any], axes: MeshAxes | None) -> Any:
    """Return the mesh of the first leaf that has one; if none has, that of the command.

    Args:
        leaves: The leaves of the arguments.
        axes: The axes of the program's mesh.
    """
    import jax
    import numpy as np

    shardings = (getattr(leaf, "sharding", None) for leaf in leaves)
    named = (sharding.mesh for sharding in shardings if sharding is not None and is_named(sharding))
    mesh = next(named, None)
    if mesh is not None or axes is None:
        return mesh
    devices = np.array(jax.devices()[: math.prod(axes.sizes)], object)
    return jax.sharding.Mesh(devices.reshape(axes.sizes), axes.names)


def argument_places(leaves: Sequence[Any], count: int) -> list[int]:
    """Return the numbers of the leaves that are arguments of the program: those that are not static.

    Args:
        leaves: The leaves of the arguments of the function.
        count: The number of arguments of the program.
    """
    if len(leaves) == count:
        return [*range(count)]
    return [number for number, leaf in enumerate(leaves) if hasattr(leaf, "shape")]


def changed(
    change: Change, function: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return a function and its arguments with changes of arguments and outputs."""
    import jax

    leaves, tree = jax.tree.flatten(tuple(arguments))
    places = argument_places(leaves, change.argument_count)
    mesh = mesh_of_leaves(leaves, change.mesh)
    for argument, axes in change.arguments:
        number = places[argument]
        leaf = leaves[number]
        present = getattr(leaf, "sharding", None)
        on = present.mesh if present is not None and is_named(present) else mesh
        leaves[number] = sharded_struct(leaf, on, Spec(axes), getattr(present, "memory_kind", None))
        if isinstance(leaf, jax.Array):  # Equinox takes other values for static ones
            leaves[number] = jax.device_put(leaf, leaves[number].sharding)
    if not change.outputs:
        return function, jax.tree.unflatten(tree, leaves)
    inside, requested = _inside(function, arguments)
    flat, given = flattened(inside, jax.tree.unflatten(tree, leaves), change.argument_count)
    count = len(jax.eval_shape(flat, *given))
    shardings = requested if len(requested) == count else [None] * count
    if any(number >= len(shardings) for number, _ in change.outputs):
        raise ValueError("the outputs of the program are not what the function returns")
    for number, axes in change.outputs:
        shardings[number] = jax.sharding.NamedSharding(mesh, partition_spec(axes))
    return jax.jit(flat, out_shardings=shardings, donate_argnums=change.donated), given


def _inside(function: Any, arguments: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function that requests no shardings of its outputs, and those that it did request.

    A jitted function inside of another one would still give its outputs these.
    """
    requested = requested_outputs(function.lower(*arguments)) if type(function) in jitted_types() else []
    return (function.__wrapped__, requested) if any(requested) else (function, [])


def flattened(
    function: Callable[..., Any], arguments: Sequence[Any], count: int
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return a function of the program's arguments that returns the arrays of another one, and the arguments.

    Args:
        function: The other function.
        arguments: Its arguments.
        count: The number of arguments of the program.
    """
    import jax

    leaves, tree = jax.tree.flatten(tuple(arguments))
    places = argument_places(leaves, count)

    def flat(*given: Any) -> Any:
        values = leaves[:]  # with those that are static
        for number, value in zip(places, given, strict=True):
            values[number] = value
        returned = jax.tree.leaves(function(*jax.tree.unflatten(tree, values)))
        return [leaf for leaf in returned if hasattr(leaf, "shape")]

    return flat, [leaves[place] for place in places]
