"""The report on a compiled function of the user, and its arguments."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fake_devices import use_fake_devices
from ..usage import Refusal
from .loading import FunctionName, UserCode, contained, described, origin_of, refused_failures, user_settings

if TYPE_CHECKING:
    from jax_array_info_core import ProgramReport
    from jax_array_info_core.layouts.notation import ArrayNotation


@contextlib.contextmanager
def printed_to_stderr() -> Iterator[None]:
    """Send what Python, native code and other programs print to standard error.

    This includes what is printed by exit handlers that are registered in the block.
    """
    with contextlib.redirect_stdout(sys.stderr), _descriptor_of_stderr():
        try:
            yield
        finally:
            # The last handler runs first, before those of the block.
            atexit.register(_leave_to_stderr)


@contextlib.contextmanager
def _descriptor_of_stderr() -> Iterator[None]:
    """Make file descriptor 1 a duplicate of 2."""
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _leave_to_stderr() -> None:
    """Send what exit handlers print to standard error: the report is written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        os.dup2(2, 1)
    sys.stdout = sys.stderr


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


_WARNINGS = "1"
"""The level of XLA's logs that includes warnings."""
_OTHER_DEVICES = "incompatible devices"
"""Part of JAX's message on a function with a mesh of other devices than those of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A function to compile, with its arguments."""

    function: FunctionName
    mesh: Mapping[str, int]
    arrays: tuple[ArrayNotation, ...] = ()
    """The positional arguments, if there is no ``args_from``."""
    args_from: FunctionName | None = None
    """The function that returns the positional arguments."""
    topology: str | None = None


class NotCompiledError(Exception):
    """A function that cannot be traced or compiled. The message is one line."""


def report_on(request: Request) -> ProgramReport:
    """Start JAX on fake devices, load the function and its arguments, compile it, and return the report.

    If the function cannot be loaded or its arguments do not fit, the command ends with exit code 2.

    Raises:
        NotCompiledError: If JAX does not compile the function for these arguments.
    """
    _prepare_jax(math.prod(request.mesh.values()))
    with printed_to_stderr(), user_settings(request.function.source):
        # The devices exist before the file can change their number.
        with refused_failures("JAX cannot start"):
            mesh = device_mesh(request.mesh)
        code = UserCode()
        function = code.function(request.function)
        make = None if request.args_from is None else code.function(request.args_from)
        if request.topology is None:
            return _report(request, function, make, mesh)
        from jax_array_info_core import TopologyError, topology_mesh

        try:
            return _report(request, function, make, topology_mesh(request.topology, request.mesh))
        except TopologyError as error:
            raise Refusal(str(error)) from error
        except NotCompiledError as error:
            # The function has a mesh of its own, of the CPU devices.
            if _OTHER_DEVICES not in str(error.__cause__):
                raise
        return _report(request, function, make, mesh)


def _report(
    request: Request, function: Callable[..., Any], make: Callable[..., Any] | None, mesh: Any
) -> ProgramReport:
    """Return the report on a function whose arguments are on a mesh, or where ``make`` places them."""
    if request.args_from is None or make is None:
        arguments = abstract_arrays(request.arrays, mesh)
    else:
        with refused_failures(f"{request.args_from} failed"):
            arguments = returned_arguments(request.args_from, make, mesh)
            require_mesh_size(request.args_from, arguments, request.mesh)
    function = with_mesh(function, arguments, mesh)
    require_fitting(request.function, function, arguments)
    from jax_array_info_core import TopologyError, UnsupportedValueError, program_report

    try:
        with contained(), argument_context(arguments, mesh):
            # A persistent cache would have no warnings.
            return program_report(function, *arguments, topology=request.topology, fresh=True)
    except (TopologyError, UnsupportedValueError) as error:
        raise Refusal(str(error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the function may raise any
        # JAX refuses an argument that it cannot trace before it calls the function.
        if request.args_from and isinstance(error, TypeError) and origin_of(error) is None:
            require_arrays(request.args_from, arguments)
        raise NotCompiledError(f"{request.function} does not compile: {described(error)}") from error


def _prepare_jax(devices: int) -> None:
    """Make JAX start with this many CPU devices, and XLA print its rematerialization warnings."""
    use_fake_devices(devices)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = _WARNINGS
