"""Out-of-memory errors in an exception chain, and the jitted function that was called."""

from __future__ import annotations

import dis
import inspect
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from ...compat.jitted import jitted_types
from ..origins.origins import HIDDEN_MODULES, JAX_MODULES, described_for_user, files_of

_STATUS = "RESOURCE_EXHAUSTED"
_WORDS = "out of memory"
_MOST_TEXTS = 16


def out_of_memory_errors(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the out-of-memory errors of JAX among all errors that a traceback shows."""
    return filter(_is_out_of_memory, shown_errors(error))


def shown_errors(error: BaseException | None) -> Iterator[BaseException]:
    """Yield all errors that a traceback shows.

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


_NOT_FOUND = object()


def failed_program(error: BaseException) -> str | None:
    """Return the name of the jitted function that was called when an error was raised, such as ``step``.

    None if the innermost call outside of JAX is not a call of a jitted function by its name: the call of a
    program leaves no frame of its own. No code of the user runs.

    Args:
        error: The error.
    """
    is_jax = files_of(JAX_MODULES)
    innermost: TracebackType | None = None
    traceback = error.__traceback__
    while traceback is not None:
        if not is_jax(traceback.tb_frame.f_code.co_filename):
            innermost = traceback
        traceback = traceback.tb_next
    if innermost is None:
        return None
    called = _called(innermost.tb_frame, innermost.tb_lasti)
    if not isinstance(called, jitted_types()):
        return None
    return described_for_user(called, files_of(HIDDEN_MODULES)).plain or None


def _called(frame: FrameType, offset: int) -> Any:
    """Return the object that the call at an offset of a frame's code calls by a name; else ``_NOT_FOUND``."""
    names = [*_names(frame, offset)]
    if not names:
        return _NOT_FOUND
    root, *attributes = names
    value = frame.f_locals.get(root, frame.f_globals.get(root, _NOT_FOUND))
    for attribute in attributes:
        value = inspect.getattr_static(value, attribute, _NOT_FOUND)
    return value


def _names(frame: FrameType, offset: int) -> Iterator[str]:
    """Yield the name of the called object, and its attributes: ``self``, ``step``.

    The code of ``self.step(x)`` begins at the same column as its parts ``self`` and ``self.step``.
    """
    instructions = [*dis.get_instructions(frame.f_code)]
    call = next((instruction for instruction in instructions if instruction.offset == offset), None)
    if call is None or call.positions is None:
        return
    for instruction in instructions:
        place = instruction.positions
        if instruction.offset >= offset or place is None or not isinstance(instruction.argval, str):
            continue
        begins_alike = (place.lineno, place.col_offset) == (call.positions.lineno, call.positions.col_offset)
        if begins_alike and instruction.opname.startswith("LOAD_"):
            yield instruction.argval
