"""Reports on compiled programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """What JAX keeps for one jitted function."""

    name: str
    """Name of the function, with what it is in: ``Model.step``, ``partial(step)``, ``pmap(step)``."""

    origin: Origin | None
    """Where it is defined; None for what is not written in Python."""

    entries: int | None
    """Entries of its call cache, one for each kind of arguments that it was called with; None where
    this jax does not tell. Several entries may lead to the same compiled program."""

    compilations: int | None
    """How many different compiled programs of the function are alive, whatever jit had them compiled;
    None where this jax does not tell."""


def total_entries(caches: Iterable[CompileCache]) -> int:
    """Return the entries of several call caches together, of those that are known."""
    return sum(cache.entries or 0 for cache in caches)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCachesReport:
    """What JAX keeps for all jitted functions that are alive."""

    functions: tuple[CompileCache, ...]
    """The user's and those of other libraries than JAX, the most entries first."""

    jax_function_count: int
    """How many jitted functions are JAX's own."""

    jax_entries: int
    """Entries of the call caches of these, together."""

    jax_compilations: int | None
    """How many compiled programs of these are alive; None where this jax does not tell."""

    unowned_executables: int | None
    """Compiled programs that are alive though no jitted function has them: those of functions that are
    gone, of transformed ones such as ``grad(jitted)``, and what a program has compiled by hand. None
    where this jax does not tell."""
