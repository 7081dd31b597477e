"""Jitted functions that are alive, and what is compiled for them."""

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
def jitted_kinds() -> tuple[type, ...]:
    """Return the classes of what ``jax.jit`` returns, and ``jax.pmap`` where that has one of its own."""
    import jax

    kinds = type(jax.jit(len)), type(jax.pmap(len))
    # From jax 0.8 on, pmap returns a plain function, and jits within.
    return tuple(kind for kind in kinds if kind is not FunctionType)


def live_jitted_functions() -> list[Any]:
    """Return all jitted functions that are alive, as Python's garbage collector finds them.

    Each refers to its class. They are found in one call that runs no Python, so that no other thread
    runs meanwhile: a tuple that one is making could not be finished while a list of objects held it.
    """
    found: list[Any] = []
    for kind in jitted_kinds():
        of_kind = filter(kind.__instancecheck__, itertools.chain.from_iterable(map(gc.get_referrers, [kind])))
        found.extend(of_kind)
    return found


def is_pmapped(function: Any) -> bool:
    """Return whether one of these is what ``jax.pmap`` returns."""
    return type(function) in jitted_kinds()[1:]


def cache_entries(function: Any) -> int | None:
    """Return the entries of a jitted function's call cache, None where it does not tell."""
    try:
        size = function._cache_size
        return int(size() if callable(size) else size)
    except (AttributeError, TypeError):
        return None


def empty_cache(function: Any) -> None:
    """Empty the caches of a jitted function: pmap up to jax 0.7 has another name for that."""
    (function._cache_clear if is_pmapped(function) else function.clear_cache)()


class CompiledPrograms:
    """The compiled programs that are alive, and which jitted functions have them.

    JAX keeps what it has traced by the function, weakly, and what it has lowered by that. From jax 0.6
    on, what is lowered has the program. What the caches hold is read from Python's garbage collector:
    asking them could trace, and would change the order in which they forget.
    """

    def __init__(self) -> None:
        # Kept, so that ids stay theirs.
        self._alive = _live_executables()
        self._by_function: dict[int, dict[int, Any]] | None
        try:
            self._by_function = _executables_by_function()
        except (ImportError, AttributeError, TypeError, LookupError):
            self._by_function = None

    def count_of(self, functions: Iterable[Any]) -> int | None:
        """Return how many programs some functions have, None where this jax does not tell."""
        found = self._of(functions)
        return None if found is None else len(found)

    def count_of_no(self, functions: Iterable[Any]) -> int | None:
        """Return how many programs none of some functions has, None where this jax does not tell."""
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
    """Return the executables of all backends, None where this jax does not list them."""
    if not has_backends():
        return []
    try:
        backends = private("xla_bridge").backends().values()
        return [executable for backend in backends for executable in backend.live_executables()]
    except (ImportError, AttributeError, RuntimeError):
        return None


def _executables_by_function() -> dict[int, dict[int, Any]]:
    """Return the executables of each function under jit, by its id and theirs.

    Raises:
        ImportError, AttributeError, TypeError, LookupError: jax does not keep them as it is known.
    """
    pjit = private("pjit")
    lowered = getattr(pjit, "_pjit_lower_cached", None) or pjit._pjit_lower  # the first: jax 0.6
    executables: dict[int, list[Any]] = {}
    for program, parts in _entries_by_key(lowered):
        compiled = (getattr(part, "_executable", None) for part in parts)
        executables[id(program)] = [one.xla_executable for one in compiled if one is not None]
    found: dict[int, dict[int, Any]] = {}
    for function, parts in _traced_by_function(pjit):
        of_function = found.setdefault(id(function), {})
        of_function.update((id(one), one) for part in parts for one in executables.get(id(part), ()))
    return found


def _traced_by_function(pjit: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield functions, and what was kept of tracing them, jaxprs and more."""
    if hasattr(pjit, "_create_pjit_jaxpr"):  # up to jax 0.8
        by_function = inspect.getclosurevars(pjit._create_pjit_jaxpr).nonlocals["fun_caches"]
        # Copied at once, as other threads may trace; no key is asked for its hash.
        for reference, results in list(by_function.data.items()):
            yield reference(), [part for result, *_ in list(results.values()) for part in result]
    else:
        for function, parts in _entries_by_key(private("interpreters.partial_eval").trace_to_jaxpr):
            # The result is a tuple, and so are some of what it was traced for.
            yield function, [piece for part in parts if isinstance(part, tuple) for piece in part]


def _entries_by_key(cache: Any) -> list[tuple[Any, list[Any]]]:
    """Return each living key of a cache with weak keys, and all that its entries refer to.

    Raises:
        TypeError: it is no such cache, or it does not tell.
    """
    if not hasattr(cache, "cache_keys"):
        raise TypeError(f"no cache with weak keys: {type(cache)}")
    entries: list[tuple[Any, list[Any]]] = []
    for part in referents(cache):
        if type(part) is weakref.ReferenceType:
            entries.append((part(), []))
        elif entries:
            entries[-1][1].append(part)
    return [(key, parts) for key, parts in entries if key is not None]
