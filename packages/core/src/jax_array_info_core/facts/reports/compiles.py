"""Reports on compilations and their caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import ordinal_words, seconds_words
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCache:
    """Compile cache of one jitted function."""

    name: str
    """Qualified name of the function, such as ``Model.step``, ``partial(step)`` or ``pmap(step)``."""

    origin: Origin | None
    """Line of the function's definition; None for functions that are not written in Python."""

    entries: quantities.Size | None
    """Number of entries in the function's call cache, one per combination of argument shapes, dtypes,
    weak types, shardings and static arguments. Several entries can share an executable. None if this
    version of JAX does not provide it."""

    compilations: quantities.Size | None
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

    jax_function_count: quantities.Size
    """Number of live jitted functions of JAX itself."""

    jax_entries: quantities.Size
    """Number of entries in the call caches of JAX's own functions."""

    jax_compilations: quantities.Size | None
    """Number of executables of JAX's own functions in memory. None if this version of JAX does not provide
    it."""

    unowned_executables: quantities.Size | None
    """Number of executables in memory that belong to no live jitted function: those of functions that
    no longer exist, those of transformed functions such as ``grad(jitted)``, and those compiled ahead of
    time. None if this version of JAX does not provide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation of a function."""

    function: str
    """Qualified name of the function, as in ``CompileCache``."""

    definition: Origin | None
    """Line of the function's definition; None if it is not written in Python."""

    origin: Origin | None
    """Line of the call that compiled it; None if the call is not in the user's code."""

    seconds: float
    """Duration of the compilation by XLA."""

    reason: str
    """What differs from the nearest earlier call of the function in the block, by path. For the first one,
    ``first in the block``, or ``first in the block; compiled before it``."""

    was_compiled_before: bool = False
    """Whether the function had a program from before the block. Known of the first one in the block only."""

    number: quantities.Count | None = None
    """Number of the program among those of the function in the block, from 1, with those from the persistent
    compilation cache. The programs of a transformation, such as the two of ``grad``, and those of
    ``lower().compile()`` are counted apart. None in reports of earlier versions."""

    @property
    def is_recompilation(self) -> bool:
        """Whether the function had a program before."""
        return self.was_compiled_before or (self.number or 0) > 1


def recompilation_words(function: str, number: int | None, reason: str, place: str, seconds: float) -> str:
    """Return a recompilation in one line.

    >>> recompilation_words("step", 3, "x: shape (8,) became (7,)", "train.py:88", 41.2)
    'step compiled again (3rd, 41.2 s): x: shape (8,) became (7,), train.py:88'
    """
    ordinal = [ordinal_words(number)] if number and number > 1 else []
    took = ", ".join([*ordinal, seconds_words(seconds)])
    return ", ".join(filter(None, [f"{function} compiled again ({took}): {reason}", place]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationsReport(Displayed):
    """Compilations in a ``watch_compiles`` block."""

    compilations: tuple[Compilation, ...] = ()
    """Compilations of the watched functions, in order."""

    cache_hits: tuple[Compilation, ...] = ()
    """Programs that were loaded from JAX's persistent compilation cache instead; ``seconds`` is the time of
    the load."""

    jax_count: quantities.Size = 0
    """Number of compilations of JAX's own functions, such as ``convert_element_type``."""

    jax_seconds: float = 0.0
    """Their duration."""

    other_count: quantities.Size = 0
    """Number of compilations of functions that are not watched, if functions were named."""

    @property
    def count(self) -> int:
        """Number of compilations of the watched functions."""
        return len(self.compilations)

    @property
    def function_count(self) -> int:
        """Number of the functions that were compiled."""
        return len({_function(compilation) for compilation in self.compilations})

    @property
    def recompilations(self) -> tuple[Compilation, ...]:
        """The compilations of functions that had a program before."""
        seen: set[object] = set()
        repeated = []
        for compilation in self.compilations:
            if compilation.is_recompilation or (
                compilation.number is None and _function(compilation) in seen
            ):
                repeated.append(compilation)
            seen.add(_function(compilation))
        return tuple(repeated)

    @property
    def seconds(self) -> float:
        """Duration of the compilations of the watched functions."""
        return sum(compilation.seconds for compilation in self.compilations)


def _function(compilation: Compilation) -> object:
    return compilation.function, compilation.definition
