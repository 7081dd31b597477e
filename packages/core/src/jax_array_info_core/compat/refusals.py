"""Programs that XLA optimizes, but refuses because they do not fit the memory of a device."""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from .private import private

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
