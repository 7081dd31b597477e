"""The figures of XLA on the memory of a compiled program."""

from __future__ import annotations

from typing import Any, NamedTuple


class MemoryStatistics(NamedTuple):
    """Memory of a compiled program per device, in bytes; None where the backend does not report it."""

    argument_nbytes: int | None = None
    output_nbytes: int | None = None
    alias_nbytes: int | None = None
    temporary_nbytes: int | None = None
    code_nbytes: int | None = None
    peak_nbytes: int | None = None
    host_argument_nbytes: int | None = None
    host_output_nbytes: int | None = None
    host_alias_nbytes: int | None = None
    host_temporary_nbytes: int | None = None


_ATTRIBUTES = (
    "argument_size_in_bytes",
    "output_size_in_bytes",
    "alias_size_in_bytes",
    "temp_size_in_bytes",
    "generated_code_size_in_bytes",
    "peak_memory_in_bytes",  # since JAX 0.7
    "host_argument_size_in_bytes",
    "host_output_size_in_bytes",
    "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
)


def memory_analysis(compiled: Any) -> MemoryStatistics | None:
    """Return the figures of ``compiled.memory_analysis()``; None if the backend has none.

    Args:
        compiled: A ``jax.stages.Compiled``.
    """
    import jax

    try:
        found = compiled.memory_analysis()
    except (NotImplementedError, AttributeError, TypeError, ValueError, jax.errors.JaxRuntimeError):
        return None
    if found is None:
        return None
    return MemoryStatistics(*(_number(getattr(found, name, None)) for name in _ATTRIBUTES))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
