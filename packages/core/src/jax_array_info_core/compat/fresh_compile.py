"""Compilation of a lowered program, also where JAX has it in a cache."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .compile_events import CompileEvent, add_compile_listener, remove_compile_listener
from .topologies import libtpu_log_level
from .values import private

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


_TEXT = "*.after_optimizations.txt"
_ASSIGNMENT = "*.after_optimizations-buffer-assignment.txt"


class RefusedProgram(NamedTuple):
    """What XLA made of a program before it refused it."""

    text: str
    """The program, as ``Compiled.as_text`` would return it."""

    assignment: str
    """The values in each buffer."""


def refused_program(lowered: Any) -> RefusedProgram | None:
    """Compile a program again that was refused, and return what XLA made of it; None if it is not known.

    XLA writes it to a temporary directory, which is removed.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    import jax

    with (
        tempfile.TemporaryDirectory(prefix="jax-array-info-") as folder,
        private("config").persistent_cache_min_compile_time_secs(math.inf),
    ):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            lowered.compile(compiler_options={"xla_dump_to": folder})
        texts = [_content(Path(folder), pattern) for pattern in (_TEXT, _ASSIGNMENT)]
    return RefusedProgram(*texts) if all(texts) else None


def _content(folder: Path, pattern: str) -> str:
    """Return the text of the largest file with a name: small programs inside have their own."""
    files = sorted(folder.glob(pattern), key=lambda path: path.stat().st_size)
    return files[-1].read_text(errors="replace") if files else ""
