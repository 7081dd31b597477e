"""The jitted function that was called when a device ran out of memory."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from ..compat.jitted import jitted_types
from ..origins.function_names import described_for_user
from ..origins.origins import HIDDEN_MODULES, JAX_MODULES, files_of

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
    found = frame.f_locals.get(root, frame.f_globals.get(root, _NOT_FOUND))
    for attribute in attributes:
        found = inspect.getattr_static(found, attribute, _NOT_FOUND)
    return found


def _names(frame: FrameType, offset: int) -> Iterator[str]:
    """Yield the name of the called object, and its attributes: ``self``, ``step``.

    The code of ``self.step(x)`` begins at the same column as its parts ``self`` and ``self.step``.
    """
    instructions = [*dis.get_instructions(frame.f_code)]
    call = next((one for one in instructions if one.offset == offset), None)
    if call is None or call.positions is None:
        return
    for one in instructions:
        place = one.positions
        if one.offset >= offset or place is None or not isinstance(one.argval, str):
            continue
        begins_alike = (place.lineno, place.col_offset) == (call.positions.lineno, call.positions.col_offset)
        if begins_alike and one.opname.startswith("LOAD_"):
            yield one.argval
