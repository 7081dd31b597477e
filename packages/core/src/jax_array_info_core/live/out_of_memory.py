"""Out-of-memory errors in an exception chain."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterator

_STATUS = "RESOURCE_EXHAUSTED"
_WORDS = "out of memory"
_MOST_TEXTS = 16


def out_of_memory_errors(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the errors of JAX's that say a device has no memory left, of all that a traceback shows.

    It shows the error itself, its cause or else what was being handled when it was raised, unless that is
    hidden by ``from None``, and the members of a group; so on of each of these.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        candidate = waiting.pop()
        if candidate is None or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        if _is_out_of_memory(candidate):
            yield candidate
        if candidate.__cause__ is not None:
            waiting.append(candidate.__cause__)
        elif not candidate.__suppress_context__:
            waiting.append(candidate.__context__)
        if isinstance(candidate, BaseExceptionGroup):
            waiting += reversed(candidate.exceptions)


def _is_out_of_memory(error: BaseException) -> bool:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(error, (RuntimeError, ValueError)):
        return False
    text = str(error)
    # What XLA finds out while it computes comes, up to jax 0.9, as INTERNAL or FAILED_PRECONDITION.
    return text.startswith(_STATUS) or (
        isinstance(error, jax.errors.JaxRuntimeError) and (_STATUS in text or _WORDS in text.lower())
    )


class KnownErrors:
    """Errors that are known again, of which none is kept alive.

    Built-in exceptions take no weak reference. Of these the ``args`` are kept, which are nobody else's and
    but text: the last few, and only where they are.
    """

    def __init__(self) -> None:
        self._errors: weakref.WeakValueDictionary[int, BaseException] = weakref.WeakValueDictionary()
        self._texts: deque[tuple[object, ...]] = deque(maxlen=_MOST_TEXTS)

    def add(self, error: BaseException) -> None:
        """Remember an error."""
        try:
            self._errors[id(error)] = error
        except TypeError:
            if error.args and all(isinstance(arg, str) for arg in error.args):
                self._texts.append(error.args)

    def __contains__(self, error: BaseException) -> bool:
        return self._errors.get(id(error)) is error or any(error.args is text for text in tuple(self._texts))
