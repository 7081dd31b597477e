"""Live jitted functions and their compiled programs."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import weakref
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from .private import private
from .processes import has_backends
from .referents import referents


@functools.cache
def jitted_types() -> tuple[type, ...]:
    """Return the types of functions returned by ``jax.jit`` and, before JAX 0.8, by ``jax.pmap``."""
    import jax

    types = type(jax.jit(len)), type(jax.pmap(len))
    # Since JAX 0.8, pmap returns a plain function that calls a jitted one.
    return tuple(cls for cls in types if cls is not FunctionType)


def live_jitted_functions() -> list[Any]:
    """Return all live jitted functions, from Python's garbage collector.

    Each refers to its type. One C call collects them, so no other thread runs meanwhile: CPython cannot
    finish a tuple that another thread is building while a list of objects refers to it.
    """
    found: list[Any] = []
    for cls in jitted_types():
        instances = filter(cls.__instancecheck__, itertools.chain.from_iterable(map(gc.get_referrers, [cls])))
        found.extend(instances)
    return found


def is_pmapped(function: Any) -> bool:
    """Return whether a function was returned by ``jax.pmap``; since JAX 0.8 this is always False."""
    return type(function) in jitted_types()[1:]


def cache_entries(function: Any) -> int | None:
    """Return the number of entries in a jitted function's call cache; None if it is not available."""
    try:
        size = function._cache_size
        return int(size() if callable(size) else size)
    except (AttributeError, TypeError):
        return None


def empty_cache(function: Any) -> None:
    """Clear the caches of a jitted function. Up to JAX 0.7, the method of pmap has another name."""
    (function._cache_clear if is_pmapped(function) else function.clear_cache)()


class CompiledPrograms:
    """Live executables by jitted function.

    JAX caches traced programs by function, with weak keys, and lowered programs by traced program. Since
    JAX 0.6, a lowered program has its executable. The cache contents are read through Python's garbage
    collector: a lookup through JAX could trace a function and would change the eviction order.
    """

    def __init__(self) -> None:
        # A reference to each executable keeps its id from being reused.
        self._alive = _live_executables()
        self._by_function: dict[int, dict[int, Any]] | None
        try:
            self._by_function = _executables_by_function()
        except (ImportError, AttributeError, TypeError, LookupError):
            self._by_function = None

    def count_of(self, functions: Iterable[Any]) -> int | None:
        """Return the number of programs of some functions; None where JAX does not record it."""
        found = self._of(functions)
        return None if found is None else len(found)

    def count_of_others(self, functions: Iterable[Any]) -> int | None:
        """Return the number of programs outside some functions; None where JAX does not record it."""
        found = self._of(functions)
        if found is None or self._alive is None:
            return None
        return sum(id(executable) not in found for executable in self._alive)

    def _of(self, functions: Iterable[Any]) -> dict[int, Any] | None:
        if self._by_function is None:
            return None
        found: dict[int, Any] = {}
        for function in functions:
            if is_pmapped(function):
                return None
            found.update(self._by_function.get(id(function.__wrapped__), {}))
        return found


def _live_executables() -> list[Any] | None:
    """Return the live executables of all backends; None where JAX does not list them."""
    if not has_backends():
        return []
    try:
        backends = private("xla_bridge").backends().values()
        return [executable for backend in backends for executable in backend.live_executables()]
    except (ImportError, AttributeError, RuntimeError):
        return None


def _executables_by_function() -> dict[int, dict[int, Any]]:
    """Return the executables of each jitted function, by the function's id and the executables' ids.

    Raises:
        ImportError, AttributeError, TypeError, LookupError: this version of JAX has other caches.
    """
    computations = computations_by_program()
    found: dict[int, dict[int, Any]] = {}
    for function, parts in traced_by_function():
        of_function = found.setdefault(id(function), {})
        for part in parts:
            executables = [one._executable.xla_executable for one in computations.get(id(part), ())]
            of_function.update((id(one), one) for one in executables)
    return found


def computations_by_program() -> dict[int, list[Any]]:
    """Return the lowered programs that have an executable, by the id of the traced program.

    Raises:
        ImportError, AttributeError, TypeError: this version of JAX has other caches.
    """
    pjit = private("pjit")
    lowered = getattr(pjit, "_pjit_lower_cached", None) or pjit._pjit_lower  # _pjit_lower_cached: JAX 0.6
    return {
        id(program): [part for part in parts if getattr(part, "_executable", None) is not None]
        for program, parts in entries_by_key(lowered)
    }


def traced_by_function() -> Iterator[tuple[Any, list[Any]]]:
    """Yield each traced function with the cached results of its traces: jaxprs and other objects."""
    pjit = private("pjit")
    if hasattr(pjit, "_create_pjit_jaxpr"):  # up to JAX 0.8
        by_function = inspect.getclosurevars(pjit._create_pjit_jaxpr).nonlocals["fun_caches"]
        # Copied in one step, as other threads may trace. No key's __hash__ is called.
        for reference, results in list(by_function.data.items()):
            yield reference(), [part for result, *_ in list(results.values()) for part in result]
    else:
        for function, parts in entries_by_key(private("interpreters.partial_eval").trace_to_jaxpr):
            # The result of a trace is a tuple. Some of its arguments are tuples too.
            yield function, [piece for part in parts if isinstance(part, tuple) for piece in part]


def entries_by_key(cache: Any) -> list[tuple[Any, list[Any]]]:
    """Return each live key of a cache with weak keys, with all objects that its entries refer to.

    Raises:
        TypeError: If the object is not such a cache, or hides its keys.
    """
    if not hasattr(cache, "cache_keys"):
        raise TypeError(f"expected a cache with weak keys, got {type(cache)}")
    entries: list[tuple[Any, list[Any]]] = []
    for part in referents(cache):
        if type(part) is weakref.ReferenceType:
            entries.append((part(), []))
        elif entries:
            entries[-1][1].append(part)
    return [(key, parts) for key, parts in entries if key is not None]
