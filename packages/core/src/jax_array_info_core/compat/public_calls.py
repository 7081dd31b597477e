"""Public names of the functions of JAX, by their code."""

from __future__ import annotations

import sys
from types import CodeType

_MODULES = (
    "jax",
    "jax.distributed",
    "jax.experimental.multihost_utils",
    "jax.numpy",
    "jax.lax",
    "jax.random",
)
"""Modules whose functions have the name of the module."""
_COMPILATION = ("backend_compile", "backend_compile_and_load", "compile_or_get_cached")
"""Functions that wait for XLA's compiler, in different versions."""
_MOST_WRAPPERS = 8


def public_call(code: CodeType) -> str | None:
    """Return the name under which a program calls a function of JAX; None for any other function.

    Nothing is imported, and no attribute of a module is made.

    >>> import jax
    >>> public_call(jax.block_until_ready.__code__)
    'jax.block_until_ready'
    """
    name = code.co_name
    for module in _MODULES:
        if _is_code_of(vars(sys.modules.get(module, object)).get(name), code):
            return f"{module}.{name}"
    if code.co_qualname.startswith("ArrayImpl."):
        return f"jax.Array.{name}"
    return "XLA's compiler" if name in _COMPILATION and "jax" in code.co_filename else None


def _is_code_of(function: object, code: CodeType) -> bool:
    """Return whether a function, or one that it wraps, has this code."""
    for _ in range(_MOST_WRAPPERS):
        if function is None or getattr(function, "__code__", None) is code:
            return function is not None
        function = getattr(function, "__wrapped__", None)
    return False
