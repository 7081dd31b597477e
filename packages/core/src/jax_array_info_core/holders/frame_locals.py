"""Variables of running functions, read without changing them or keeping them alive."""

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
    """Return whether a frame belongs to a function. Modules, classes and ``exec`` use a dict instead."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def is_module_body(frame: FrameType) -> bool:
    """Return whether a frame's variables are module globals, or the globals that ``exec`` was given."""
    return not is_function(frame) and frame.f_locals is frame.f_globals


def frame_locals(frame: FrameType, *, is_watched: bool = False) -> Items | None:
    """Return the names and values of a frame's variables, or None where reading them could do harm.

    Python 3.12 and later read each variable by itself. Python 3.11 only offers ``f_locals``, a dict of
    references that the frame keeps until the function returns. It is cleared again after reading, unless
    other code refers to it. Where a debugger or ``exec`` uses that dict, it is not read.

    Args:
        frame: The frame.
        is_watched: Whether a trace function, or code run by ``exec``, may be using the frame's dict.
    """
    if not is_function(frame):
        names: Any = frame.f_locals
        # Any other mapping could run user code when read.
        return copied_items(names) if issubclass(type(names), dict) else []
    get_variable = _frame_get_var()
    if get_variable is not None:
        return _variables(frame, get_variable)
    return None if is_watched else _cleared_locals(frame)


def is_traced(frame: FrameType, *, is_of_this_thread: bool) -> bool:
    """Return whether a Python trace or profile function may be active on a frame.

    When such a function returns, CPython writes the frame's dict back to the variables. In another thread,
    an active trace function shows only by a frame that is being entered or left.
    """
    if frame.f_trace is not None or threading.gettrace() is not None or threading.getprofile() is not None:
        return True
    if is_of_this_thread:
        return sys.gettrace() is not None or sys.getprofile() is not None
    last = frame.f_lasti
    return last < 0 or dis.opname[frame.f_code.co_code[last]] in ("RESUME", "RETURN_VALUE")


@functools.cache
def _frame_get_var() -> Callable[[FrameType, str], Any] | None:
    """Return CPython's ``PyFrame_GetVar`` (Python 3.12), or None where it does not exist."""
    try:
        import ctypes

        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)
        return prototype(("PyFrame_GetVar", ctypes.pythonapi))
    except (ImportError, AttributeError):
        return None


def _variables(frame: FrameType, get_variable: Callable[[FrameType, str], Any]) -> Items:
    code = frame.f_code
    found: Items = []
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        try:
            found.append((name, get_variable(frame, name)))
        except NameError:  # not assigned yet, or deleted
            continue
    return found


def _cleared_locals(frame: FrameType) -> Items:
    """Return the items of ``f_locals``, and clear it, so that the frame does not keep the values alive."""
    names = frame.f_locals
    held = copied_items(names)
    # Three references: the frame, the local variable here and the argument of getrefcount.
    if sys.getrefcount(names) <= 3:
        names.clear()
    return held


def copied_items(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the keys and values of a dict or dict subclass that another thread may be changing."""
    for _ in range(10):
        try:
            return list(dict.items(mapping))
        except RuntimeError:  # changed during the iteration
            continue
    return []
