"""Reports on compiled programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..notebooks import Displayed
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """Compile cache of one jitted function."""

    name: str
    """Qualified name of the function, such as ``Model.step``, ``partial(step)`` or ``pmap(step)``."""

    origin: Origin | None
    """Line of the function's definition; None for functions that are not written in Python."""

    entries: int | None
    """Number of entries in the function's call cache, one per combination of argument shapes, dtypes,
    weak types, shardings and static arguments. Several entries can share an executable. None if this
    version of JAX does not provide it."""

    compilations: int | None
    """Number of distinct executables in memory, over all ``jax.jit`` wrappers of the function. None
    for ``jax.pmap``, or if this version of JAX does not provide it."""


def total_entries(caches: Iterable[CompileCache]) -> int:
    """Return the total number of entries of several call caches; unknown numbers count as 0."""
    return sum(cache.entries or 0 for cache in caches)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCachesReport(Displayed):
    """Compile caches of all live jitted functions."""

    functions: tuple[CompileCache, ...]
    """Jitted functions outside JAX, those with the most entries first."""

    jax_function_count: int
    """Number of live jitted functions of JAX itself."""

    jax_entries: int
    """Number of entries in the call caches of JAX's own functions."""

    jax_compilations: int | None
    """Number of executables of JAX's own functions in memory. None if this version of JAX does not provide
    it."""

    unowned_executables: int | None
    """Number of executables in memory that belong to no live jitted function: those of functions that
    no longer exist, those of transformed functions such as ``grad(jitted)``, and those compiled ahead of
    time. None if this version of JAX does not provide it."""
