"""Names of referrers, and the local variables of frames."""

from __future__ import annotations

import dis
import enum
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar
from types import AsyncGeneratorType, CoroutineType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

import numpy as np

mro_of = type.__dict__["__mro__"].__get__
namespace_of = type.__dict__["__dict__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__

_LONGEST_KEY = 60
_MOST_PARTS = 6
_DEEPEST_KEY = 3
_LARGEST_NUMBER = 10**40
_ATOMS = frozenset(map(id, (str, float, complex, bool, bytes, type(None))))
_SUSPENDED = {
    id(GeneratorType): ("generator", "gi_frame"),
    id(CoroutineType): ("coroutine", "cr_frame"),
    id(AsyncGeneratorType): ("generator", "ag_frame"),
}
_SCOPES = (FunctionType, FrameType, type, GeneratorType, CoroutineType, AsyncGeneratorType)
CONTEXTS = (Context, ContextVar)
"""Classes of objects that hold the values of context variables."""
_BARE = ("builtins", "collections", "functools", "itertools")


def word(name: Any) -> str:
    """Return a name as an exact ``str``, or ``?`` for any other object."""
    if type(name) is str:
        return name
    return str.__str__(name) if issubclass(type(name), str) else "?"


def key_text(key: Any, depth: int = 0) -> str:
    """Return the source form of a dict key, or its class in ``<>`` where a repr would run user code."""
    cls = type(key)
    text = f"<{type_name(cls)}>"
    if id(cls) in (id(str), id(bytes)):
        text = _quoted(key, _LONGEST_KEY // (depth + 1))
    elif id(cls) in _ATOMS or (cls is int and abs(key) < _LARGEST_NUMBER):
        text = repr(key)
    elif cls is tuple and depth < _DEEPEST_KEY:
        text = _tuple_text([key_text(part, depth + 1) for part in key[:_MOST_PARTS]], len(key))
    elif issubclass(cls, enum.Enum):
        text = f"{type_name(cls)}.{word(object.__getattribute__(key, '_name_'))}"
    elif word(module_of(cls)) == "numpy" and issubclass(cls, np.integer):
        text = int.__repr__(key.item())
    return text if len(text) <= _LONGEST_KEY else f"{text[: _LONGEST_KEY - 1]}…"


def _quoted(key: str | bytes, most: int) -> str:
    """Return a string in quotes, truncated to at most ``most`` characters."""
    shown = key[:most]
    while len(repr(shown)) + (len(shown) < len(key)) > most:
        shown = shown[:-1]
    return f"{shown!r}{'…' * (len(shown) < len(key))}"


def _tuple_text(parts: list[str], count: int) -> str:
    """Return the text of a tuple of ``count`` elements: as many of the given first ones as fit."""
    rest = ["…"] * (count > len(parts))
    text = f"({', '.join(parts + rest)}{',' if count == 1 else ''})"
    return text if len(text) <= _LONGEST_KEY or not parts else _tuple_text(parts[:-1], count)


def type_name(cls: type) -> str:
    """Return the qualified name of a class."""
    return word(_qualname(cls))


def module_of(scope: Any) -> str | None:
    """Return the module name of a function, frame, generator, class or instance."""
    if suspended := suspended_frame(scope):
        scope = suspended[1]
    if type(scope) is FunctionType:
        return name_in(scope.__globals__)
    if type(scope) is FrameType:
        return name_in(scope.f_globals)
    try:
        name = _module(scope if is_class(scope) else type(scope))
    except AttributeError:
        return None
    return word(name)


def name_in(names: dict[Any, Any]) -> str | None:
    """Return the ``__name__`` in the variables of a module, or None where it is missing."""
    name = dict.get(names, "__name__")
    return None if name is None else word(name)


def suspended_frame(thing: Any) -> tuple[str, FrameType | None] | None:
    """Return ``("generator" or "coroutine", frame)``, or None for any other object.

    The frame is None once the generator or coroutine has ended.
    """
    known = _SUSPENDED.get(id(type(thing)))
    return None if known is None else (known[0], getattr(thing, known[1]))


def scope_name(thing: Any) -> str | None:
    """Return the qualified name of a function, frame, generator or class, or None for any other object."""
    if type(thing) is FrameType:
        return f"{thing.f_code.co_qualname}()"
    if is_class(thing):
        return type_name(thing)
    return word(thing.__qualname__) if is_scope(thing) else None


def is_class(thing: Any) -> bool:
    """Return whether an object is a class."""
    return issubclass(type(thing), type)


def is_scope(thing: Any) -> bool:
    """Return whether an object is code with variables, such as a function, frame, generator or class."""
    return issubclass(type(thing), _SCOPES)


def begins_paths(thing: Any) -> bool:
    """Return whether a reference path may begin at an object, so that its own referrers do not matter.

    Functions do not count, since the list that holds a lambda identifies it better than its name. Nor do
    frames: the frame of a function that ended is named by its referrer, usually an exception.
    """
    cls = type(thing)
    if cls is FunctionType or cls is FrameType:
        return False
    return is_scope(thing) or issubclass(cls, CONTEXTS)


def leads_everywhere(thing: Any) -> bool:
    """Return whether an object reaches most other objects, as classes and modules do."""
    return issubclass(type(thing), (type, ModuleType))


def is_bare(thing: Any) -> bool:
    """Return whether an object is a list or the like, a builtin type with a name that says little."""
    if is_scope(thing) or issubclass(type(thing), BaseException):
        return False
    return module_of(type(thing)) in _BARE


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
