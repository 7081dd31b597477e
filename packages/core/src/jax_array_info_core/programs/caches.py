"""The jitted functions that are alive → CompileCachesReport; and emptying their caches."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any, NamedTuple

from .. import compat
from ..errors import FunctionNameError, UnsupportedValueError
from ..origins.function_names import Described, described
from ..origins.origins import JAX_MODULES, code_origin, files_of
from ..reading_lock import one_at_a_time
from ..reports.programs import CompileCache, CompileCachesReport
from ..text import printable

Named = str | Callable[..., Any]


def compile_caches_report(clear: Named | Iterable[Named] = ()) -> CompileCachesReport:
    """Return what JAX keeps for the jitted functions that are alive, the most entries first.

    Nothing is compiled, run or kept alive. Functions are found among the objects that Python's garbage
    collector knows, which takes some 20 ms; those that ``gc.freeze`` has put aside are not. What
    ``jax.pmap`` compiles is from jax 0.8 on JAX's own, or of no live function.

    Args:
        clear: The functions whose caches are emptied before, by JAX's ``clear_cache()``: a jitted
            function or method, a name with or without what it is in, or several of these. All functions of a
            name are emptied. What they are called with next is traced and compiled anew.

    Raises:
        FunctionNameError: (a LookupError) no live function of the user's has such a name; nothing has
            been emptied then.
        UnsupportedValueError: (a ValueError) one is neither a name nor a jitted function.
    """
    chosen = _several(clear)
    # Who raises holds no function that was found: a traceback that is kept would keep them alive.
    with one_at_a_time():
        problem = _empty(chosen)
        if problem is None:
            return _report(_live_functions())
    raise problem


def _several(clear: Named | Iterable[Named]) -> Sequence[Named]:
    if isinstance(clear, str | bytes) or callable(clear) or not isinstance(clear, Iterable):
        return [clear]
    return list(clear)


class _Found(NamedTuple):
    """A jitted function that is alive."""

    function: Any
    described: Described


def _live_functions() -> list[_Found]:
    is_jax_own = functools.cache(files_of(JAX_MODULES))
    return [_Found(function, described(function, is_jax_own)) for function in compat.live_jitted_functions()]


def _report(found: Sequence[_Found]) -> CompileCachesReport:
    programs = compat.CompiledPrograms()
    own = [one.function for one in found if one.described.is_jax_own]
    users = [
        CompileCache(
            name=one.described.name,
            origin=None if one.described.code is None else code_origin(one.described.code),
            entries=compat.cache_entries(one.function),
            compilations=programs.count_of([one.function]),
        )
        for one in found
        if not one.described.is_jax_own
    ]
    return CompileCachesReport(
        functions=tuple(sorted(users, key=_most_first)),
        jax_function_count=len(own),
        jax_entries=sum(compat.cache_entries(function) or 0 for function in own),
        jax_compilations=programs.count_of(own),
        unowned_executables=programs.count_of_no(one.function for one in found),
    )


def _most_first(cache: CompileCache) -> tuple[Any, ...]:
    place = (cache.origin.file, cache.origin.line) if cache.origin else ("", 0)
    return (-(cache.entries or 0), -(cache.compilations or 0), cache.name, place)


def _empty(chosen: Sequence[Named]) -> FunctionNameError | UnsupportedValueError | None:
    """Empty the caches of some functions, or return why that cannot be done."""
    found = _live_functions() if any(isinstance(one, str) for one in chosen) else []
    users = [one for one in found if not one.described.is_jax_own]
    functions: list[Any] = []
    for one in chosen:
        one = _unbound(one)
        if isinstance(one, str):
            named = [user.function for user in users if one in (user.described.name, user.described.plain)]
            if not named:
                return FunctionNameError(_unknown(one, [user.described.name for user in users]))
            functions += named
        elif type(one) in compat.jitted_kinds():
            functions.append(one)
        else:
            return UnsupportedValueError(f"expected a jitted function or its name, got {type(one)}")
    for function in functions:
        compat.empty_cache(function)
    return None


def _unbound(one: Any) -> Any:
    """Return the jitted function of a bound method, or of one that ``report_on_oom`` decorates."""
    while type(one) not in compat.jitted_kinds():
        inner = one.__func__ if isinstance(one, MethodType) else getattr(one, "__wrapped__", None)
        if inner is None or inner is one:
            break
        one = inner
    return one


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, sorted(set(names)), n=3)
    meant = f": did you mean {' or '.join(map(printable, near))}?" if near else ""
    return f"no live jitted function is named {printable(name) or 'an empty name'}{meant}"
