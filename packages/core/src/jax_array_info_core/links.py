"""What an object refers to and by what name, read without running a line of the user's code.

``getattr`` may call a property or ``__getattr__``, ``vars`` a ``__dict__`` that somebody has overridden,
and ``isinstance`` a ``__class__`` that lies: the descriptors of C behind them do not.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection, Iterator
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
)
from typing import Any, NamedTuple

from .frame_locals import copied_items, frame_locals

_mro = type.__dict__["__mro__"].__get__
_namespace = type.__dict__["__dict__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__

_LONGEST_KEY = 60
_KEYS = (str, int, float, complex, bool, bytes, type(None))
_SUSPENDED: dict[type, tuple[str, str]] = {
    GeneratorType: ("generator", "gi_frame"),
    CoroutineType: ("coroutine", "cr_frame"),
    AsyncGeneratorType: ("generator", "ag_frame"),
}
_SCOPES = (FunctionType, FrameType, type, *_SUSPENDED)
# To whoever made them, a key is its words, a variable its value and a state its dict.
_WRAPPING = ("jax.", "jax_", "flax.")
_WRAPPED = ("_base_array", "_raw_value", "raw_value", "_mapping")
_TRANSPARENT = (CellType, MappingProxyType, staticmethod, classmethod)


class Link(NamedTuple):
    """A way from an object to one that it holds."""

    name: Any
    """What comes first in its text: a name, a key, a position."""

    to: Any
    """What is held."""

    kind: str
    """``attribute``, ``item``, ``element``, ``inside`` (no step at all), ``opaque`` (the object is of C and
    has no names), ``scope`` (the name says all by itself, as ``closure of step: params`` does) or ``type``
    (that of an object to which no name leads)."""

    def text(self) -> str:
        """Return it as it stands in a path."""
        match self.kind:
            case "attribute":
                name = self.name if type(self.name) is str else _key_text(self.name)
                # Lists of layers keep them as attributes with a number.
                return f"[{name}]" if name.isdecimal() else f".{name}"
            case "item":
                return f"[{_key_text(self.name)}]"
            case "element":
                return "{…}"
            case "inside":
                return ""
            case "opaque":
                return f"<{self.name}>"
            case _:
                return str(self.name)


def _key_text(key: Any) -> str:
    if type(key) in _KEYS:
        text = repr(key)
    elif type(key) is tuple:
        text = f"({', '.join(map(_key_text, key))}{',' if len(key) == 1 else ''})"
    else:
        text = f"<{type_name(type(key))}>"
    return text if len(text) <= _LONGEST_KEY else f"{text[: _LONGEST_KEY - 1]}…"


def type_name(kind: type) -> str:
    """Return the qualified name of a class."""
    return str(_qualname(kind))


def module_of(scope: Any) -> object:
    """Return the name of the module that a function, frame, generator, class or instance is from."""
    if type(scope) in _SUSPENDED:
        scope = getattr(scope, _SUSPENDED[type(scope)][1])
    if type(scope) is FunctionType:
        return scope.__globals__.get("__name__")
    if type(scope) is FrameType:
        return scope.f_globals.get("__name__")
    kind = scope if is_class(scope) else type(scope)
    try:
        return _module(kind)
    except AttributeError:
        return None


def scope_name(thing: Any) -> str | None:
    """Return how a function, frame, generator or class is called; None for other objects."""
    if type(thing) is FrameType:
        return f"{thing.f_code.co_qualname}()"
    if is_class(thing):
        return type_name(thing)
    return str(thing.__qualname__) if is_scope(thing) else None


def is_class(thing: Any) -> bool:
    """Return whether an object is a class."""
    return issubclass(type(thing), type)


def is_scope(thing: Any) -> bool:
    """Return whether an object is code with variables: its paths begin with it."""
    return issubclass(type(thing), _SCOPES)


def is_bare(thing: Any) -> bool:
    """Return whether an object is of a type of Python's own whose name says little."""
    if is_scope(thing):
        return False
    return not issubclass(type(thing), BaseException) and module_of(thing) in (
        "builtins",
        "collections",
        "functools",
        "itertools",
    )


class Reader:
    """Reads links, and remembers while it is there where the objects of a class keep their attributes."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[type, list[tuple[str, Any]]]] = {}

    def links(self, thing: Any, among: Collection[int]) -> Iterator[Link]:
        """Yield the links of an object to those whose ids are given."""
        kind = type(thing)
        if kind is FunctionType:
            links = _function_links(thing)
        elif kind is FrameType:
            links = frame_links(thing, "")
        elif kind in _SUSPENDED:
            links = _suspended_links(thing)
        elif is_class(thing):
            name = type_name(thing)
            # A class body may be changed by others meanwhile, as a dict may.
            links = (Link(f"{name}.{key}", value, "scope") for key, value in _class_items(thing))
        elif issubclass(kind, ModuleType):
            links = (Link(key, value, "attribute") for key, value in self._attributes(thing))
        else:
            yield from self._object_links(thing, among)
            return
        for link in links:
            if id(link.to) in among:
                yield link

    def _object_links(self, thing: Any, among: Collection[int]) -> Iterator[Link]:
        kind = type(thing)
        # Its class is no part of it, and its attributes are, not the dict that has them.
        named = {id(kind), *(id(place) for place in self._namespaces(thing))}
        for link in self._named_links(thing):
            if id(link.to) in among:
                named.add(id(link.to))
                yield link
        is_set = issubclass(kind, set | frozenset)
        way = "inside" if issubclass(kind, _TRANSPARENT) else "element" if is_set else "opaque"
        for held in gc.get_referents(thing):
            if id(held) in among and id(held) not in named:
                named.add(id(held))
                yield Link(type_name(kind), held, way)
        if id(kind) in among:
            yield Link("__class__", kind, "attribute")

    def _named_links(self, thing: Any) -> Iterator[Link]:
        kind = type(thing)
        wraps = str(module_of(kind)).startswith(_WRAPPING)
        for name, value in self._attributes(thing):
            yield Link(name, value, "inside" if wraps and name in _WRAPPED else "attribute")
        if issubclass(kind, dict):
            for key, value in copied_items(thing):
                yield Link(key, value, "item")
        elif issubclass(kind, list | tuple):
            base: Any = list if issubclass(kind, list) else tuple
            fields = _fields(kind)
            for index, value in enumerate(base.__getitem__(thing, slice(None))):
                if index < len(fields):
                    yield Link(fields[index], value, "attribute")
                else:
                    yield Link(index, value, "item")
        elif issubclass(kind, deque):
            # One call of C, in which nobody changes it; what else it refers to comes before.
            referents = gc.get_referents(thing)
            for index, value in enumerate(referents[len(referents) - deque.__len__(thing) :]):
                yield Link(index, value, "item")
        elif issubclass(kind, BaseException):
            yield Link("__traceback__", BaseException.__dict__["__traceback__"].__get__(thing), "attribute")

    def _attributes(self, thing: object) -> Iterator[tuple[Any, Any]]:
        """Yield names and values of what is in the ``__dict__`` and the slots of an object."""
        for name, place in self._places_of(type(thing)):
            value = _read(place, thing)
            if name != "__dict__":
                yield name, value
            elif isinstance(value, dict):
                yield from copied_items(value)

    def _namespaces(self, thing: object) -> Iterator[Any]:
        for name, place in self._places_of(type(thing)):
            if name == "__dict__":
                yield _read(place, thing)

    def _places_of(self, kind: type) -> list[tuple[str, Any]]:
        known = self._places.get(id(kind))
        if known is None:
            # The class is kept with them, so that its id is not another's meanwhile.
            known = self._places[id(kind)] = (kind, list(_slots(kind)))
        return known[1]


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    has_dict = False
    for base in _mro(kind):
        for name, value in _class_items(base):
            if type(value) is MemberDescriptorType:
                yield name, value
            elif name == "__dict__" and type(value) is GetSetDescriptorType and not has_dict:
                has_dict = True
                yield name, value


def _class_items(kind: type) -> list[tuple[Any, Any]]:
    """Return the names and values in the body of a class."""
    return copied_items(_namespace(kind).copy())


def _read(place: Any, thing: object) -> Any:
    try:
        return place.__get__(thing)
    except (AttributeError, TypeError, SystemError):
        # An empty slot, or one of a C type that is no object's.
        return None


def _fields(kind: type) -> tuple[Any, ...]:
    """Return the names of the fields of a NamedTuple, none where it is none."""
    for base in _mro(kind):
        fields = _namespace(base).get("_fields")
        if type(fields) is tuple:
            return fields
    return ()


def _function_links(function: FunctionType) -> Iterator[Link]:
    name = function.__qualname__
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield Link(f"closure of {name}: {variable}", cell.cell_contents, "scope")
        except ValueError:  # it is empty yet
            continue
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for argument, value in zip(reversed(arguments), reversed(defaults), strict=False):
        yield Link(f"default of {name}: {argument}", value, "scope")
    for argument, value in copied_items(function.__kwdefaults__ or {}):
        yield Link(f"default of {name}: {argument}", value, "scope")
    for attribute, value in copied_items(function.__dict__):
        yield Link(f"{name}.{attribute}", value, "scope")


def _suspended_links(suspended: Any) -> Iterator[Link]:
    word, place = _SUSPENDED[type(suspended)]
    frame = getattr(suspended, place)
    if frame is not None:
        name = suspended.__qualname__
        for variable, value in frame_locals(frame):
            yield Link(f"{word} {name} local {variable}", value, "scope")


def frame_links(frame: FrameType, before: str) -> Iterator[Link]:
    """Yield the links of a function's frame, with a text before their names."""
    code = frame.f_code
    for name, value in frame_locals(frame):
        # What comes from a closure is told of the closure.
        if name not in code.co_freevars:
            yield Link(f"{before}{code.co_qualname}() local {name}", value, "scope")
