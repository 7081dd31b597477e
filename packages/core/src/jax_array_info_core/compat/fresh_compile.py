"""Compilation of a lowered program, also where JAX has it in a cache."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import threading
from collections.abc import Iterator
from typing import Any

from .compile_events import CompileEvent, add_compile_listener, remove_compile_listener
from .private import private
from .topologies import libtpu_log_level

# A time limit on GPUs while a program runs: this one is only compiled. The persistent cache's key has it.
_OPTIONS = {"xla_gpu_nccl_termination_timeout_seconds": 2**31 - 1}
_MODULE = "_hlo"

_WARNINGS = 1
_ERRORS = 2
"""Levels of XLA's logs: at each, it prints messages of this kind and worse."""


def compile_lowered(lowered: Any, *, fresh: bool) -> Any:
    """Compile a ``Lowered``.

    Args:
        lowered: The lowered program.
        fresh: Whether to compile even if the program is in one of JAX's caches. The result stays in none.
    """
    if not fresh:
        return lowered.compile()
    # The persistent cache has no entry for these options, and gets none.
    keeps_for = getattr(private("config"), "persistent_cache_min_compile_time_secs", contextlib.nullcontext)
    with keeps_for(math.inf):
        return _copy(lowered).compile(compiler_options=_OPTIONS)


def _copy(lowered: Any) -> Any:
    """Return a lowered program with a module of its own: JAX keeps what it compiles as long as the module.

    The program itself, if a future version of JAX has another place for the module.
    """
    result, computation = copy.copy(lowered), copy.copy(lowered._lowering)
    module, text = getattr(computation, _MODULE, None), io.BytesIO()
    if module is None:
        return lowered
    module.operation.write_bytecode(text)
    with module.context:
        setattr(computation, _MODULE, type(module).parse(text.getvalue()))
    result._lowering = computation
    return result


@contextlib.contextmanager
def own_compilations() -> Iterator[list[None]]:
    """Yield a list that gets one element for each compilation by XLA in this thread, inside a with block.

    A program from the persistent compilation cache is not compiled.
    """
    found: list[None] = []
    thread = threading.get_ident()

    def listener(event: CompileEvent) -> None:
        if threading.get_ident() == thread and not event.is_cache_hit:
            found.append(None)

    add_compile_listener(listener)
    try:
        yield found
    finally:
        remove_compile_listener(listener)


def prints_warnings(platform: str | None) -> bool:
    """Return whether XLA prints its rematerialization warnings, as far as the settings tell.

    Args:
        platform: Platform that it compiles for, such as ``tpu``; None for JAX's default.
    """
    import jax
    from jaxlib import utils

    if (platform or jax.default_backend()) == "tpu":
        level = libtpu_log_level() or os.environ.get("TPU_STDERR_LOG_LEVEL", "")
        return _number(level, default=_ERRORS) <= _WARNINGS
    if hasattr(utils, "absl_set_min_log_level"):
        setting = str(getattr(jax.config, "jax_logging_level", None))
        if setting in ("DEBUG", "INFO", "WARN", "WARNING"):
            return True
        is_silent = setting in ("ERROR", "FATAL", "CRITICAL")
        return not is_silent and _level("TF_CPP_MIN_LOG_LEVEL", default=_WARNINGS) <= _WARNINGS
    # Up to JAX 0.6 they are errors. JAX 0.6 prints errors at any level, and no setting of JAX matters.
    return private("lib").version >= (0, 6) or _level("TF_CPP_MIN_LOG_LEVEL", default=_WARNINGS) <= _ERRORS


def _level(name: str, *, default: int) -> int:
    """Return the level of logs in a variable of the environment."""
    return _number(os.environ.get(name, ""), default)


def _number(text: str, default: int) -> int:
    """Return the number in a text, or the default."""
    return int(text) if text.isdecimal() and len(text) < 10 else default
