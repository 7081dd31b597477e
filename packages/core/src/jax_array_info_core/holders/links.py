"""References from an object and their names, read without running a line of the user's code.

``getattr`` may call a property or ``__getattr__``, ``vars`` a ``__dict__`` that somebody has overridden:
the descriptors of C behind them do not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextvars import Context, ContextVar
from types import (
    CellType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple

from ..compat.referents import referents
from .frame_locals import copied_items, frame_locals, is_module_body
from .names import is_class, key_text, module_of, mro_of, namespace_of, suspended_frame, type_name, word

# To whoever made them, a key is its words, a shard its data, a variable its value, a state its dict, and a
# jitted function the function.
_WRAPPING = ("jax.", "jax_", "jaxlib.", "flax.")
_WRAPPED = ("_base_array", "_data", "_raw_value", "raw_value", "_mapping", "__wrapped__")
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
                name = word(self.name) if issubclass(type(self.name), str) else key_text(self.name)
                # Lists of layers keep them as attributes with a number.
                return f"[{name}]" if name.isdecimal() else f".{name}"
            case "item":
                return f"[{key_text(self.name)}]"
            case "element":
                return "{…}"
            case "inside":
                return ""
            case "opaque":
                return f"<{self.name}>"
            case _:
                return word(self.name)


class Reader:
    """Reads links, and remembers while it is there where the objects of a class keep their attributes."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[type, list[tuple[str, Any]]]] = {}

    def links(self, thing: Any, among: Collection[int]) -> list[Link]:
        """Return the links of an object to those whose ids are given."""
        kind = type(thing)
        if kind is FunctionType:
            return _links(_function_names(thing), "scope", among)
        if kind is FrameType:
            # The variables of a module are not its body's: the module has them after an exception too.
            return (
                []
                if is_module_body(thing)
                else _links(frame_names(thing, frame_locals(thing)), "scope", among)
            )
        if suspended := suspended_frame(thing):
            return _links(_suspended_names(thing, *suspended), "scope", among)
        if is_class(thing):
            name = type_name(thing)
            names = ((f"{name}.{word(key)}", value) for key, value in _class_items(thing))
            return _links(names, "scope", among)
        if kind is Context:
            values = ((f"ContextVar {word(variable.name)}", value) for variable, value in thing.items())
            return _links(values, "scope", among)
        if kind is ContextVar:
            name = f"default of ContextVar {word(thing.name)}"
            return _links(((name, held) for held in referents(thing)), "scope", among)
        if issubclass(kind, threading.local):
            return _links(_thread_local_names(thing), "attribute", among)
        if issubclass(kind, ModuleType):
            return _links(self.attributes(thing), "attribute", among)
        return self._object_links(thing, among)

    def _object_links(self, thing: Any, among: Collection[int]) -> list[Link]:
        kind = type(thing)
        links = self._named_links(thing, among)
        # Its class is no part of it, and its attributes are, not the dict that has them.
        named = {id(kind), *(id(link.to) for link in links)}
        named.update(id(_read(place, thing)) for name, place in self._places_of(kind) if name == "__dict__")
        is_set = issubclass(kind, set | frozenset)
        way = "inside" if issubclass(kind, _TRANSPARENT) else "element" if is_set else "opaque"
        for held in referents(thing):
            if id(held) in among and id(held) not in named:
                named.add(id(held))
                links.append(Link(type_name(kind), held, way))
        if id(kind) in among:
            links.append(Link("__class__", kind, "attribute"))
        return links

    def _named_links(self, thing: Any, among: Collection[int]) -> list[Link]:
        kind = type(thing)
        links = _links(self.attributes(thing), "attribute", among)
        if links and (module_of(kind) or "").startswith(_WRAPPING):
            links = [link._replace(kind="inside") if link.name in _WRAPPED else link for link in links]
        if issubclass(kind, dict):
            links += _links(copied_items(thing), "item", among)
        elif issubclass(kind, list):
            links += _links(enumerate(list.__getitem__(thing, slice(None))), "item", among)
        elif issubclass(kind, tuple):
            values = tuple.__getitem__(thing, slice(None))
            fields = _fields(kind)
            links += _links(zip(fields, values, strict=False), "attribute", among)
            links += _links(enumerate(values[len(fields) :], len(fields)), "item", among)
        elif issubclass(kind, deque):
            # One call of C, in which nobody changes it; what else it refers to comes before.
            held = referents(thing)
            links += _links(enumerate(held[len(held) - deque.__len__(thing) :]), "item", among)
        elif kind is TracebackType:
            links += _links([("tb_next", thing.tb_next)], "attribute", among)
        elif issubclass(kind, BaseException):
            traceback = BaseException.__dict__["__traceback__"].__get__(thing)
            links += _links([("__traceback__", traceback)], "attribute", among)
        return links

    def attributes(self, thing: object) -> Iterator[tuple[Any, Any]]:
        """Yield names and values of what is in the ``__dict__`` and the slots of an object."""
        for name, place in self._places_of(type(thing)):
            value = _read(place, thing)
            if name != "__dict__":
                yield name, value
            elif issubclass(type(value), dict):
                yield from copied_items(value)

    def _places_of(self, kind: type) -> list[tuple[str, Any]]:
        known = self._places.get(id(kind))
        if known is None:
            # The class is kept with them, so that its id is not another's meanwhile.
            known = self._places[id(kind)] = (kind, list(_slots(kind)))
        return known[1]


def _links(items: Iterable[tuple[Any, Any]], kind: str, among: Collection[int]) -> list[Link]:
    """Return links by some names to those of their values whose ids are given."""
    return [Link(name, value, kind) for name, value in items if id(value) in among]


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    seen = set[str]()
    for base in mro_of(kind):
        for name, value in _class_items(base):
            is_place = type(value) is MemberDescriptorType or (
                type(value) is GetSetDescriptorType and type(name) is str and name == "__dict__"
            )
            # Of the same name in two classes, the first is the one that is meant.
            if is_place and word(name) not in seen:
                yield word(name), value
            seen.add(word(name))


def _class_items(kind: type) -> list[tuple[Any, Any]]:
    """Return the names and values in the body of a class."""
    return copied_items(namespace_of(kind).copy())


def _read(place: Any, thing: object) -> Any:
    try:
        return place.__get__(thing)
    except (AttributeError, TypeError, SystemError):
        # An empty slot, or one of a C type that is no object's.
        return None


def _fields(kind: type) -> tuple[Any, ...]:
    """Return the names of the fields of a NamedTuple, none where it is none."""
    for base in mro_of(kind):
        fields = namespace_of(base).get("_fields")
        if type(fields) is tuple:
            return fields
    return ()


def _function_names(function: FunctionType) -> Iterator[tuple[str, Any]]:
    name = word(function.__qualname__)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield closure_name(name, variable), cell.cell_contents
        except ValueError:  # it is empty yet
            continue
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for argument, value in zip(reversed(arguments), reversed(defaults), strict=False):
        yield f"default of {name}: {argument}", value
    for argument, value in copied_items(function.__kwdefaults__ or {}):
        yield f"default of {name}: {word(argument)}", value
    for attribute, value in copied_items(function.__dict__):
        yield f"{name}.{word(attribute)}", value
    yield f"{name}.__globals__", function.__globals__


def _thread_local_names(thing: threading.local) -> Iterator[tuple[Any, Any]]:
    """Yield the names and values that an object has in each thread."""
    for kept in referents(thing):
        # It keeps a dict for each thread, by objects of the threads; other names are strings.
        for key, names in copied_items(kept) if type(kept) is dict else ():
            if type(names) is dict and not issubclass(type(key), str):
                yield from copied_items(names)


def closure_name(function: str, variable: str) -> str:
    """Return how a variable is called that a function has from the one round it."""
    return f"closure of {function}: {variable}"


def _suspended_names(suspended: Any, what: str, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    # One that runs is named by its function, as every function that runs.
    is_running = getattr(suspended, "gi_running", False) or getattr(suspended, "cr_running", False)
    if frame is not None and not is_running:
        name = word(suspended.__qualname__)
        for variable, value in frame_locals(frame) or ():
            yield f"{what} {name} local {variable}", value


def frame_names(frame: FrameType, variables: Iterable[tuple[Any, Any]] | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a function's frame as they are called in paths, with their values."""
    code = frame.f_code
    for variable, value in variables or ():
        if variable in code.co_freevars:
            yield closure_name(code.co_qualname, variable), value
        # What a comprehension loops over is called .0, by Python itself.
        elif not word(variable).startswith("."):
            yield f"{code.co_qualname}() local {word(variable)}", value
