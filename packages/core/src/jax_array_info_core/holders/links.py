"""Named references from an object to other objects, read without running user code.

``getattr`` may call a property or ``__getattr__``, and ``vars`` an overridden ``__dict__``. The C descriptors
behind them do not.
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

from ..compat.jitted import referents
from .names import (
    copied_items,
    frame_locals,
    is_class,
    is_module_body,
    key_text,
    module_of,
    mro_of,
    namespace_of,
    suspended_frame,
    type_name,
    word,
)

# Wrappers and the attribute that they wrap, which adds no step to a path: a PRNG key and its uint32 array, a
# shard and its data, a Flax variable and its value, a state and its dict, a jitted function and the function.
_WRAPPING = ("jax.", "jax_", "jaxlib.", "flax.")
_WRAPPED = ("_base_array", "_data", "_raw_value", "raw_value", "_mapping", "__wrapped__")
_TRANSPARENT = (CellType, MappingProxyType, staticmethod, classmethod)


class Link(NamedTuple):
    """A reference from one object to another: an edge of the reference graph."""

    name: Any
    """The attribute name, key or position under which the object is held."""

    to: Any
    """The object that is held."""

    access: str
    """The form of the reference, and of its text: ``attribute``; ``item``; ``element`` (of a set); ``inside``
    (no text); ``opaque`` (held by a C object, without a name); ``scope`` (the name is the full text, such as
    ``closure of step: params``); ``type`` (the type of an object that no name leads to)."""

    def text(self) -> str:
        """Return the text of this step in a reference path."""
        match self.access:
            case "attribute":
                name = word(self.name) if issubclass(type(self.name), str) else key_text(self.name)
                # Lists of layers may store each layer as an attribute named by its number.
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
    """A reader of links, with a cache of the attribute descriptors of each class."""

    def __init__(self) -> None:
        self._descriptors: dict[int, tuple[type, list[tuple[str, Any]]]] = {}

    def links(self, thing: Any, among: Collection[int]) -> list[Link]:
        """Return the links of an object to the objects with the given ids."""
        cls = type(thing)
        if cls is FunctionType:
            return _links(_function_names(thing), "scope", among)
        if cls is FrameType:
            # A module's variables belong to the module, not to the frame of its body.
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
        if cls is Context:
            values = ((f"ContextVar {word(variable.name)}", value) for variable, value in thing.items())
            return _links(values, "scope", among)
        if cls is ContextVar:
            name = f"default of ContextVar {word(thing.name)}"
            return _links(((name, held) for held in referents(thing)), "scope", among)
        if issubclass(cls, threading.local):
            return _links(_thread_local_names(thing), "attribute", among)
        if issubclass(cls, ModuleType):
            return _links(self.attributes(thing), "attribute", among)
        return self._object_links(thing, among)

    def _object_links(self, thing: Any, among: Collection[int]) -> list[Link]:
        cls = type(thing)
        links = self._named_links(thing, among)
        # Leave out the instance dict, whose items are attributes. The class comes last.
        named = {id(cls), *(id(link.to) for link in links)}
        named.update(
            id(_read(descriptor, thing))
            for name, descriptor in self._descriptors_of(cls)
            if name == "__dict__"
        )
        is_set = issubclass(cls, set | frozenset)
        access = "inside" if issubclass(cls, _TRANSPARENT) else "element" if is_set else "opaque"
        for held in referents(thing):
            if id(held) in among and id(held) not in named:
                named.add(id(held))
                links.append(Link(type_name(cls), held, access))
        if id(cls) in among:
            links.append(Link("__class__", cls, "attribute"))
        return links

    def _named_links(self, thing: Any, among: Collection[int]) -> list[Link]:
        cls = type(thing)
        links = _links(self.attributes(thing), "attribute", among)
        if links and (module_of(cls) or "").startswith(_WRAPPING):
            links = [link._replace(access="inside") if link.name in _WRAPPED else link for link in links]
        if issubclass(cls, dict):
            links += _links(copied_items(thing), "item", among)
        elif issubclass(cls, list):
            links += _links(enumerate(list.__getitem__(thing, slice(None))), "item", among)
        elif issubclass(cls, tuple):
            values = tuple.__getitem__(thing, slice(None))
            fields = _fields(cls)
            links += _links(zip(fields, values, strict=False), "attribute", among)
            links += _links(enumerate(values[len(fields) :], len(fields)), "item", among)
        elif issubclass(cls, deque):
            # One call into C, so no other thread can change the deque meanwhile. Its elements come last.
            held = referents(thing)
            links += _links(enumerate(held[len(held) - deque.__len__(thing) :]), "item", among)
        elif cls is TracebackType:
            links += _links([("tb_next", thing.tb_next)], "attribute", among)
        elif issubclass(cls, BaseException):
            traceback = BaseException.__dict__["__traceback__"].__get__(thing)
            links += _links([("__traceback__", traceback)], "attribute", among)
        return links

    def attributes(self, thing: object) -> Iterator[tuple[Any, Any]]:
        """Yield the names and values in the ``__dict__`` and the slots of an object."""
        for name, descriptor in self._descriptors_of(type(thing)):
            value = _read(descriptor, thing)
            if name != "__dict__":
                yield name, value
            elif issubclass(type(value), dict):
                yield from copied_items(value)

    def _descriptors_of(self, cls: type) -> list[tuple[str, Any]]:
        known = self._descriptors.get(id(cls))
        if known is None:
            # The entry keeps the class alive, so that no other class can get its id.
            known = self._descriptors[id(cls)] = (cls, list(_attribute_descriptors(cls)))
        return known[1]


def _links(items: Iterable[tuple[Any, Any]], access: str, among: Collection[int]) -> list[Link]:
    """Return the links from named values to the objects with the given ids."""
    return [Link(name, value, access) for name, value in items if id(value) in among]


def _attribute_descriptors(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the names and C descriptors of a class's slots and its instance dict."""
    seen = set[str]()
    for base in mro_of(cls):
        for name, value in _class_items(base):
            is_storage = type(value) is MemberDescriptorType or (
                type(value) is GetSetDescriptorType and type(name) is str and name == "__dict__"
            )
            # As in attribute lookup, the first class in the method resolution order wins.
            if is_storage and word(name) not in seen:
                yield word(name), value
            seen.add(word(name))


def _class_items(cls: type) -> list[tuple[Any, Any]]:
    """Return the names and values in the body of a class."""
    return copied_items(namespace_of(cls).copy())


def _read(descriptor: Any, thing: object) -> Any:
    try:
        return descriptor.__get__(thing)
    except (AttributeError, TypeError, SystemError):
        # An empty slot, or a member of a C type that is not a Python object.
        return None


def _fields(cls: type) -> tuple[Any, ...]:
    """Return the field names of a NamedTuple class, and an empty tuple for any other class."""
    for base in mro_of(cls):
        fields = namespace_of(base).get("_fields")
        if type(fields) is tuple:
            return fields
    return ()


def _function_names(function: FunctionType) -> Iterator[tuple[str, Any]]:
    name = word(function.__qualname__)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield closure_name(name, variable), cell.cell_contents
        except ValueError:  # the cell is still empty
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
    """Yield the names and values that a ``threading.local`` object has in all threads."""
    for kept in referents(thing):
        # It has one dict per thread, whose keys are thread objects. In other dicts the keys are strings.
        for key, names in copied_items(kept) if type(kept) is dict else ():
            if type(names) is dict and not issubclass(type(key), str):
                yield from copied_items(names)


def closure_name(function: str, variable: str) -> str:
    """Return the text of a variable that a function captures from an enclosing function."""
    return f"closure of {function}: {variable}"


def _suspended_names(suspended: Any, noun: str, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    # While it runs, its variables are listed with those of all running functions.
    is_running = getattr(suspended, "gi_running", False) or getattr(suspended, "cr_running", False)
    if frame is not None and not is_running:
        name = word(suspended.__qualname__)
        for variable, value in frame_locals(frame) or ():
            yield f"{noun} {name} local {variable}", value


def frame_names(frame: FrameType, variables: Iterable[tuple[Any, Any]] | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a function's frame, named as in reference paths, with their values."""
    code = frame.f_code
    for variable, value in variables or ():
        if variable in code.co_freevars:
            yield closure_name(code.co_qualname, variable), value
        # Python names the iterable of a comprehension .0.
        elif not word(variable).startswith("."):
            yield f"{code.co_qualname}() local {word(variable)}", value
