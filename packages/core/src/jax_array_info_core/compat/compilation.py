"""Listeners for the lowering and compilation of an MLIR module. The module keeps its listeners alive."""

from __future__ import annotations

from typing import Any, TypeVar

from .frames import frames
from .jax_stack import compiling, is_failing, keepalives, lowering_result
from .private import private

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
    if _on_event not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_on_event)
    listener = listener_class()
    module_context.add_keepalive(listener)
    return listener


def compilations_are_heard() -> bool:
    """Return whether listeners hear of the end of every compilation.

    JAX 0.4 does not record failed ones, and programs can remove all listeners of JAX's events.
    """
    import jax

    return (
        jax.__version_info__ >= (0, 5) and _on_event in private("monitoring").get_event_duration_listeners()
    )


def _on_event(event: str, duration: float, **_: Any) -> None:
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
