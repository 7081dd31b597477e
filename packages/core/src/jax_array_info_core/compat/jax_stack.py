"""Call stacks of Python and of JAX during tracing, lowering and compilation."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from types import FrameType
from typing import Any, Literal, NamedTuple

from ..base.text import plain_text
from ..geometry.layouts.spec import MeshAxes
from . import private
from .shardings import mesh_axes, mesh_placement
from .values import is_abstract_mesh


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and the frames of its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def frames() -> Iterator[FrameType]:
    """Yield the frames of the calling function's callers, innermost first.

    The calling function's own frame is excluded. A frame that refers to itself would keep all its callers'
    variables alive, the user's arrays among them, until the garbage collector runs.
    """
    return stack(sys._getframe(2))


def caller_outside(prefix: str) -> tuple[str, int | None, int] | None:
    """Return the innermost call in a module whose name does not start with a prefix.

    It is the file, the line, and the place in the bytecode, which differs for two calls on one line.
    """
    for frame in frames():
        if not str(frame.f_globals.get("__name__")).startswith(prefix):
            return frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
    return None


def stacks_of_other_threads() -> Iterator[tuple[int, Iterator[FrameType]]]:
    """Yield the id and the stack of each other thread; in JAX 0.10, XLA calls back in its own thread."""
    current = sys._current_frames()
    # A frame that is in one of its own variables refers to itself.
    current.pop(threading.get_ident(), None)
    while current:
        thread, frame = current.popitem()
        yield thread, stack(frame)


def is_foreign_thread() -> bool:
    """Return whether the current thread was started outside Python."""
    return isinstance(threading.current_thread(), threading._DummyThread)


class LoweringPlace(NamedTuple):
    """The target of a lowering: of a program, or of a shard_map inside it."""

    device_count: int
    """Number of devices. Only the compilation determines which ones (``compilation_target``)."""

    mesh: MeshAxes | None = None
    """Inside shard_map and pmap: the axes of the mesh."""

    manual: frozenset[str] = frozenset()
    """Names of the manual axes."""

    @property
    def is_manual(self) -> bool:
        """Whether there is a mesh and all its axes are manual."""
        return self.mesh is not None and self.manual >= set(self.mesh.names)


class CompilationTarget(NamedTuple):
    """The target of a module's compilation."""

    devices: tuple[Any, ...] = ()
    """The devices in XLA's order; empty if they could not be found."""

    mesh: MeshAxes | None = None
    """A mesh of these devices, in this order, from the program's shardings."""


def lowering_place(module_context: Any) -> LoweringPlace | None:
    """Return the target of a module's lowering; None if it is lowered for export."""
    if module_context.lowering_parameters.for_export:
        return None
    context = module_context.axis_context
    if hasattr(context, "manual_axes"):  # inside shard_map
        manual = frozenset(map(str, context.manual_axes))
        return LoweringPlace(context.mesh.size, mesh_axes(context.mesh), manual)
    if hasattr(context, "num_devices"):
        return LoweringPlace(context.num_devices)
    # pmap up to JAX 0.7.2
    axes = context.axis_env
    sizes = {
        name if isinstance(name, str) else "unnamed": size
        for name, size in zip(axes.names, axes.sizes, strict=True)
    }
    mesh = MeshAxes(tuple(sizes), tuple(sizes.values()))
    return LoweringPlace(math.prod(axes.sizes), mesh, frozenset(sizes))


SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_default_prng_impl",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_threefry_gpu_kernel_lowering",
    "jax_random_seed_offset",
    "jax_enable_custom_prng",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_debug_key_reuse",
    "jax_check_tracer_leaks",
    "jax_softmax_custom_jvp",
    "jax_high_dynamic_range_gumbel",
    "jax_use_shardy_partitioner",
    "jax_use_direct_linearize",
    "jax_allow_f16_reductions",
    "jax_dynamic_shapes",
    "jax_disable_jit",
    "jax_no_execution",
    "jax_enable_pgle",
    "jax_pgle_profiling_runs",
    "jax_error_checking_behavior_nan",
    "jax_error_checking_behavior_divide",
    "jax_error_checking_behavior_oob",
    "jax_xla_profile_version",
    "jax_hlo_source_file_canonicalization_regex",
)


class ContextValue(NamedTuple):
    """One setting or context."""

    text: str
    key: Hashable = None
    """A value that differs where two values have the same text."""


def trace_context() -> dict[str, ContextValue]:
    """Return the settings and the meshes in effect in this thread, by name. Unknown settings are left out."""
    import jax

    values = {name: getattr(jax.config, name, None) for name in SETTINGS}
    context = {name: ContextValue(plain_text(value)) for name, value in values.items() if value is not None}
    mesh = context_mesh()
    if mesh is not None:
        axes, ids, *_ = mesh_placement(mesh)
        text = ", ".join(f"{name}={size}" for name, size in axes.shape.items())
        text += f" ({', '.join(axes.types)})" if set(axes.types) - {"Auto"} else ""
        context["mesh"] = ContextValue(text, None if ids is None else hash(ids.tobytes()))
    return context


def context_mesh() -> Any:
    """Return the mesh of ``jax.set_mesh``, ``use_mesh`` or ``with mesh``; None if there is none."""
    meshes = private("mesh")
    environment = getattr(getattr(meshes, "thread_resources", None), "env", None)
    candidates = [
        getattr(meshes, "get_concrete_mesh", lambda: None)(),
        getattr(environment, "physical_mesh", None),
        getattr(meshes, "get_abstract_mesh", lambda: None)(),
    ]
    meshes_in_use = (
        mesh for mesh in candidates if mesh is not None and hasattr(mesh, "empty") and not mesh.empty
    )
    return next(meshes_in_use, None)


NOT_COMPILED = ("eval_shape", "make_jaxpr_f")
"""The functions that trace without compiling."""
ANALYZED = ("trace_to_jaxpr_dynamic",)
"""The function that traces for the caller's own use, if JAX is not the caller."""
WRAPPERS = ("traceback_util.py", "profiler.py")
"""The files of the wrappers around JAX's functions."""
EXPORT = "do_export"
REDUCTION = ("_reduction_jaxpr", "_variadic_reduction_jaxpr")
"""The functions that trace the function of a reduction, a scatter or a similar operation."""
KERNEL_FOLDER = "pallas"
STAGING = "DynamicJaxprTrace"
"""The class of a trace that builds a program."""
LOWER = ("pxla.py", "closed_jaxpr")
"""The file of the functions that lower a program, and the name of their variable for it."""
LOWERED = "lowering_result"
"""The variable with the lowered program."""
COMPILE_PART = "_custom_partitioning_partition"
"""The function that lowers a part of a program while the program is compiled."""
COMPILE = "from_hlo"
"""The function that compiles a module. The next four constants name its variables."""
KEEPALIVE = "keepalive"
"""The objects that the module keeps alive."""
DEVICES = ("device_list", "da", "device_assignment")
"""The devices; up to JAX 0.6, the function converts an assignment to a list."""
SHARDINGS = ("in_shardings", "out_shardings", "intermediate_shardings")
MESH = "context_mesh"


def is_in_jax(frame: FrameType) -> bool:
    """Return whether a frame belongs to a function of JAX."""
    import jax

    return frame.f_code.co_filename.startswith(os.path.dirname(jax.__file__) + os.sep)


def _runs(names: Iterable[str], callers: Iterable[FrameType]) -> bool:
    """Return whether one of the named JAX functions is on a stack."""
    return any(frame.f_code.co_name in names and is_in_jax(frame) for frame in callers)


def will_not_compile() -> bool:
    """Return whether the user only traces or exports the program, as with ``jax.eval_shape``.

    A trace that JAX itself starts, as in ``jax.numpy.frompyfunc``, is a step towards a compilation.
    """
    return is_exporting() or _is_called_outside_jax(NOT_COMPILED, frames())


def is_only_analyzed() -> bool:
    """Return whether a library traces the program to analyze it, and may reject operations with effects.

    Flax's ``nn.scan`` does so before each scan, to find variables that depend on the loop.
    """
    return _is_called_outside_jax(ANALYZED, frames())


def _is_called_outside_jax(names: Iterable[str], callers: Iterable[FrameType]) -> bool:
    """Return whether a caller outside JAX called one of the named JAX functions on a stack."""
    unwrapped = (
        frame for frame in callers if not (frame.f_code.co_filename.endswith(WRAPPERS) and is_in_jax(frame))
    )
    return any(_runs(names, [callee]) and not is_in_jax(caller) for callee, caller in pairwise(unwrapped))


def is_exporting() -> bool:
    """Return whether ``jax.export`` is on the stack."""
    return _runs([EXPORT], frames())


def is_compiling() -> bool:
    """Return whether a compilation is on the stack, so that JAX is past the lowering of the program."""
    return _runs([COMPILE, COMPILE_PART], frames())


def compiling_thread() -> int | None:
    """Return the id of another thread that compiles a program; None if there is none."""
    return next((thread for thread, stack in stacks_of_other_threads() if _runs([COMPILE], stack)), None)


def unpartitioned_context() -> Literal["kernel", "reducer"] | None:
    """Return the category of the function that is being traced, if XLA does not partition it; else None.

    ``kernel`` is a Pallas kernel, which supports only part of JAX. ``reducer`` is the function of a
    reduction, a scatter or a similar operation: JAX traces these in two functions, and allows no effects.
    """
    for frame in filter(is_in_jax, frames()):
        if frame.f_code.co_name in REDUCTION:
            return "reducer"
        if f"{os.sep}{KERNEL_FOLDER}{os.sep}" in frame.f_code.co_filename:
            return "kernel"
    return None


def is_staging() -> bool:
    """Return whether JAX is staging a program, so that operations run later."""
    if "jax" not in sys.modules:
        return False
    # A later version may rename its traces.
    with contextlib.suppress(ImportError, AttributeError):
        trace = private("core").trace_ctx.trace
        while trace is not None:
            if type(trace).__name__ == STAGING:
                return True
            trace = getattr(trace, "parent_trace", None)
    return False


def lowered_effects() -> list[set[Any]]:
    """Return the effects of the programs that JAX is lowering: the sets themselves, which may be modified."""
    file, variable = LOWER
    # Up to Python 3.12, f_locals stores a copy of all variables in the frame. Frames that may have a tracer
    # among them are left alone.
    programs = [
        frame.f_locals.get(variable)
        for frame in frames()
        if variable in frame.f_code.co_varnames and frame.f_code.co_filename.endswith(file)
    ]
    effects = [getattr(program, "effects", None) for program in programs]
    return [effect for effect in effects if isinstance(effect, set)]


def lowering_result() -> Any:
    """Return the program that JAX has just lowered; None if the lowering failed."""
    for frame in frames():
        if LOWERED in frame.f_code.co_varnames and is_in_jax(frame):
            return frame.f_locals.get(LOWERED)
    return None


def compiling(callers: Iterable[FrameType]) -> Iterator[FrameType]:
    """Yield the frames on a stack that compile a module, innermost first."""
    for frame in callers:
        if _runs([COMPILE], [frame]) and KEEPALIVE in frame.f_locals:
            yield frame


def keepalives(compiling: FrameType) -> Iterable[object]:
    """Return the objects kept alive by the module that a frame compiles."""
    return compiling.f_locals[KEEPALIVE] or ()


def is_failing(compiling: FrameType) -> bool:
    """Return whether an exception is propagating from the compilation in a frame.

    An exception that the user handles around the compilation does not count: it was raised in a caller.
    """
    traceback = sys.exc_info()[2]
    return traceback is not None and any(frame is compiling for frame in stack(traceback.tb_frame))


def compilation_target(listener: object) -> CompilationTarget:
    """Return the devices and the mesh for which a listener's module is being compiled."""
    stacks = chain([frames()], (callers for _, callers in stacks_of_other_threads()))
    for frame in compiling(chain.from_iterable(stacks)):
        if any(keepalive is listener for keepalive in keepalives(frame)):
            variables = frame.f_locals
            devices = next(
                (tuple(variables[name]) for name in DEVICES if variables.get(name) is not None), ()
            )
            return CompilationTarget(devices, _mesh_of(devices, variables))
    return CompilationTarget()


def _mesh_of(devices: tuple[Any, ...], variables: Mapping[str, Any]) -> MeshAxes | None:
    """Return the first mesh among a program's shardings that has all the program's devices, in order."""
    shardings = chain.from_iterable(variables.get(name) or () for name in SHARDINGS)
    meshes = [*(getattr(sharding, "mesh", None) for sharding in shardings), variables.get(MESH)]
    complete = [mesh for mesh in meshes if mesh is not None and not mesh.empty and mesh.size == len(devices)]
    matching = (mesh for mesh in complete if is_abstract_mesh(mesh) or tuple(mesh.devices.flat) == devices)
    return next(map(mesh_axes, matching), None)
