"""The report on a compiled function of the user."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..fake_devices import use_fake_devices
from ..usage import Refusal
from .arguments import (
    abstract_arrays,
    argument_context,
    device_mesh,
    require_arrays,
    require_fitting,
    require_mesh_size,
    returned_arguments,
    with_mesh,
)
from .failures import contained, described, origin_of, refused_failures
from .loading import UserCode, user_settings
from .names import FunctionName
from .streams import printed_to_stderr

if TYPE_CHECKING:
    from jax_array_info_core import ProgramReport
    from jax_array_info_core.layouts.notation import ArrayNotation

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
