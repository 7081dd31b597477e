"""The report on a compiled or propagated function of the user, and its arguments."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..output import Refusal, refused
from ..simulated_devices import use_simulated_devices
from ..standard_streams import copy_out_of_reach
from . import FunctionName, Run, contained, described, loaded, plainly, refused_failures, user_settings

if TYPE_CHECKING:
    from jax_array_info_core.geometry.layouts.notation import ArrayNotation
    from jax_array_info_core.reports import ProgramReport, PropagationReport


_OTHER_DEVICES = "incompatible devices"
"""Part of JAX's message on a function with a mesh of other devices than those of its arguments."""
_OP_NAME = re.compile(r'op_name="([^"]+)"')
_MOST_FOR_FILES = 64
"""Number of devices up to which a file can build the mesh itself, if the command needs none."""
_R = TypeVar("_R", "ProgramReport", "PropagationReport")
_NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A function to compile or to propagate, with its arguments."""

    function: FunctionName
    mesh: Mapping[str, int]
    arrays: tuple[ArrayNotation, ...] = ()
    """The positional arguments, if there is no ``args_from``."""
    args_from: FunctionName | None = None
    """The function that returns the positional arguments."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the report, such as ``ignore_codes``."""


class NotCompiledError(Exception):
    """A function that cannot be traced or compiled. The message is one line."""


def report_on(
    request: Request, report_of: Callable[..., ProgramReport] | None = None, run: Run = plainly
) -> ProgramReport:
    """Start JAX on simulated devices, load the function and its arguments, compile it, and return the report.

    If the function cannot be loaded or its arguments do not fit, the command ends with exit code 2.

    Args:
        request: The function, its arguments and the options of the report.
        report_of: The function that returns the report; None for ``program_report``.
        run: The function that runs the code of a file.

    Raises:
        NotCompiledError: If JAX does not compile the function for these arguments.
    """
    _prepare_jax(math.prod(request.mesh.values()))
    with _printed_to_stderr(), user_settings(request.function.source):
        # The devices exist before the file can change their number.
        with refused_failures("JAX cannot start"):
            import jax
            import numpy as np

            devices = np.array(jax.devices()[: math.prod(request.mesh.values())], object)
            mesh = jax.sharding.Mesh(devices.reshape([*request.mesh.values()]), tuple(request.mesh))
        code = _loaded(request, run)
        from jax_array_info_core import program_report, topology_mesh
        from jax_array_info_core.errors import TopologyError

        if (topology := request.options["topology"]) is not None:
            with refused(TopologyError):
                there = topology_mesh(topology, request.mesh, dcn=request.options["dcn"])
            try:
                return _report(request, code, there, report_of or program_report)
            except NotCompiledError as error:
                # The function has a mesh of its own, of the CPU devices.
                if _OTHER_DEVICES not in str(error.__cause__):
                    raise
        return _report(request, code, mesh, report_of or program_report)


def propagation_on(request: Request) -> PropagationReport:
    """Load the function and its arguments, on a mesh without devices, and return why values are sharded so.

    If the function cannot be loaded or its arguments do not fit, the command ends with exit code 2.

    Raises:
        NotCompiledError: If JAX does not lower the function for these arguments.
    """
    count = math.prod(request.mesh.values())
    _prepare_jax(count if count <= _MOST_FOR_FILES else 1)
    with _printed_to_stderr(), user_settings(request.function.source):
        from jax_array_info_core import propagation_report
        from jax_array_info_core.compat.lowering import mesh_of_jax, require_shardy
        from jax_array_info_core.errors import UnsupportedValueError

        with refused(UnsupportedValueError):
            require_shardy()
        return _report(request, _loaded(request), mesh_of_jax(request.mesh), propagation_report)


def _loaded(request: Request, run: Run = plainly) -> list[Callable[..., Any]]:
    """Return the function, and the one that returns its arguments, if there is one."""
    return loaded([request.function, *filter(None, [request.args_from])], run)


def _report(
    request: Request, code: Sequence[Callable[..., Any]], mesh: Any, report_of: Callable[..., _R]
) -> _R:
    """Return the report on a function whose arguments are on a mesh, or where their function places them."""
    if request.args_from is None:
        arguments = _abstract_arrays(request.arrays, mesh)
    else:
        with refused_failures(f"{request.args_from} failed"):
            arguments = _returned_arguments(request.args_from, code[1], mesh)
            _require_mesh_size(request.args_from, arguments, request.mesh)
    function = _fitting(request.function, code[0], arguments, mesh)
    from jax_array_info_core.arrays.origins.origins import error_origin
    from jax_array_info_core.errors import TopologyError, UnsupportedValueError

    try:
        with (
            refused(TopologyError, UnsupportedValueError),
            contained(),
            _argument_context(arguments, mesh),
        ):
            return report_of(function, *arguments, **request.options)
    except (Refusal, KeyboardInterrupt):
        raise
    except BaseException as error:  # the function may raise any
        if not _is_of_jax(error):
            raise
        # JAX refuses an argument that it cannot trace before it calls the function.
        if request.args_from and isinstance(error, TypeError) and error_origin(error) is None:
            _require_arrays(request.args_from, arguments)
        with _argument_context(arguments, mesh):
            words = _refusal_words(error, function, arguments)
        raise NotCompiledError(f"{request.function} does not compile: {words}") from error


def _refusal_words(error: BaseException, function: Callable[..., Any], arguments: Sequence[Any]) -> str:
    """Return why JAX or XLA does not compile a function, of a known kind as ``jai-cli log`` tells it.

    The line is that of the operation that XLA names.
    """
    import jax

    from jax_array_info_core import log_report
    from jax_array_info_core.base.text import plain_text
    from jax_array_info_core.compat.processes import only_cpu
    from jax_array_info_core.compat.stages import stages_of
    from jax_array_info_core.programs.compiled import operation_origin

    if not isinstance(error, jax.errors.JaxRuntimeError):
        return described(error)
    text = f"{type(error).__name__}: {plain_text(error)}"
    report = log_report(text.splitlines())
    known = [finding for finding in report.findings if finding.kind != "not interpreted"]
    if not known:
        return described(error)
    origin, name = None, _OP_NAME.search(text)
    with contextlib.suppress(Exception), only_cpu():  # what a trace raises the second time
        origin = name and operation_origin(stages_of(function, arguments, {}).traced.jaxpr, name[1])
    fact = report.headline.removeprefix("does not fit: ")
    return f"{fact}{f' ({origin})' if origin else ''}. {known[0].remedy}"


def _is_of_jax(error: BaseException) -> bool:
    """Return whether an error was raised while JAX traced, lowered or compiled the function."""
    from jax_array_info_core.compat.lowering import lowered_for_propagation
    from jax_array_info_core.compat.stages import array_leaves, stages_of
    from jax_array_info_core.programs.compiled import compiled_stages

    steps = {step.__code__ for step in (array_leaves, stages_of, lowered_for_propagation, compiled_stages)}
    return any(frame.f_code in steps for frame, _ in traceback.walk_tb(error.__traceback__))


def _prepare_jax(devices: int) -> None:
    """Make JAX start with this many CPU devices, without its cache of programs on disk."""
    use_simulated_devices(devices)
    # A program from there can have lines of an older file.
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"


@contextlib.contextmanager
def _printed_to_stderr() -> Iterator[None]:
    """Send what Python, native code and other programs print to standard error.

    This includes what is printed by exit handlers that are registered in the block. If the block closes
    standard output, the report follows on standard error.
    """
    saved = copy_out_of_reach(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        try:
            os.dup2(saved, 1)
            os.close(saved)
        except OSError:
            click.echo("Standard output was closed by the file: the output is on standard error.", err=True)
        # The last handler runs first, before those of the block.
        atexit.register(_leave_to_stderr)


def _leave_to_stderr() -> None:
    """Send what exit handlers print to standard error: the report is written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        os.dup2(2, 1)
    sys.stdout = sys.stderr


def _abstract_arrays(arrays: Iterable[ArrayNotation], mesh: Any) -> tuple[Any, ...]:
    """Return the ShapeDtypeStructs of ``--arg``. If JAX truncates a dtype, end the command."""
    import jax

    from jax_array_info_core.compat.lowering import sharded_struct
    from jax_array_info_core.geometry.layouts.dtypes import named_dtype

    structs = []
    for array in arrays:
        dtype = named_dtype(array.dtype)
        if (truncated := jax.dtypes.canonicalize_dtype(dtype)) != dtype:
            raise Refusal(
                f"--arg: JAX truncates {dtype} to {truncated}. Write {truncated}, or set JAX_ENABLE_X64=1"
            )
        structs.append(sharded_struct(jax.ShapeDtypeStruct(array.shape, dtype), mesh, array.spec, None))
    return tuple(structs)


def _returned_arguments(name: FunctionName, function: Callable[..., Any], mesh: Any) -> tuple[Any, ...]:
    """Return the positional arguments that the function of ``--args-from`` returns.

    It is called with the mesh if it has an argument ``mesh``, or one without a default. A list or a tuple
    contains the arguments; any other value is the only one.
    """
    parameters = inspect.signature(function).parameters
    if "mesh" in parameters:
        returned = function(mesh=mesh)
    elif any(parameter.default is parameter.empty for parameter in parameters.values()):
        returned = function(mesh)
    else:
        returned = function()
    if returned is None:
        raise Refusal(f"{name} returned None instead of the arguments: return them as a tuple")
    # A named tuple is one argument, such as a training state.
    return tuple(returned) if type(returned) in (tuple, list) else (returned,)


def _fitting(
    name: FunctionName, function: Callable[..., Any], arguments: Sequence[Any], mesh: Any
) -> Callable[..., Any]:
    """Return a function with the mesh as its argument ``mesh``, if it has one that is not given.

    If it does not take this number of arguments, the command ends.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a stage, or a function of native code
        return function
    try:
        given = signature.bind_partial(*arguments).arguments
        options = {"mesh": mesh} if "mesh" in signature.parameters and "mesh" not in given else {}
        signature.bind(*arguments, **options)
    except TypeError as error:
        from jax_array_info_core.base.quantities import counted

        count = counted(len(arguments), "argument", "arguments")
        raise Refusal(
            f"{name}({', '.join(signature.parameters)}) was given {count}: {error}. "
            "Pass --arg 'float32[8,4]@data' for each, or --args-from FILE:FUNCTION."
        ) from error
    return functools.partial(function, **options) if options else function


def _require_mesh_size(name: FunctionName, arguments: Sequence[Any], sizes: Mapping[str, int]) -> None:
    """End the command if arguments are on a mesh with another number of devices than that of ``--mesh``."""
    from jax_array_info_core.geometry.layouts.notation import format_mesh

    count = math.prod(sizes.values())
    for mesh in _meshes_of(arguments):
        size = math.prod(mesh.shape.values())
        if mesh.shape and size != count:
            raise Refusal(
                f"{name} returned arguments on a mesh of {size} devices ({format_mesh(mesh.shape)}), but"
                f" --mesh {format_mesh(sizes)} has {count}: use the mesh that it is called with, or change"
                " --mesh"
            )


def _require_arrays(name: FunctionName, arguments: Sequence[Any]) -> None:
    """End the command if an argument contains a value that JAX cannot trace."""
    import jax

    for path, leaf in jax.tree_util.tree_flatten_with_path(tuple(arguments))[0]:
        if not isinstance(leaf, _NUMBERS) and not hasattr(leaf, "shape"):
            raise Refusal(
                f"{name} returned a value of type {type(leaf).__name__} at {jax.tree_util.keystr(path)} of"
                " the arguments: return arrays or ShapeDtypeStructs, or make it static with jax.jit"
            )


def _meshes_of(arguments: Sequence[Any]) -> set[Any]:
    """Return the meshes on which arguments are sharded."""
    import jax

    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments)]
    named = (sharding for sharding in shardings if isinstance(sharding, jax.sharding.NamedSharding))
    return {sharding.mesh for sharding in named}


def _argument_context(arguments: Sequence[Any], mesh: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which specs without a mesh refer to that of the arguments.

    Args:
        arguments: Arguments of a function.
        mesh: The mesh if no argument has one.
    """
    from jax_array_info_core.compat.shardings import mesh_context

    meshes = [present for present in _meshes_of(arguments) or {mesh} if present.shape]
    return mesh_context(meshes[0]) if len(meshes) == 1 else contextlib.nullcontext()
