"""Compilations: a listener for those of this process, and what is left of a refused one."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .compiled_calls import CompiledCall, compiled_call
from .jax_stack import compiling, frames, is_failing, keepalives, lowering_result
from .values import private

LOWERED_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED_EVENT = "/jax/core/compile/backend_compile_duration"


class ModuleListener:
    """A listener that a lowered module keeps alive."""

    def lowered(self, module: Any) -> None:
        """Handle the end of the module's lowering."""

    def compiled(self, succeeded: bool) -> None:
        """Handle the end of the module's compilation."""


_L = TypeVar("_L", bound=ModuleListener)


def module_listener(module_context: Any, listener_class: type[_L]) -> _L:
    """Return a module's listener of a class, added if the module has none."""
    for keepalive in module_context.keepalives:
        if isinstance(keepalive, listener_class):
            return keepalive
    monitoring = private("monitoring")
    if _on_lowering_event not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_on_lowering_event)
    listener = listener_class()
    module_context.add_keepalive(listener)
    return listener


def compilations_are_heard() -> bool:
    """Return whether listeners hear of the end of every compilation.

    JAX 0.4 does not record failed ones, and programs can remove all listeners of JAX's events.
    """
    import jax

    return (
        jax.__version_info__ >= (0, 5)
        and _on_lowering_event in private("monitoring").get_event_duration_listeners()
    )


def _on_lowering_event(event: str, duration: float, **_: Any) -> None:
    """Find the lowering or compilation that ended on the stack, and notify its listeners."""
    if event == LOWERED_EVENT and (result := lowering_result()) is not None:
        for keepalive in result.keepalive or ():
            if isinstance(keepalive, ModuleListener):
                keepalive.lowered(result.module)
    elif event == COMPILED_EVENT and (frame := next(compiling(frames()), None)) is not None:
        # Since JAX 0.5 the event is also recorded when the compilation fails.
        succeeded = not is_failing(frame)
        for keepalive in keepalives(frame):
            if isinstance(keepalive, ModuleListener):
                keepalive.compiled(succeeded)


RETRIEVED_EVENT = "/jax/compilation_cache/cache_retrieval_time_sec"


class CompileEvent(NamedTuple):
    """The end of a compilation, in the thread that compiled."""

    seconds: float
    """Duration of the compilation, or of the load from the persistent cache."""

    is_cache_hit: bool
    """Whether the program came from the persistent compilation cache."""

    call: CompiledCall
    """The call that needed the program. It refers to the user's arrays: read it and drop it."""

    lines: list[tuple[str, int, str]]
    """File, line and function of each frame, innermost first."""


Listener = Callable[[CompileEvent], None]

_listeners: tuple[Listener, ...] = ()
_lock = threading.RLock()
_thread = threading.local()


def add_compile_listener(listener: Listener) -> None:
    """Call a function at the end of each compilation, in any thread. An error in it is suppressed."""
    global _listeners
    monitoring = private("monitoring")
    with _lock:
        if _on_event not in monitoring.get_event_duration_listeners():
            monitoring.register_event_duration_secs_listener(_on_event)
        _listeners = (*_listeners, listener)


def remove_compile_listener(listener: Listener) -> None:
    """Stop calling a function. The last one takes its event listener out of JAX."""
    global _listeners
    with _lock:
        _listeners = tuple(one for one in _listeners if one != listener)
        if not _listeners:
            _unregister(private("monitoring"))


def _unregister(monitoring: Any) -> None:
    """Unregister the event listener; where that is not possible, it stays and does nothing."""
    # Another thread may be iterating over JAX's list: removing any but the last entry would make it skip the
    # listener after it.
    with contextlib.suppress(AttributeError, AssertionError, ValueError, IndexError):
        if monitoring.get_event_duration_listeners()[-1] is _on_event:
            unregister = (
                getattr(monitoring, "unregister_event_duration_listener", None)
                or monitoring._unregister_event_duration_listener_by_callback
            )  # up to JAX 0.8
            unregister(_on_event)


def _on_event(event: str, duration: float, **_: Any) -> None:
    """Notify the listeners of a compilation. JAX would end the user's call with an error raised here."""
    if event == RETRIEVED_EVENT:
        _thread.was_retrieved = True
    elif event == COMPILED_EVENT:
        was_retrieved = getattr(_thread, "was_retrieved", False)
        _thread.was_retrieved = False
        if _listeners:
            with contextlib.suppress(Exception):
                _notify(duration, was_retrieved)


def _notify(duration: float, was_retrieved: bool) -> None:
    # Since JAX 0.5 the event is also recorded when the compilation fails.
    frame = next(compiling(frames()), None)
    if frame is not None and is_failing(frame):
        return
    lines = [(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name) for frame in frames()]
    event = CompileEvent(duration, was_retrieved, compiled_call(frames()), lines)
    for listener in _listeners:
        with contextlib.suppress(Exception):
            listener(event)


_RECORD = "*.after_optimizations.hlo.pb"


def refused_program(lowered: Any) -> bytes | None:
    """Compile a program again that was refused, and return what XLA made of it; None if it is not known.

    It is a serialized ``HloProto``. XLA writes it to a temporary directory, which is removed.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    import tempfile

    import jax

    with (
        tempfile.TemporaryDirectory(prefix="jax-array-info-") as folder,
        private("config").persistent_cache_min_compile_time_secs(math.inf),
    ):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            lowered.compile(compiler_options={"xla_dump_to": folder, "xla_dump_hlo_as_proto": True})
        # The largest: small programs inside have their own.
        records = sorted((path.read_bytes() for path in Path(folder).glob(_RECORD)), key=len)
    return records[-1] if records else None
