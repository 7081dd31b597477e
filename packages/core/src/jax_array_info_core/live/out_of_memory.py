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
    """Yield the out-of-memory errors of JAX among all errors that a traceback shows.

    These are the error itself, its cause, or else its context unless ``from None`` hides it, the members of
    an exception group, and the same of each of these in turn.
    """
    seen: set[int] = set()
    stack = [error]
    while stack:
        candidate = stack.pop()
        if candidate is None or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        if _is_out_of_memory(candidate):
            yield candidate
        if candidate.__cause__ is not None:
            stack.append(candidate.__cause__)
        elif not candidate.__suppress_context__:
            stack.append(candidate.__context__)
        if isinstance(candidate, BaseExceptionGroup):
            stack += reversed(candidate.exceptions)


def _is_out_of_memory(error: BaseException) -> bool:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(error, (RuntimeError, ValueError)):
        return False
    text = str(error)
    # JAX 0.9 and earlier report a failed allocation during a computation as INTERNAL or FAILED_PRECONDITION.
    return text.startswith(_STATUS) or (
        isinstance(error, jax.errors.JaxRuntimeError) and (_STATUS in text or _WORDS in text.lower())
    )


class KnownErrors:
    """A set of errors that does not keep them alive.

    Built-in exceptions support no weak references. They are recognized by the identity of their ``args``
    tuple, which is kept for the last few errors, and only where all arguments are strings.
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
