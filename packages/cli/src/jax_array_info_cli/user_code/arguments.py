"""Arguments of a function, and the mesh that they are on."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..usage import Refusal
from .names import FunctionName

if TYPE_CHECKING:
    from jax_array_info_core.layouts.notation import ArrayNotation

_NUMBERS = (bool, int, float, complex)
_NOT_IN_JAX = tuple("OSUMm")
"""Kinds of NumPy's dtypes: objects, bytes, text, dates and times."""


def device_mesh(sizes: Mapping[str, int]) -> Any:
    """Return a mesh of the first devices, with these axes."""
    import jax

    devices = np.array(jax.devices()[: math.prod(sizes.values())], object)
    return jax.sharding.Mesh(devices.reshape([*sizes.values()]), tuple(sizes))


def abstract_arrays(arrays: Iterable[ArrayNotation], mesh: Any) -> tuple[Any, ...]:
    """Return the ShapeDtypeStructs of ``--arg``. If JAX truncates a dtype, end the command."""
    import jax

    from jax_array_info_core.layouts.dtypes import named_dtype

    found = []
    for array in arrays:
        dtype = named_dtype(array.dtype)
        if (truncated := jax.dtypes.canonicalize_dtype(dtype)) != dtype:
            raise Refusal(
                f"--arg: JAX truncates {dtype} to {truncated}. Write {truncated}, or set JAX_ENABLE_X64=1"
            )
        spec = jax.sharding.PartitionSpec(*(names or None for names in array.spec.axes))
        sharding = jax.sharding.NamedSharding(mesh, spec)
        found.append(jax.ShapeDtypeStruct(array.shape, dtype, sharding=sharding))
    return tuple(found)


def returned_arguments(name: FunctionName, function: Callable[..., Any], mesh: Any) -> tuple[Any, ...]:
    """Return the positional arguments that the function of ``--args-from`` returns.

    It is called with the mesh if it has an argument ``mesh``, or one argument without a default. A list or a
    tuple contains the arguments; any other value is the only one.
    """
    found = _called_with_mesh(name, function, mesh)
    if found is None:
        raise Refusal(f"{name} returned None instead of the arguments: return them as a tuple")
    # A named tuple is one argument, such as a training state.
    return tuple(found) if type(found) in (tuple, list) else (found,)


def _called_with_mesh(name: FunctionName, function: Callable[..., Any], mesh: Any) -> Any:
    """Call a function with the mesh, if it has an argument for it."""
    signature = _signature(function)
    parameters = [*signature.parameters.values()] if signature else []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [one for one in parameters if one.kind not in variadic]
    required = [one for one in parameters if one.default is inspect.Parameter.empty]
    taking = next((one for one in parameters if one.name == "mesh"), next(iter(required), None))
    others = [one.name for one in required if one is not taking]
    if others:
        raise Refusal(f"{name} is called with the mesh alone: give {', '.join(others)} a default")
    if taking is None:
        return function()
    if taking.kind is inspect.Parameter.POSITIONAL_ONLY:
        return function(mesh)
    return function(**{taking.name: mesh})


def with_mesh(function: Callable[..., Any], arguments: Sequence[Any], mesh: Any) -> Callable[..., Any]:
    """Return a function with the mesh as its argument ``mesh``, if it has one that is not given."""
    signature = _signature(function)
    parameter = signature.parameters.get("mesh") if signature else None
    if signature is None or parameter is None or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        return function
    try:
        is_given = "mesh" in signature.bind_partial(*arguments).arguments
    except TypeError:
        return function
    return function if is_given else functools.partial(function, mesh=mesh)


def require_mesh_size(name: FunctionName, arguments: Sequence[Any], sizes: Mapping[str, int]) -> None:
    """End the command if arguments are on a mesh with another number of devices than that of ``--mesh``."""
    count = math.prod(sizes.values())
    for mesh in _meshes_of(arguments):
        own = math.prod(mesh.shape.values())
        if mesh.shape and own != count:
            raise Refusal(
                f"{name} returned arguments on a mesh of {own} devices ({_sizes_text(mesh.shape)}), but"
                f" --mesh {_sizes_text(sizes)} has {count}: use the mesh that it is called with, or change"
                " --mesh"
            )


def require_arrays(name: FunctionName, arguments: Sequence[Any]) -> None:
    """End the command if an argument contains a value that JAX cannot trace."""
    import jax

    for path, leaf in jax.tree_util.tree_flatten_with_path(tuple(arguments))[0]:
        if not _is_array(leaf):
            raise Refusal(
                f"{name} returned a value of type {type(leaf).__name__} at {jax.tree_util.keystr(path)} of"
                " the arguments: return arrays or ShapeDtypeStructs, or make it static with jax.jit"
            )


def _is_array(value: Any) -> bool:
    """Return whether a value is a number, or describes an array of a dtype that JAX has."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return isinstance(value, _NUMBERS) or (hasattr(value, "shape") and kind not in _NOT_IN_JAX)


def _meshes_of(arguments: Sequence[Any]) -> set[Any]:
    """Return the meshes on which arguments are sharded."""
    import jax

    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments)]
    return {one.mesh for one in shardings if isinstance(one, jax.sharding.NamedSharding)}


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())


def require_fitting(name: FunctionName, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """End the command if a function does not take this number of arguments."""
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        from jax_array_info_core.quantities import counted

        given = counted(len(arguments), "argument", "arguments")
        raise Refusal(f"{name}({', '.join(signature.parameters)}) was given {given}: {error}") from error


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None for some functions of native code."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def argument_context(arguments: Sequence[Any], mesh: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which specs without a mesh refer to that of the arguments.

    Args:
        arguments: Arguments of a function.
        mesh: The mesh if no argument has one.
    """
    import jax

    from jax_array_info_core.compat.devices import mesh_context

    meshes = [one for one in _meshes_of(arguments) or {mesh} if isinstance(one, jax.sharding.Mesh)]
    return mesh_context(meshes[0]) if len(meshes) == 1 else contextlib.nullcontext()
