"""Compiled programs: their memory, their stack frames, and programs of this package."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar


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


def text_for_frame_numbers(lowered: Any) -> str | None:
    """Return the text of a lowered program whose operations tell the numbers of the stack frames.

    None if the version of JAX prints the right table; empty if the lowered program is not known.

    Args:
        lowered: A ``jax.stages.Lowered``, or None.
    """
    import jax

    if jax.__version_info__[:2] != (0, 8):
        return None
    return text_with_locations(lowered)


def text_with_locations(lowered: Any) -> str:
    """Return the text of a lowered program with the source lines of its operations; empty for None."""
    return "" if lowered is None else str(lowered.as_text(debug_info=True))


T = TypeVar("T")


def call_apart(function: Callable[[], T]) -> T:
    """Call a function with JAX's default settings and in 64 bits, and return its result.

    The function runs in a thread of its own, where the traces, the mesh and the other contexts of the calling
    thread do not apply. Transfer guards and ``jax_disable_jit`` do not apply either.
    """
    import jax
    import jax.experimental

    # Up to JAX 0.7, the function is experimental.
    is_stable = hasattr(jax, "enable_x64")
    enable_x64 = jax.enable_x64 if is_stable else jax.experimental.enable_x64  # type: ignore[attr-defined]
    outcome: Future[T] = Future()

    def call() -> None:
        try:
            with enable_x64(True), jax.transfer_guard("allow"), jax.disable_jit(False):
                outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon: if the caller is interrupted while a device hangs, the program can still exit.
    threading.Thread(target=call, name="jax_array_info", daemon=True).start()
    return outcome.result()


def per_shard(function: Callable[[Any], Any], mesh: Any, spec: Any, out_spec: Any) -> Any:
    """Return ``jax.shard_map`` of a function, without its check that replicas are equal.

    Args:
        function: A function of a shard.
        mesh: Mesh of the array.
        spec: PartitionSpec of the array.
        out_spec: PartitionSpec of the result.
    """
    import jax

    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_vma=False)
    from jax.experimental.shard_map import shard_map  # up to JAX 0.5

    return shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_rep=False)
