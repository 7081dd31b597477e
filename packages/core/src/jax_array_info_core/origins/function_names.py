"""Names and code of jitted functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from itertools import chain
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from .. import compat
from .origins import JAX_MODULES, files_of


class Described(NamedTuple):
    """The name and the code of a jitted function."""

    name: str
    """Qualified name, such as ``Model.step`` or ``partial(step)``."""

    plain: str
    """Plain name, such as ``step``."""

    code: CodeType | None
    """Its code; None if it is not written in Python."""

    is_jax_own: bool
    """Whether the function belongs to JAX. It has no name then."""


def described(function: Any, is_jax_own: Callable[[str], bool]) -> Described:
    """Return the name and the code of a jitted function, without running the user's code.

    They belong to the outermost wrapped function outside JAX: for ``jit(grad(loss))``, to ``loss``. A
    decorator may copy the name of the function that it wraps; the code is then the wrapped function's.

    Args:
        function: A jitted function.
        is_jax_own: A function that returns whether a file belongs to JAX.
    """
    return _described(_layers(function), is_jax_own, is_pmapped=compat.is_pmapped(function))


def described_for_user(function: Any, is_hidden: Callable[[str], bool]) -> Described:
    """Return what ``described`` returns, without the libraries around the user's function.

    Without a function of the user's inside, the library's own is described. It has no code if it has another
    name there, as the functions of Equinox have.

    Args:
        function: A jitted function.
        is_hidden: A function that returns whether a file belongs to JAX or to a library that is hidden.
    """
    found = described(function, is_hidden)
    if found.is_jax_own:
        found = described(function, files_of(JAX_MODULES))
        if found.code is not None and is_hidden(found.code.co_filename):
            is_renamed = found.code.co_name not in (found.plain, "__call__", "__init__")
            return found._replace(code=None) if is_renamed else found
    return found


def described_inside(function: Any, is_jax_own: Callable[[str], bool], *, is_pmapped: bool) -> Described:
    """Return what ``described`` returns for a jitted function, given the function inside it."""
    return _described(chain([function], _layers(function)), is_jax_own, is_pmapped=is_pmapped)


def wrapped_functions(function: Any) -> list[Any]:
    """Return a function and all functions that it wraps, outermost first."""
    return [function, *_layers(function)]


def code_of(function: Any) -> CodeType | None:
    """Return the code that runs when a function is called; None for a wrapper that is not a function."""
    if isinstance(function, functools.partial | MethodType) or type(function) in compat.jitted_types():
        return None
    return _code(function)


def _described(layers: Iterator[Any], is_jax_own: Callable[[str], bool], *, is_pmapped: bool) -> Described:
    around = "pmap({})" if is_pmapped else "{}"
    for layer in layers:
        if isinstance(layer, functools.partial):
            around = around.format("partial({})")
        elif not isinstance(layer, MethodType) and type(layer) not in compat.jitted_types():
            code = _code(layer)
            if not (_is_of_jax(layer) if code is None else is_jax_own(code.co_filename)):
                name = _name(layer)
                for inner in layers:
                    if isinstance(inner, FunctionType) and _name(inner) == name:
                        code = code if is_jax_own(inner.__code__.co_filename) else inner.__code__
                return Described(around.format(name), name.rpartition(".")[2], code, False)
    return Described("", "", None, True)


def _layers(function: Any) -> Iterator[Any]:
    """Yield the functions wrapped in a jitted function, outermost first, each once."""
    seen: list[Any] = []
    layer = _inner(function)
    while layer is not None and not any(layer is other for other in seen):
        yield layer
        seen.append(layer)
        layer = _inner(layer)


def _inner(layer: Any) -> Any:
    """Return the function that another one wraps; None if it wraps none."""
    if isinstance(layer, functools.partial):
        return layer.func
    if isinstance(layer, MethodType):
        return layer.__func__
    if type(layer) in compat.jitted_types():
        return layer.__wrapped__
    # getattr could run a user's __getattr__.
    return inspect.getattr_static(layer, "__wrapped__", None)


def _code(layer: Any) -> CodeType | None:
    """Return the code that runs when an object is called; None if it is not written in Python."""
    if isinstance(layer, FunctionType):
        return layer.__code__
    # Calling a class runs its __init__, calling an instance the __call__ of its class.
    owner, name = (layer, "__init__") if isinstance(layer, type) else (type(layer), "__call__")
    method = inspect.getattr_static(owner, name, None)
    return method.__code__ if isinstance(method, FunctionType) else None


def _name(layer: Any) -> str:
    """Return the name of a function or a class; for another object, the name of its ``__call__``."""
    if isinstance(layer, np.ufunc):
        return layer.__name__
    is_named = isinstance(layer, FunctionType | BuiltinFunctionType | type)
    name = layer.__qualname__ if is_named else f"{type(layer).__qualname__}.__call__"
    return str(name).rpartition("<locals>.")[2]


def _is_of_jax(layer: Any) -> bool:
    named = layer if isinstance(layer, BuiltinFunctionType | type) else type(layer)
    return str(named.__module__).partition(".")[0] in JAX_MODULES
