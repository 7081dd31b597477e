"""The report on the compilations in a block of code."""

from __future__ import annotations

from dataclasses import dataclass

from ..notebooks import Displayed
from .origin import Origin


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
    what differs from a call in JAX's caches, or ``first in the block``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationsReport(Displayed):
    """Compilations in a ``watch_compiles`` block."""

    compilations: tuple[Compilation, ...] = ()
    """Compilations of the watched functions, in order."""

    cache_hits: tuple[Compilation, ...] = ()
    """Programs that were loaded from JAX's persistent compilation cache instead; ``seconds`` is the time of
    the load."""

    jax_count: int = 0
    """Number of compilations of JAX's own functions, such as ``convert_element_type``."""

    jax_seconds: float = 0.0
    """Their duration."""

    other_count: int = 0
    """Number of compilations of functions that are not watched, if functions were named."""

    @property
    def count(self) -> int:
        """Number of compilations of the watched functions."""
        return len(self.compilations)

    @property
    def seconds(self) -> float:
        """Duration of the compilations of the watched functions."""
        return sum(one.seconds for one in self.compilations)
