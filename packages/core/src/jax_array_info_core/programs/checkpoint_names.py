"""Names that ``checkpoint_name`` gives to values of a program."""

from __future__ import annotations

from typing import Any

from ..compat.arrays import traceback_lines
from ..compat.jaxprs import jaxpr_names
from ..hlo.liveness import LiveValue
from ..layouts.dtypes import dtype_name
from ..origins.origins import UserLines
from ..reports.origin import Origin

_KEPT = "reduce_precision"
"""Last part of the name of a value that ``jax.checkpoint`` keeps."""


class CheckpointNames:
    """The names by line and dtype, which is all that a compiled program has of them."""

    def __init__(self, jaxpr: Any, lines: UserLines) -> None:
        self._names: dict[tuple[str, int, str], set[str]] = {}
        for name, dtype, traceback in jaxpr_names(jaxpr):
            origin = None if traceback is None else lines.origin(traceback_lines(traceback))
            if origin is not None:
                key = origin.file, origin.line, dtype_name(dtype)
                self._names.setdefault(key, set()).add(name)

    def of(self, value: LiveValue, origin: Origin | None) -> str | None:
        """Return the name of a value; None if it has none, or if several of its line have its dtype."""
        if origin is None or not (value.op_name or "").endswith(_KEPT):
            return None
        found = self._names.get((origin.file, origin.line, value.shape.dtype), set())
        return next(iter(found)) if len(found) == 1 else None
