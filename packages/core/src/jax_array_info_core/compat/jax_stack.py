"""JAX's functions on the stack: what it traces, lowers or compiles around the caller.

JAX has no public function that says so: the names below are private. ``tests/core/compat/test_canary.py``
has a test for each, which fails where a new version of jax has moved it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from types import FrameType
from typing import Any, Literal

from ..layouts.spec import MeshAxes
from .frames import frames, stack, stacks_of_other_threads
from .lowering import Compilation
from .meshes import mesh_axes
from .private import private
from .values import is_abstract_mesh

NOT_COMPILED = ("eval_shape", "make_jaxpr_f")
"""The functions that trace and do not compile."""
WRAPPER = "traceback_util"
"""The file of the function that JAX wraps around its own."""
EXPORT = "do_export"
REDUCTION = ("_reduction_jaxpr", "_variadic_reduction_jaxpr")
"""The functions that trace what a reduction, a scatter or the like applies."""
KERNEL_FOLDER = "pallas"
STAGING = "DynamicJaxprTrace"
"""The class of a trace that makes a program."""
LOWER = ("pxla.py", "closed_jaxpr")
"""The file of the functions that lower a program, and their variable that has it."""
LOWERED = "lowering_result"
"""The variable that has a program when it is lowered."""
COMPILE_PART = "_custom_partitioning_partition"
"""The function that lowers a part of a program while the whole is compiled."""
COMPILE = "from_hlo"
"""The function that compiles a module; of its variables are the next four."""
KEPT = "keepalive"
"""What the module keeps alive."""
DEVICES = ("device_list", "da", "device_assignment")
"""The devices; up to jax 0.6 an assignment becomes a list on the way."""
SHARDINGS = ("in_shardings", "out_shardings", "intermediate_shardings")
MESH = "context_mesh"


def is_in_jax(frame: FrameType) -> bool:
    """Return whether a frame is of a function of JAX."""
    import jax

    return frame.f_code.co_filename.startswith(os.path.dirname(jax.__file__) + os.sep)


def _runs(names: Iterable[str], callers: Iterable[FrameType]) -> bool:
    """Return whether a function of JAX with one of some names is on a stack."""
    return any(frame.f_code.co_name in names and is_in_jax(frame) for frame in callers)


def will_not_compile() -> bool:
    """Return whether the trace around the caller is one that JAX makes without meaning to compile it.

    Those that JAX itself calls, as ``jax.numpy.frompyfunc`` does, are a step on the way to a compilation.
    """
    unwrapped = (frame for frame in frames() if WRAPPER not in frame.f_code.co_filename)
    return is_exporting() or any(
        _runs(NOT_COMPILED, [callee]) and not is_in_jax(caller) for callee, caller in pairwise(unwrapped)
    )


def is_exporting() -> bool:
    """Return whether ``jax.export`` is among the callers."""
    return _runs([EXPORT], frames())


def is_compiling() -> bool:
    """Return whether JAX compiles a program around the caller, instead of lowering one."""
    return _runs([COMPILE, COMPILE_PART], frames())


def compiling_thread() -> int | None:
    """Return another thread in which JAX compiles a program, None where there is none."""
    return next((thread for thread, stack in stacks_of_other_threads() if _runs([COMPILE], stack)), None)


def blind_spot() -> Literal["kernel", "reducer"] | None:
    """Return what is traced around the caller that XLA does not partition, None where it partitions all.

    That is a Pallas kernel, whose language is not all of JAX's, or the function of a reduction, a scatter
    or the like. JAX traces each of the latter in the same two functions, and refuses effects in it.
    """
    for frame in filter(is_in_jax, frames()):
        if frame.f_code.co_name in REDUCTION:
            return "reducer"
        if f"{os.sep}{KERNEL_FOLDER}{os.sep}" in frame.f_code.co_filename:
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
            if type(trace).__name__ == STAGING:
                return True
            trace = getattr(trace, "parent_trace", None)
    return False


def lowered_effects() -> list[set[Any]]:
    """Return the effects of the programs that JAX is lowering around the caller, to be changed there."""
    file, variable = LOWER
    # Up to Python 3.12, who asks for a frame's variables has it hold copies of all: not of a tracer.
    programs = [
        frame.f_locals.get(variable)
        for frame in frames()
        if variable in frame.f_code.co_varnames and frame.f_code.co_filename.endswith(file)
    ]
    effects = [getattr(program, "effects", None) for program in programs]
    return [found for found in effects if isinstance(found, set)]


def lowering_result() -> Any:
    """Return what JAX has just lowered around the caller, None where it has failed."""
    for frame in frames():
        if LOWERED in frame.f_code.co_varnames and is_in_jax(frame):
            return frame.f_locals.get(LOWERED)
    return None


def compiling(callers: Iterable[FrameType]) -> Iterator[FrameType]:
    """Yield the frames on a stack in which JAX compiles a module, the innermost first."""
    for frame in callers:
        if _runs([COMPILE], [frame]) and KEPT in frame.f_locals:
            yield frame


def kept_alive(compiling: FrameType) -> Iterable[object]:
    """Return what a module keeps alive that is compiled in a frame."""
    return compiling.f_locals[KEPT] or ()


def is_failing(compiling: FrameType) -> bool:
    """Return whether an exception is on its way out to a frame.

    One that the user handles meanwhile is on its way to a caller of that.
    """
    traceback = sys.exc_info()[2]
    return traceback is not None and any(frame is compiling for frame in stack(traceback.tb_frame))


def compilation_of(thing: object) -> Compilation:
    """Return what the module is being compiled for that keeps an object alive."""
    stacks = chain([frames()], (callers for _, callers in stacks_of_other_threads()))
    for frame in compiling(chain.from_iterable(stacks)):
        if any(kept is thing for kept in kept_alive(frame)):
            variables = frame.f_locals
            devices = next(
                (tuple(variables[name]) for name in DEVICES if variables.get(name) is not None), ()
            )
            return Compilation(devices, _mesh_of(devices, variables))
    return Compilation()


def _mesh_of(devices: tuple[Any, ...], variables: Mapping[str, Any]) -> MeshAxes | None:
    """Return the mesh of the first sharding of a program that has one of all its devices."""
    shardings = chain.from_iterable(variables.get(name) or () for name in SHARDINGS)
    meshes = [*(getattr(sharding, "mesh", None) for sharding in shardings), variables.get(MESH)]
    whole = [mesh for mesh in meshes if mesh is not None and not mesh.empty and mesh.size == len(devices)]
    matching = (mesh for mesh in whole if is_abstract_mesh(mesh) or tuple(mesh.devices.flat) == devices)
    return next(map(mesh_axes, matching), None)
