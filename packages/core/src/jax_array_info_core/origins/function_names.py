"""Names of jitted functions, and the code that they run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from .. import compat
from .origins import JAX_MODULES


class Described(NamedTuple):
    """What is told of a jitted function."""

    name: str
    """Its name with what it is in, such as ``Model.step`` or ``partial(step)``."""

    plain: str
    """Its name alone, such as ``step``."""

    code: CodeType | None
    """Its code; None of what is not written in Python."""

    is_jax_own: bool
    """Whether all of it is JAX's; it has no name then."""


def described(function: Any, is_jax_own: Callable[[str], bool]) -> Described:
    """Return what a jitted function is called; none of the user's code runs for that.

    It is that of the outermost function in it that is not JAX's: of ``jit(grad(loss))`` it is ``loss``.
    What a decorator has given a function's name to is where that function is.

    Args:
        function: A jitted function.
        is_jax_own: Whether a file is JAX's.
    """
    around = "pmap({})" if compat.is_pmapped(function) else "{}"
    layers = _layers(function)
    for layer in layers:
        if isinstance(layer, functools.partial):
            around = around.format("partial({})")
        elif not isinstance(layer, MethodType) and type(layer) not in compat.jitted_kinds():
            code = _code(layer)
            if not (_is_of_jax(layer) if code is None else is_jax_own(code.co_filename)):
                name = _name(layer)
                for inner in layers:
                    if isinstance(inner, FunctionType) and _name(inner) == name:
                        code = code if is_jax_own(inner.__code__.co_filename) else inner.__code__
                return Described(around.format(name), name.rpartition(".")[2], code, False)
    return Described("", "", None, True)


def _layers(function: Any) -> Iterator[Any]:
    """Yield what is wrapped in a jitted function, the outermost first, each once."""
    seen: list[Any] = []
    layer = _inner(function)
    while layer is not None and not any(layer is other for other in seen):
        yield layer
        seen.append(layer)
        layer = _inner(layer)


def _inner(layer: Any) -> Any:
    """Return what a function wraps, None where it wraps nothing."""
    if isinstance(layer, functools.partial):
        return layer.func
    if isinstance(layer, MethodType):
        return layer.__func__
    if type(layer) in compat.jitted_kinds():
        return layer.__wrapped__
    # Not to run a __getattr__ of the user's.
    return inspect.getattr_static(layer, "__wrapped__", None)


def _code(layer: Any) -> CodeType | None:
    """Return the code that a call of something runs first, None of what is not written in Python."""
    if isinstance(layer, FunctionType):
        return layer.__code__
    # A class is called by its __init__, another object by the __call__ of its class.
    owner, name = (layer, "__init__") if isinstance(layer, type) else (type(layer), "__call__")
    of_class = inspect.getattr_static(owner, name, None)
    return of_class.__code__ if isinstance(of_class, FunctionType) else None


def _name(layer: Any) -> str:
    """Return the name of a function or class, that of its ``__call__`` for another object."""
    if isinstance(layer, np.ufunc):
        return layer.__name__
    is_named = isinstance(layer, FunctionType | BuiltinFunctionType | type)
    name = layer.__qualname__ if is_named else f"{type(layer).__qualname__}.__call__"
    return str(name).rpartition("<locals>.")[2]


def _is_of_jax(layer: Any) -> bool:
    named = layer if isinstance(layer, BuiltinFunctionType | type) else type(layer)
    return str(named.__module__).partition(".")[0] in JAX_MODULES
