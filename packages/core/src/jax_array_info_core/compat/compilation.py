"""Listeners of a lowered module, which keeps them alive and tells when it is lowered and compiled."""

from __future__ import annotations

from typing import Any, TypeVar

from .frames import frames
from .jax_stack import compiling, is_failing, kept_alive, lowering_result
from .private import private

LOWERED_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED_EVENT = "/jax/core/compile/backend_compile_duration"


class ModuleListener:
    """An object that a lowered module keeps alive."""

    def lowered(self, module: Any) -> None:
        """Take note that the module has been lowered."""

    def compiled(self, succeeded: bool) -> None:
        """Take note that the compilation of the module has ended."""


_L = TypeVar("_L", bound=ModuleListener)


def kept_with_module(module_context: Any, kind: type[_L]) -> _L:
    """Return the listener of a class that a lowered module keeps alive: the one it has, or a new one."""
    for kept in module_context.keepalives:
        if isinstance(kept, kind):
            return kept
    monitoring = private("monitoring")
    if _on_event not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_on_event)
    made = kind()
    module_context.add_keepalive(made)
    return made


def _on_event(event: str, duration: float, **_: Any) -> None:
    """Find, among the callers, the lowering or compilation that has ended, and tell its listeners."""
    if event == LOWERED_EVENT and (result := lowering_result()) is not None:
        for kept in result.keepalive or ():
            if isinstance(kept, ModuleListener):
                kept.lowered(result.module)
    elif event == COMPILED_EVENT and (frame := next(compiling(frames()), None)) is not None:
        # From jax 0.5 on, JAX tells of failures as well.
        succeeded = not is_failing(frame)
        for kept in kept_alive(frame):
            if isinstance(kept, ModuleListener):
                kept.compiled(succeeded)
