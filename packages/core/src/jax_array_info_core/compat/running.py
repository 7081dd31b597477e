"""Programs of this package that run on the user's arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

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
