"""Static values of a call, as trees of texts and identities: what JAX compares, without the values.

The class of a value is ``type(value)``: ``isinstance`` may run a ``__class__`` of the user's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, Literal, NamedTuple

import numpy as np

from ...arrays.origins.origins import code_of, code_origin, wrapped_functions
from ...arrays.paths import key_text
from ...base.text import plain_shape, plain_text
from ...compat.jitted import graph_statics, jitted_types, static_field_names
from ...compat.values import is_array, is_partition_spec, is_structure, type_name
from ...geometry.layouts.dtypes import type_text


class Serials:
    """A number for each object, never given twice, unlike ``id``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._known: dict[int, tuple[weakref.ReferenceType[Any], int]] = {}

    def of(self, value: Any) -> int:
        """Return the number of an object: by its id, below 0, if it takes no weak references."""
        key = id(value)
        if key not in self._known:
            try:
                # Another object may have the id afterwards.
                reference = weakref.ref(value, lambda _: self._known.pop(key, None))
            except TypeError:
                return -key
            self._known[key] = reference, next(self._numbers)
        return self._known[key][1]


PYTHON = (dict, list, tuple, type(None))
"""Classes of Python's whose nodes have no static fields: the paths have all that distinguishes them."""
NO_PARTS: Mapping[str, Part] = {}
_MOST_PARTS = 10_000
_DEEPEST = 12
_LONGEST = 60


class Part(NamedTuple):
    """A value inside a static value, with the values in it."""

    text: str
    """The value itself, or its class if it has parts or no short text."""

    key: Hashable = None
    """Differs between values that are compared by identity or by a hash; None for those that only their parts
    tell apart."""

    kind: Literal["value", "array", "function", "partial"] = "value"
    place: str = ""
    """File and line of the definition of a function."""

    definition: Hashable = None
    """Equal for functions of one definition."""

    parts: Mapping[str, Part] = NO_PARTS
    """The values in it, by name: fields, items, keys, bound arguments, and variables of closures."""

    is_hashed_only: bool = False
    """Whether all that is known of the value is its class and a hash, which another value may have too."""


class Static(NamedTuple):
    """A static argument, or the static fields of a node."""

    root: Part
    """The value."""

    key: Hashable
    """A value that is equal for arguments that JAX takes as equal."""

    kind: str
    """The name of its class."""


class Reader:
    """Reader of the values of one call, at most 10,000."""

    def __init__(self, serials: Serials) -> None:
        self._serials = serials
        self._rest = _MOST_PARTS

    def static(self, value: Any, node: type | None = None) -> Static:
        """Return the record of a static argument, or of the static fields of a node of a tree."""
        return Static(self._part(named_fields(node, value)), self._key(value), type_name(value))

    def bound(self, functions: Sequence[Any]) -> Part:
        """Return the values bound to functions: arguments of a partial, defaults, and closures' variables."""
        parts = [
            Part("", parts=self._parts(dict(_bound(function)), 1, is_hashed=False)) for function in functions
        ]
        return Part("", parts={str(number): part for number, part in enumerate(parts)})

    def _part(self, value: Any, depth: int = 0, *, is_hashed: bool = True) -> Part:
        """Return a value with the values in it.

        Args:
            value: The value.
            depth: Number of values that it is in.
            is_hashed: Whether JAX hashes it, so that a hash of the user's may be asked too.
        """
        self._rest -= 1
        is_function = _is_function(value)
        children = None if depth == _DEEPEST else _children(value)
        parts = self._parts(children or {}, depth + 1, is_hashed=is_hashed and not is_function)
        if is_function:
            return _function(value, self._key(value), parts)
        if is_array(value) or issubclass(type(value), np.ndarray):
            return Part(type_text(value.dtype, plain_shape(value.shape)), self._serials.of(value), "array")
        text = f"{type_name(value)} object" if children else _value_text(value)
        has_key = _is_compared_by_identity(value) or (is_hashed and not children and not is_structure(value))
        key = self._key(value) if has_key else None
        is_hashed_only = isinstance(key, tuple) and text.endswith((" object", "…"))
        return Part(text, key, parts=parts, is_hashed_only=is_hashed_only)

    def _parts(self, children: Mapping[Any, Any], depth: int, *, is_hashed: bool) -> dict[str, Part]:
        # The number that is left falls with each value that is read.
        return {
            key_text(key): self._part(child, depth, is_hashed=is_hashed)
            for key, child in children.items()
            if self._rest > 0
        }

    def _key(self, value: Any) -> Hashable:
        if _is_compared_by_identity(value):
            return self._serials.of(value)
        try:
            return type(value).__qualname__, hash(value)
        except Exception:
            # JAX hashes it too, but the class is the user's.
            return None


def _is_compared_by_identity(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is object.__hash__ or type(value) is FunctionType


def named_fields(node: type | None, fields: Any) -> Any:
    """Return the static fields of a node by name, where its class was registered with names."""
    names = static_field_names(node)
    return dict(zip(names, fields, strict=True)) if names and len(names) == len(fields) else fields


def identity_of(code: CodeType) -> int:
    """Return a number that is equal for the codes of one definition."""
    constants = tuple((type(const), const) for const in code.co_consts)
    return hash((code.co_filename, code.co_code, constants, code.co_names, tuple(code.co_positions())))


def _is_function(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, FunctionType | MethodType | functools.partial) or kind in jitted_types()


def _function(value: Any, key: Hashable, parts: Mapping[str, Part]) -> Part:
    """Return the record of a function, a method, or what wraps a function."""
    inner = wrapped_functions(value)[-1]
    code = code_of(inner)
    return Part(
        plain_text(getattr(inner, "__qualname__", type_name(inner))),
        key,
        "partial" if issubclass(type(value), functools.partial) else "function",
        "" if code is None else code_origin(code).place,
        None if code is None else identity_of(code),
        parts,
    )


def _children(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a dataclass, a container, a function or a tree's structure; None for others."""
    if _is_function(value):
        inner = {"the function": value.func} if issubclass(type(value), functools.partial) else {}
        return inner | dict(_bound(value))
    if dataclasses.is_dataclass(type(value)):
        return graph_statics(value) or dict(_fields(value))
    if issubclass(type(value), tuple):
        return dict(enumerate(tuple.__iter__(value)))
    if type(value) is list:
        return dict(enumerate(value))
    if is_structure(value):
        data = value.node_data()
        fields = {} if data is None or data[0] in PYTHON else {data[0].__qualname__: named_fields(*data)}
        return fields | dict(enumerate(value.children()))
    return value if type(value) is dict else None


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each compared field that a dataclass stores. No property of the user's runs."""
    held: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):  # of a class with slots
        held = object.__getattribute__(value, "__dict__")
    by_fields = type(value).__dataclass_params__.eq
    for field in dataclasses.fields(type(value)):
        if by_fields and not field.compare:
            continue
        slot = inspect.getattr_static(type(value), field.name, None)
        if isinstance(slot, MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                yield field.name, slot.__get__(value)
        elif field.name in held:
            yield field.name, held[field.name]


def _value_text(value: Any) -> str:
    kind = type(value)
    if kind in (str, bytes):
        text = repr(value[: _LONGEST + 1])
    elif kind is int and value.bit_length() > 4 * _LONGEST:
        text = f"an int of {value.bit_length()} bits"
    elif kind in (bool, int, float, complex, type(None), range, slice):
        text = repr(value)
    elif issubclass(kind, np.dtype) or is_partition_spec(value):
        text = plain_text(value)
    elif issubclass(kind, enum.Enum):
        text = f"{kind.__name__}.{value._name_}"
    elif issubclass(kind, FunctionType | BuiltinFunctionType | type):
        text = plain_text(value.__qualname__)
    elif kind in (tuple, list, dict):
        text = f"{kind.__name__}()"
    elif is_structure(value):
        text = "a leaf" if value.num_leaves else "an empty node"
    else:
        text = f"{type_name(value)} object"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _bound(function: Any) -> Iterator[tuple[str, Any]]:
    if issubclass(type(function), functools.partial):
        names = _parameters(function.func)
        for number, value in enumerate(function.args):
            yield names[number] if number < len(names) else f"argument {number}", value
        for name, value in function.keywords.items():
            yield key_text(name), value
    elif type(function) is FunctionType:
        defaults = function.__defaults__ or ()
        yield from zip(_parameters(function)[-len(defaults) :], defaults, strict=False)
        yield from (function.__kwdefaults__ or {}).items()
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                yield name, cell.cell_contents
            except ValueError:
                continue  # not assigned yet


def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters by position; none for another object than a function."""
    if type(function) is not FunctionType:
        return ()
    return function.__code__.co_varnames[: function.__code__.co_argcount]
