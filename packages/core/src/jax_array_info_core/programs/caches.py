"""Reports on the compile caches of live jitted functions, and ``clear_cache`` by function name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any, NamedTuple

from ..arrays.origins.origins import Described, UserLines, code_origin, described_for_user
from ..base.errors import FunctionNameError, UnsupportedValueError
from ..base.reading_lock import one_at_a_time
from ..base.text import printable
from ..compat.jitted import (
    CompiledPrograms,
    cache_entries,
    empty_cache,
    jitted_inside,
    jitted_types,
    live_jitted_functions,
)
from ..facts.reports.compiles import CompileCache, CompileCachesReport

Named = str | Callable[..., Any]


def compile_caches_report(clear: Named | Iterable[Named] = ()) -> CompileCachesReport:
    """Return the compile caches of the live jitted functions, those with the most entries first.

    The call compiles nothing, runs nothing and keeps nothing alive. The functions are found among the objects
    that Python's garbage collector tracks, which takes about 20 ms. Functions frozen by ``gc.freeze()`` are
    not found. Since JAX 0.8, the executables of ``jax.pmap`` are counted with those of JAX's own functions,
    or among the executables without a live function.

    >>> import jax, jax.numpy as jnp
    >>> @jax.jit
    ... def twice(x):
    ...     return 2 * x
    >>> [twice(jnp.zeros(size)).shape for size in (1, 2)]
    [(1,), (2,)]
    >>> [cache.entries for cache in compile_caches_report().functions if cache.name == "twice"]
    [2]

    Args:
        clear: Functions whose caches are cleared first, with JAX's ``clear_cache()``: a jitted function or
            method, a name with or without its class, or several of these. A name clears all functions with
            that name. Their next call traces and compiles again.

    Raises:
        FunctionNameError: (a LookupError) If no live function outside JAX has that name. No cache is
            cleared.
        UnsupportedValueError: (a ValueError) If an entry of ``clear`` is neither a name nor a jitted
            function. No cache is cleared.
    """
    chosen = _several(clear)
    # Raise outside the helpers: a kept traceback would keep the functions in their variables alive.
    with one_at_a_time():
        problem = _clear(chosen)
        if problem is None:
            return _report(_live_functions())
    raise problem


def _several(clear: Named | Iterable[Named]) -> Sequence[Named]:
    if isinstance(clear, str | bytes) or callable(clear) or not isinstance(clear, Iterable):
        return [clear]
    return list(clear)


class _Found(NamedTuple):
    """A live jitted function."""

    function: Any
    described: Described


def _live_functions() -> list[_Found]:
    is_hidden = UserLines().is_hidden
    return [_Found(function, described_for_user(function, is_hidden)) for function in live_jitted_functions()]


def _report(live: Sequence[_Found]) -> CompileCachesReport:
    programs = CompiledPrograms()
    of_jax = [cache.function for cache in live if cache.described.is_jax_own]
    users = [
        CompileCache(
            name=cache.described.name,
            origin=None if cache.described.code is None else code_origin(cache.described.code),
            entries=cache_entries(cache.function),
            compilations=programs.count_of([cache.function]),
        )
        for cache in live
        if not cache.described.is_jax_own
    ]
    return CompileCachesReport(
        functions=tuple(sorted(users, key=_most_first)),
        jax_function_count=len(of_jax),
        jax_entries=sum(cache_entries(function) or 0 for function in of_jax),
        jax_compilations=programs.count_of(of_jax),
        unowned_executables=programs.count_of_others(cache.function for cache in live),
    )


def _most_first(cache: CompileCache) -> tuple[Any, ...]:
    place = (cache.origin.file, cache.origin.line) if cache.origin else ("", 0)
    return (-(cache.entries or 0), -(cache.compilations or 0), cache.name, place)


def _clear(chosen: Sequence[Named]) -> FunctionNameError | UnsupportedValueError | None:
    """Clear the caches of some functions, or return an error and clear none."""
    live = _live_functions() if any(isinstance(name, str) for name in chosen) else []
    users = [user for user in live if not user.described.is_jax_own]
    functions: list[Any] = []
    for wanted in chosen:
        wanted = _unbound(wanted)
        if isinstance(wanted, str):
            named = [user.function for user in users if wanted in (user.described.name, user.described.plain)]
            if not named:
                return FunctionNameError(_unknown(wanted, [user.described.name for user in users]))
            functions += named
        elif type(wanted) in jitted_types():
            functions.append(wanted)
        else:
            return UnsupportedValueError(f"expected a jitted function or its name, got {type(wanted)}")
    for function in functions:
        empty_cache(function)
    return None


def _unbound(function: Any) -> Any:
    """Return the jitted function behind a bound method or a wrapper such as that of ``report_on_oom``."""
    while type(function) not in jitted_types():
        inner = function.__func__ if isinstance(function, MethodType) else jitted_inside(function)
        inner = getattr(function, "__wrapped__", None) if inner is None else inner
        if inner is None or inner is function:
            break
        function = inner
    return function


def _unknown(name: str, names: Sequence[str]) -> str:
    similar = difflib.get_close_matches(name, sorted(set(names)), n=3)
    hint = f": did you mean {' or '.join(map(printable, similar))}?" if similar else ""
    return f"no live jitted function is named {printable(name) or repr(name)}{hint}"
