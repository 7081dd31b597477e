"""Named references from an object to other objects, read without running user code.

``getattr`` may call a property or ``__getattr__``, and ``vars`` an overridden ``__dict__``. The C descriptors
behind them do not. Classes are compared by identity, since a metaclass may define ``__eq__``.
"""

from __future__ import annotations

import dis
import enum
import functools
import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import Context, ContextVar
from types import (
    AsyncGeneratorType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple

import numpy as np

from ...compat.jitted import closed_over, referents

_mro_of = type.__dict__["__mro__"].__get__
_namespace_of = type.__dict__["__dict__"].__get__
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
# Wrappers and the attribute that they wrap, which adds no step to a path: a PRNG key and its uint32 array, a
# shard and its data, a Flax variable and its value, a state and its dict, a jitted function and the function.
_WRAPPING = ("jax.", "jax_", "jaxlib.", "flax.")
_WRAPPED = ("_base_array", "_data", "_raw_value", "raw_value", "_mapping", "__wrapped__")
_TRANSPARENT = (CellType, MappingProxyType, staticmethod, classmethod)

CONTEXTS = (Context, ContextVar)
"""Classes of objects that hold the values of context variables."""
Named = tuple[Any, Any]
"""The name, key or position under which a value is held, and the value."""


class Link(NamedTuple):
    """A reference from one object to another: an edge of the reference graph."""

    text: str
    """The text of this step in a reference path, such as ``.params`` or ``closure of step: params``."""

    to: Any
    """The object that is held."""

    is_variable: bool = False
    """Whether the text names a variable of a function, class or the like, which needs no path before it."""

    def after(self, path: str) -> str:
        """Return the path to the object, from the path to the object that holds it."""
        if self.is_variable and path:
            return f"{path} → {self.text}"
        # The text of an element without a name repeats the type at which a path may begin.
        return path if self.text == f"<{path}>" else path + self.text


# Texts of names


def word(name: Any) -> str:
    """Return a name as an exact ``str``, or ``?`` for any other object."""
    if type(name) is str:
        return name
    return str.__str__(name) if issubclass(type(name), str) else "?"


def key_text(key: Any, depth: int = 0) -> str:
    """Return the source form of a dict key, or its class in ``<>`` where a repr would run user code."""
    cls = type(key)
    text = f"<{type_name(cls)}>"
    if cls is str or cls is bytes:
        text = repr(key[:_LONGEST_KEY])
    elif id(cls) in _ATOMS or (cls is int and abs(key) < _LARGEST_NUMBER):
        text = repr(key)
    elif cls is tuple and depth < _DEEPEST_KEY:
        parts = [key_text(part, depth + 1) for part in key[:_MOST_PARTS]]
        ellipsis = ["…"] * (len(key) > _MOST_PARTS)
        text = f"({', '.join(parts + ellipsis)}{',' * (len(key) == 1)})"
    elif issubclass(cls, enum.Enum):
        text = f"{type_name(cls)}.{word(object.__getattribute__(key, '_name_'))}"
    elif word(module_of(cls)) == "numpy" and issubclass(cls, np.integer):
        text = int.__repr__(key.item())
    return text if len(text) <= _LONGEST_KEY else f"{text[: _LONGEST_KEY - 1]}…"


def _item_text(key: Any) -> str:
    return f"[{key_text(key)}]"


def _attribute_text(name: Any) -> str:
    text = word(name) if issubclass(type(name), str) else key_text(name)
    # Lists of layers may store each layer as an attribute named by its number.
    return f"[{text}]" if text.isdecimal() else f".{text}"


def _no_text(_: Any) -> str:
    return ""


def type_name(cls: type) -> str:
    """Return the qualified name of a class."""
    return word(_qualname(cls))


# Code with variables


def is_class(thing: Any) -> bool:
    """Return whether an object is a class."""
    return issubclass(type(thing), type)


def suspended_frame(thing: Any) -> tuple[str, FrameType | None] | None:
    """Return ``("generator" or "coroutine", frame)``, or None for any other object.

    The frame is None once the generator or coroutine has ended.
    """
    known = _SUSPENDED.get(id(type(thing)))
    return None if known is None else (known[0], getattr(thing, known[1]))


def begins_paths(thing: Any) -> bool:
    """Return whether a reference path may begin at an object, so that its own referrers do not matter.

    Functions do not count, since the list that holds a lambda identifies it better than its name. Nor do
    frames: the frame of a function that ended is named by its referrer, usually an exception.
    """
    return id(type(thing)) in _SUSPENDED or issubclass(type(thing), (type, *CONTEXTS))


def module_of(scope: Any) -> str | None:
    """Return the module name of a function, frame, generator, class or instance."""
    if suspended := suspended_frame(scope):
        scope = suspended[1]
    if type(scope) is FunctionType:
        return name_in(scope.__globals__)
    if type(scope) is FrameType:
        return name_in(scope.f_globals)
    try:
        return word(_module(scope if is_class(scope) else type(scope)))
    except AttributeError:
        return None


def name_in(names: dict[Any, Any]) -> str | None:
    """Return the ``__name__`` in the variables of a module, or None where it is missing."""
    name = dict.get(names, "__name__")
    return None if name is None else word(name)


def _variables(thing: Any) -> Iterable[Named] | None:
    """Return the full names and the values of the variables of code or of a context; None for another object.

    Args:
        thing: A function, frame, suspended generator or coroutine, class, context or context variable.
    """
    cls = type(thing)
    if cls is FunctionType:
        return _function_variables(thing)
    if cls is FrameType:
        # A module's variables belong to the module, not to the frame of its body.
        return () if is_module_body(thing) else frame_names(thing, frame_locals(thing))
    if suspended := suspended_frame(thing):
        return _suspended_variables(thing, *suspended)
    if is_class(thing):
        return ((f"{type_name(thing)}.{word(key)}", value) for key, value in _class_items(thing))
    if cls is Context:
        return ((f"ContextVar {word(variable.name)}", value) for variable, value in thing.items())
    if cls is ContextVar:
        return ((f"default of ContextVar {word(thing.name)}", value) for value in referents(thing))
    return None


def _function_variables(function: FunctionType) -> Iterator[Named]:
    name = word(function.__qualname__)
    for variable, value in closed_over(function).items():
        yield closure_name(name, variable), value
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = [*zip(reversed(arguments), reversed(function.__defaults__ or ()), strict=False)]
    for argument, value in defaults + copied_items(function.__kwdefaults__ or {}):
        yield f"default of {name}: {word(argument)}", value
    for attribute, value in copied_items(function.__dict__):
        yield f"{name}.{word(attribute)}", value
    yield f"{name}.__globals__", function.__globals__


def closure_name(function: str, variable: str) -> str:
    """Return the text of a variable that a function captures from an enclosing function."""
    return f"closure of {function}: {variable}"


def _suspended_variables(suspended: Any, noun: str, frame: FrameType | None) -> Iterator[Named]:
    # While it runs, its variables are listed with those of all running functions.
    is_running = getattr(suspended, "gi_running", False) or getattr(suspended, "cr_running", False)
    if frame is not None and not is_running:
        for variable, value in frame_locals(frame) or ():
            yield f"{noun} {word(suspended.__qualname__)} local {variable}", value


def frame_names(frame: FrameType, variables: Iterable[Named] | None) -> Iterator[Named]:
    """Yield the variables of a frame, named as in reference paths, with their values."""
    code = frame.f_code
    body = "exec" if code.co_name == "<module>" else f"class {code.co_qualname}"
    scope = f"{code.co_qualname}()" if is_function(frame) else body
    for variable, value in variables or ():
        if variable in code.co_freevars:
            yield closure_name(code.co_qualname, variable), value
        # Python names the iterable of a comprehension .0.
        elif not word(variable).startswith("."):
            yield f"{scope} local {word(variable)}", value


# Local variables of frames


def is_function(frame: FrameType) -> bool:
    """Return whether a frame belongs to a function. Modules, classes and ``exec`` use a dict instead."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def is_module_body(frame: FrameType) -> bool:
    """Return whether a frame's variables are module globals, or the globals that ``exec`` was given."""
    return not is_function(frame) and frame.f_locals is frame.f_globals


def frame_locals(frame: FrameType, *, is_watched: bool = False) -> list[Named] | None:
    """Return the names and values of a frame's variables, or None where reading them could do harm.

    Python 3.12 and later read each variable by itself. Python 3.11 only offers ``f_locals``, a dict of
    references that the frame keeps until the function returns. It is cleared again after reading, unless
    other code refers to it. Where a debugger or ``exec`` uses that dict, it is not read.

    Args:
        frame: The frame.
        is_watched: Whether a trace function, or code run by ``exec``, may be using the frame's dict.
    """
    if not is_function(frame):
        # Any other mapping could run user code when read.
        return copied_items(frame.f_locals) if issubclass(type(frame.f_locals), dict) else []
    get_variable = _frame_get_var()
    if get_variable is not None:
        return list(_read_variables(frame, get_variable))
    if is_watched:
        return None
    names = frame.f_locals
    held = copied_items(names)
    # Three references: the frame, the local variable here and the argument of getrefcount.
    if sys.getrefcount(names) <= 3:
        names.clear()
    return held


@functools.cache
def _frame_get_var() -> Callable[[FrameType, str], Any] | None:
    """Return CPython's ``PyFrame_GetVar`` (Python 3.12), or None where it does not exist."""
    try:
        import ctypes

        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)
        return prototype(("PyFrame_GetVar", ctypes.pythonapi))
    except (ImportError, AttributeError):
        return None


def _read_variables(frame: FrameType, get_variable: Callable[[FrameType, str], Any]) -> Iterator[Named]:
    code = frame.f_code
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        try:
            yield name, get_variable(frame, name)
        except NameError:  # not assigned yet, or deleted
            continue


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


# Parts of objects


class Reader:
    """A reader of links, with a cache of the attribute descriptors of each class."""

    def __init__(self) -> None:
        self._descriptors: dict[int, tuple[type, list[tuple[str, Any]]]] = {}

    def links(self, thing: Any, among: Collection[int]) -> list[Link]:
        """Return the links of an object to the objects with the given ids."""
        variables = _variables(thing)
        if variables is not None:
            return [Link(name, value, True) for name, value in variables if id(value) in among]
        cls = type(thing)
        links = [Link(text(name), value) for text, name, value in self._parts(thing) if id(value) in among]
        if issubclass(cls, (ModuleType, threading.local)):
            return links
        # Then the objects without a name. The items of the instance dict are attributes, so it is left out.
        left_out = {id(cls), *(id(link.to) for link in links)}
        left_out.update(
            id(_read(descriptor, thing)) for name, descriptor in self._storage(cls) if name == "__dict__"
        )
        text = "{…}" if issubclass(cls, (set, frozenset)) else f"<{type_name(cls)}>"
        for held in referents(thing):
            if id(held) in among and id(held) not in left_out:
                left_out.add(id(held))
                links.append(Link("" if issubclass(cls, _TRANSPARENT) else text, held))
        return [*links, Link(".__class__", cls)] if id(cls) in among else links

    def _parts(self, thing: Any) -> Iterator[tuple[Callable[[Any], str], Any, Any]]:
        """Yield ``(function that returns the text of the name, name, value)`` of the parts of an object."""
        cls = type(thing)
        is_wrapper = (module_of(cls) or "").startswith(_WRAPPING)
        for name, value in self.attributes(thing):
            yield _no_text if is_wrapper and name in _WRAPPED else _attribute_text, name, value
        items: Iterable[Named] = ()
        if issubclass(cls, dict):
            items = copied_items(thing)
        elif issubclass(cls, list):
            items = enumerate(list.__getitem__(thing, slice(None)))
        elif issubclass(cls, tuple):
            fields = _fields(cls)
            values = enumerate(tuple.__getitem__(thing, slice(None)))
            items = ((number, value) for number, value in values if number >= len(fields))
            for field, value in zip(fields, tuple.__iter__(thing), strict=False):
                yield _attribute_text, field, value
        elif issubclass(cls, deque):
            # One call into C, so no other thread can change the deque meanwhile. Its elements come last.
            held = referents(thing)
            items = enumerate(held[len(held) - deque.__len__(thing) :])
        elif cls is TracebackType:
            yield _attribute_text, "tb_next", thing.tb_next
        elif issubclass(cls, BaseException):
            yield _attribute_text, "__traceback__", BaseException.__dict__["__traceback__"].__get__(thing)
        for key, value in items:
            yield _item_text, key, value

    def attributes(self, thing: object) -> Iterator[Named]:
        """Yield the names and values in the ``__dict__`` and the slots of an object.

        A ``threading.local`` has one dict per thread.
        """
        if issubclass(type(thing), threading.local):
            # They are the values of a dict whose keys are thread objects. In other dicts, keys are strings.
            for kept in referents(thing):
                for key, names in copied_items(kept) if type(kept) is dict else ():
                    if type(names) is dict and not issubclass(type(key), str):
                        yield from copied_items(names)
            return
        for name, descriptor in self._storage(type(thing)):
            value = _read(descriptor, thing)
            if name != "__dict__":
                yield name, value
            elif issubclass(type(value), dict):
                yield from copied_items(value)

    def _storage(self, cls: type) -> list[tuple[str, Any]]:
        """Return the names and C descriptors of a class's slots and its instance dict."""
        known = self._descriptors.get(id(cls))
        if known is None:
            members: dict[str, Any] = {}
            for base in _mro_of(cls):
                # As in attribute lookup, the first class in the method resolution order wins.
                for name, value in _class_items(base):
                    members.setdefault(word(name), value)
            storage = [(name, value) for name, value in members.items() if _is_storage(name, value)]
            # The entry keeps the class alive, so that no other class can get its id.
            known = self._descriptors[id(cls)] = (cls, storage)
        return known[1]


def _is_storage(name: str, value: Any) -> bool:
    cls = type(value)
    return cls is MemberDescriptorType or (cls is GetSetDescriptorType and name == "__dict__")


def _class_items(cls: type) -> list[Named]:
    """Return the names and values in the body of a class."""
    return copied_items(_namespace_of(cls).copy())


def _read(descriptor: Any, thing: object) -> Any:
    try:
        return descriptor.__get__(thing)
    except (AttributeError, TypeError, SystemError):
        # An empty slot, or a member of a C type that is not a Python object.
        return None


def _fields(cls: type) -> tuple[Any, ...]:
    """Return the field names of a NamedTuple class, and an empty tuple for any other class."""
    values = (_namespace_of(base).get("_fields") for base in _mro_of(cls))
    return next((fields for fields in values if type(fields) is tuple), ())


def copied_items(mapping: dict[Any, Any]) -> list[Named]:
    """Return the keys and values of a dict or dict subclass that another thread may be changing."""
    for _ in range(10):
        try:
            return list(dict.items(mapping))
        except RuntimeError:  # changed during the iteration
            continue
    return []
