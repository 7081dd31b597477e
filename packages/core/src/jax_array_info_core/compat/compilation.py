"""What is being compiled, and what the compiled module keeps alive."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar

from ..layouts.spec import MeshAxes
from .frames import frames, is_in_jax, stacks_of_other_threads
from .lowering import Compilation
from .meshes import mesh_axes
from .private import private
from .values import is_abstract_mesh

_T = TypeVar("_T")


def kept_with_module(module_context: Any, kind: type[_T]) -> _T:
    """Return the object of a class that a lowered module keeps alive: its first one, or a new one."""
    for kept in module_context.keepalives:
        if isinstance(kept, kind):
            return kept
    made = kind()
    module_context.add_keepalive(made)
    return made


_LOWERED_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED_EVENT = "/jax/core/compile/backend_compile_duration"

_when_lowered: dict[type, Callable[[Any, Any], None]] = {}
_when_compiled: dict[type, Callable[[Any, bool], None]] = {}


def call_when_lowered(kind: type[_T], function: Callable[[_T, Any], None]) -> None:
    """Have a function called with what a module keeps alive and the module, when it has been lowered."""
    _when_lowered[kind] = function
    _listen()


def call_when_compiled(kind: type[_T], function: Callable[[_T, bool], None]) -> None:
    """Have a function called with what a module keeps alive and whether its compilation has succeeded."""
    _when_compiled[kind] = function
    _listen()


def _listen() -> None:
    """Have JAX tell of each lowering and compilation, unless it does already."""
    monitoring = private("monitoring")
    if _on_event not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_on_event)


def _on_event(event: str, duration: float, **_: Any) -> None:
    """Find, among the callers, the lowering or compilation that has ended, and what it keeps alive."""
    if event == _LOWERED_EVENT:
        _on_lowered()
    elif event == _COMPILED_EVENT:
        _on_compiled()


def _on_lowered() -> None:
    for frame in frames():
        if "lowering_result" in frame.f_code.co_varnames and is_in_jax(frame):
            lowered = frame.f_locals.get("lowering_result")
            if lowered is None:  # lowering has failed
                return
            for thing in lowered.keepalive or ():
                if type(thing) in _when_lowered:
                    _when_lowered[type(thing)](thing, lowered.module)
            return


def _on_compiled() -> None:
    inner: list[FrameType] = []
    for frame in frames():
        if _compiles(frame):
            succeeded = not _has_failed(inner)
            for thing in frame.f_locals["keepalive"] or ():
                if type(thing) in _when_compiled:
                    _when_compiled[type(thing)](thing, succeeded)
            return
        inner.append(frame)


def _has_failed(frames: Sequence[FrameType]) -> bool:
    """Return whether an exception is on its way out of one of some frames, where JAX tells of the end.

    From jax 0.5 on it tells of failures as well. An exception that the user handles meanwhile has come
    from elsewhere.
    """
    error = sys.exc_info()[1]
    traceback = None if error is None else error.__traceback__
    while traceback is not None:
        if any(traceback.tb_frame is frame for frame in frames):
            return True
        traceback = traceback.tb_next
    return False


def compilation_of(thing: object) -> Compilation:
    """Return what the module is being compiled for that keeps an object alive."""
    stacks = itertools.chain([frames()], (stack for _, stack in stacks_of_other_threads()))
    for compiling in itertools.chain.from_iterable(map(_compilations, stacks)):
        if any(other is thing for other in compiling["keepalive"] or ()):
            # Up to jax 0.6 an assignment becomes a list on the way.
            names = ("device_list", "da", "device_assignment")
            found = next((compiling[name] for name in names if compiling.get(name) is not None), ())
            devices = tuple(found)
            return Compilation(devices, _mesh_of(devices, compiling))
    return Compilation()


def _compilations(stack: Iterable[FrameType]) -> Iterator[Mapping[str, Any]]:
    """Yield what the functions on a stack that compile a module have as their variables."""
    for frame in stack:
        if _compiles(frame):
            yield frame.f_locals


def _compiles(frame: FrameType) -> bool:
    """Return whether a frame is JAX's function that compiles a module."""
    return frame.f_code.co_name == "from_hlo" and is_in_jax(frame) and "keepalive" in frame.f_locals


def _mesh_of(devices: tuple[Any, ...], compiling: Mapping[str, Any]) -> MeshAxes | None:
    """Return the mesh of the first sharding of a program that has one of all its devices."""
    names = ("in_shardings", "out_shardings", "intermediate_shardings")
    shardings = itertools.chain.from_iterable(compiling.get(name) or () for name in names)
    for mesh in [*(getattr(sharding, "mesh", None) for sharding in shardings), compiling.get("context_mesh")]:
        if mesh is None or mesh.empty or mesh.size != len(devices):
            continue
        if is_abstract_mesh(mesh) or tuple(mesh.devices.flat) == devices:
            return mesh_axes(mesh)
    return None
