"""Variables of functions that run, read so that nothing is changed or kept alive."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Items = list[tuple[str, Any]]


def is_function(frame: FrameType) -> bool:
    """Return whether a frame is a function's; those of modules, classes and exec keep names in a dict."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def is_module_body(frame: FrameType) -> bool:
    """Return whether the variables of a frame are those of its module, or of what exec was given as one."""
    return not is_function(frame) and frame.f_locals is frame.f_globals


def frame_locals(frame: FrameType, *, is_watched: bool = False) -> Items | None:
    """Return the names and values of a frame's variables, None where asking for them might do harm.

    From Python 3.12 on a function's frame is asked for each variable. On 3.11 it can but answer with a dict
    of copies, which it keeps, and with it all that is in it, until the function returns: unless somebody
    else has that dict too, it is emptied again. Where a debugger or ``exec`` works on that dict, it is not
    asked for.

    Args:
        frame: The frame.
        is_watched: Whether a function that traces, or code that was given to exec, may be about to use
            the frame's dict.
    """
    if not is_function(frame):
        names: Any = frame.f_locals
        # Another mapping may run the user's code when asked.
        return copied_items(names) if issubclass(type(names), dict) else []
    ask = _asking_for_a_variable()
    if ask is not None:
        return _variables(frame, ask)
    return None if is_watched else _passing_copies(frame)


def is_traced(frame: FrameType, *, is_of_this_thread: bool) -> bool:
    """Return whether a function of Python may be tracing a frame.

    What such a function finds in the frame's dict when it is done becomes the variables. Its own frame
    is above one that is just being entered or left.
    """
    if frame.f_trace is not None or threading.gettrace() is not None or threading.getprofile() is not None:
        return True
    if is_of_this_thread:
        return sys.gettrace() is not None or sys.getprofile() is not None
    last = frame.f_lasti
    return last < 0 or dis.opname[frame.f_code.co_code[last]] in ("RESUME", "RETURN_VALUE")


@functools.cache
def _asking_for_a_variable() -> Callable[[FrameType, str], Any] | None:
    """Return CPython's function that returns one variable of a frame, None where it has none."""
    try:
        import ctypes

        kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)
        return kind(("PyFrame_GetVar", ctypes.pythonapi))
    except (ImportError, AttributeError):
        return None


def _variables(frame: FrameType, ask: Callable[[FrameType, str], Any]) -> Items:
    code = frame.f_code
    found: Items = []
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        try:
            found.append((name, ask(frame, name)))
        except NameError:  # it has no value yet, or none any more
            continue
    return found


def _passing_copies(frame: FrameType) -> Items:
    names = frame.f_locals
    held = copied_items(names)
    # The frame, the variable here and the argument: nobody else has it.
    if sys.getrefcount(names) <= 3:
        names.clear()
    return held


def copied_items(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return keys and values of a dict of any subclass, which another thread may be changing."""
    for _ in range(10):
        try:
            return list(dict.items(mapping))
        except RuntimeError:  # it has changed while it was read
            continue
    return []
