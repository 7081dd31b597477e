"""What says that a device has no memory left."""

from __future__ import annotations

import sys

_STATUS = "RESOURCE_EXHAUSTED"
_WORDS = "out of memory"


def out_of_memory_in(error: BaseException) -> BaseException | None:
    """Return the error of JAX's that says a device has no memory left; None where there is none.

    It may be the error itself, its cause, what was being handled when it was raised, or a member of a group.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        candidate = waiting.pop()
        if candidate is None or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        if _is_out_of_memory(candidate):
            return candidate
        waiting += [candidate.__context__, candidate.__cause__]
        if isinstance(candidate, BaseExceptionGroup):
            waiting += reversed(candidate.exceptions)
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(error, (RuntimeError, ValueError)):
        return False
    text = str(error)
    if text.startswith(_STATUS):
        return True
    # What XLA finds out while it computes comes, up to jax 0.9, as INTERNAL or FAILED_PRECONDITION.
    is_jax_error = isinstance(error, jax.errors.JaxRuntimeError)
    return is_jax_error and (_STATUS in text or _WORDS in text.lower())
