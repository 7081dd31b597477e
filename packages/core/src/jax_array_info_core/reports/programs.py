"""Reports on compiled programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """Compile cache of one jitted function."""

    name: str
    """Qualified name of the function, such as ``Model.step``, ``partial(step)`` or ``pmap(step)``."""

    origin: Origin | None
    """Line of its definition; None for functions that are not written in Python."""

    entries: int | None
    """Number of entries in its call cache, one for each signature that it was called with (shapes, dtypes,
    shardings, static arguments). Several entries can share a compiled program. None where this version of
    JAX does not provide it."""

    compilations: int | None
    """Number of different compiled programs of the function in memory, counting every ``jax.jit`` of it. None
    where this version of JAX does not provide it."""


def total_entries(caches: Iterable[CompileCache]) -> int:
    """Return the total number of entries of several call caches; unknown numbers count as 0."""
    return sum(cache.entries or 0 for cache in caches)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCachesReport:
    """Compile caches of all live jitted functions."""

    functions: tuple[CompileCache, ...]
    """Jitted functions of the user and of libraries other than JAX, the most entries first."""

    jax_function_count: int
    """Number of live jitted functions of JAX itself."""

    jax_entries: int
    """Total number of entries in the call caches of JAX's own functions."""

    jax_compilations: int | None
    """Number of compiled programs of JAX's own functions in memory; None where this version of JAX does not
    provide it."""

    unowned_executables: int | None
    """Number of compiled programs in memory that belong to no live jitted function: those of deleted
    functions, of transformations such as ``grad(jitted)``, and those compiled ahead of time. None where
    this version of JAX does not provide it."""
