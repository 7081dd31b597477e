"""What is being traced or lowered round the caller."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from typing import Any, Literal

from ..layouts.spec import MeshAxes
from .frames import frames, is_in_jax, stacks_of_other_threads
from .lowering import LoweringPlace
from .meshes import mesh_axes
from .private import private


def will_not_compile() -> bool:
    """Return whether the trace around the caller is one that JAX makes without meaning to compile it.

    JAX does not say so: ``eval_shape``, ``make_jaxpr`` and ``export`` are looked for among the callers.
    Those that JAX itself calls, as ``jax.numpy.frompyfunc`` does, are a step on the way to a compilation.
    """
    waiting = False
    for frame in frames():
        if waiting and "traceback_util" not in frame.f_code.co_filename:
            if not is_in_jax(frame):
                return True
            waiting = False
        if frame.f_code.co_name in ("eval_shape", "make_jaxpr_f") and is_in_jax(frame):
            waiting = True
    return is_exporting()


def is_exporting() -> bool:
    """Return whether ``jax.export`` is among the callers."""
    return any(frame.f_code.co_name == "do_export" and is_in_jax(frame) for frame in frames())


def blind_spot() -> Literal["kernel", "reducer"] | None:
    """Return what is traced around the caller that XLA does not partition, None where it partitions all.

    That is a Pallas kernel, whose language is not all of JAX's, or the function of a reduction, a scatter
    or the like. JAX traces each of the latter in the same two functions, and refuses effects in it.
    """
    for frame in filter(is_in_jax, frames()):
        if frame.f_code.co_name in ("_reduction_jaxpr", "_variadic_reduction_jaxpr"):
            return "reducer"
        if f"{os.sep}pallas{os.sep}" in frame.f_code.co_filename:
            return "kernel"
    return None


def is_staging() -> bool:
    """Return whether JAX traces a program around the caller, so that operations run later."""
    if "jax" not in sys.modules:
        return False
    # A later version may name its traces otherwise.
    with contextlib.suppress(ImportError, AttributeError):
        trace = private("core").trace_ctx.trace
        while trace is not None:
            if type(trace).__name__ == "DynamicJaxprTrace":
                return True
            trace = getattr(trace, "parent_trace", None)
    return False


def is_compiling() -> bool:
    """Return whether JAX compiles a program around the caller, instead of lowering one."""
    names = ("from_hlo", "_custom_partitioning_partition")
    return any(frame.f_code.co_name in names and is_in_jax(frame) for frame in frames())


def compiling_thread() -> int | None:
    """Return another thread in which JAX compiles a program, None where there is none."""
    for thread, stack in stacks_of_other_threads():
        if any(frame.f_code.co_name == "from_hlo" and is_in_jax(frame) for frame in stack):
            return thread
    return None


def lowering_place(module_context: Any) -> LoweringPlace | None:
    """Return what a module is lowered for; None when that is export."""
    if module_context.lowering_parameters.for_export:
        return None
    context = module_context.axis_context
    if hasattr(context, "manual_axes"):  # inside shard_map
        manual = frozenset(map(str, context.manual_axes))
        return LoweringPlace(context.mesh.size, mesh_axes(context.mesh), manual)
    if hasattr(context, "num_devices"):
        return LoweringPlace(context.num_devices)
    # pmap up to jax 0.7.2
    names = tuple(name if isinstance(name, str) else "unnamed" for name in context.axis_env.names)
    mesh = MeshAxes(names, tuple(context.axis_env.sizes))
    return LoweringPlace(math.prod(mesh.sizes), mesh, frozenset(names))
