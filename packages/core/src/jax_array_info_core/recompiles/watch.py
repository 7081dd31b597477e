"""A watch for the compilations in a block of code."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Self

from ..compat.compile_events import CompileEvent, add_compile_listener, remove_compile_listener
from ..compat.compiled_calls import CompiledCall
from ..errors import UnsupportedValueError
from ..origins.function_names import code_of, described_inside, wrapped_functions
from ..origins.origins import JAX_MODULES, code_origin, files_of, hidden_files, innermost
from ..reports.compilations import Compilation, CompilationsReport
from ..reports.origin import Origin
from ..text import plain_text
from .reasons import UNREADABLE, reason_of
from .serials import Serials
from .signatures import Signature, signature_of


def watch_compiles(*functions: Callable[..., Any]) -> CompileWatch:
    """Return a watch for the functions that JAX compiles in a ``with`` block, and the reason of each compilation.

    The reason is what differs from the nearest earlier call that was compiled in the block: a shape, a dtype,
    a weak type, a sharding, a commitment, a static argument, the tree of an argument, a setting of JAX, the
    mesh in effect, or the function object itself. Calls that find their program in JAX's caches cost nothing
    and are not seen. Compilations of all threads are recorded.

    >>> import jax, jax.numpy as jnp
    >>> @jax.jit
    ... def double(x):
    ...     return 2 * x
    >>> batches = [jnp.zeros(size) for size in (3, 3, 4)]
    >>> with watch_compiles(double) as watch:
    ...     outputs = [double(batch) for batch in batches]
    >>> watch.count
    2
    >>> watch.compilations[1].reason
    'x: shape (3,) became (4,)'

    Args:
        functions: Functions to watch: jitted functions, methods, or functions that are jitted later, possibly
            through a partial or a transformation. If none is given, all functions outside JAX are watched.

    Raises:
        UnsupportedValueError: (a ValueError) If one of them is not a function.
    """
    return CompileWatch(*functions)


class _Target(NamedTuple):
    """A function to watch, without a reference that keeps it alive."""

    layers: tuple[weakref.ReferenceType[Any], ...]
    sources: frozenset[tuple[str, str]]
    """Name and file of the functions."""


class _Seen:
    """A compilation. Its reason is computed when it is asked for."""

    def __init__(
        self, name: str, definition: Origin | None, origin: Origin | None, event: CompileEvent
    ) -> None:
        self.name, self.definition, self.origin = name, definition, origin
        self.seconds, self.is_cache_hit = float(event.seconds), event.is_cache_hit
        self.signature: Signature | None = None
        self.reason: str | None = None


class CompileWatch:
    """Watch for compilations. ``watch_compiles`` returns it.

    Its results can be read inside the block and after it. Entering it again starts over. It holds no array
    and keeps no function alive.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        for function in functions:
            if not callable(function):
                raise UnsupportedValueError(f"expected a function, got {type(function)}")
        self._targets = [_target(function) for function in functions]
        self._is_jax_own: Callable[[str], bool] = lambda file: False
        self._is_hidden: Callable[[str], bool] = lambda file: False
        self._start()

    def _start(self) -> None:
        self._serials = Serials()
        self._seen: list[_Seen] = []
        self._names: dict[tuple[str, str], tuple[str, Origin | None]] = {}
        self._jax_seconds: list[float] = []
        self._others: list[None] = []

    def __enter__(self) -> Self:
        self._is_jax_own = functools.cache(files_of(JAX_MODULES))
        self._is_hidden = hidden_files()
        self._start()
        remove_compile_listener(self._add)
        add_compile_listener(self._add)
        return self

    def __exit__(self, *_: object) -> None:
        remove_compile_listener(self._add)

    @property
    def report(self) -> CompilationsReport:
        """The compilations so far."""
        seen = list(self._seen)
        earlier: dict[Hashable, list[Signature]] = {}
        for one in seen:
            if one.signature is None:
                one.reason = UNREADABLE
                continue
            before = earlier.setdefault((one.signature.kind, one.signature.group), [])
            if one.reason is None:
                one.reason = reason_of(one.signature, before)
            before.append(one.signature)
        rows = [
            Compilation(
                function=one.name,
                definition=one.definition,
                origin=one.origin,
                seconds=one.seconds,
                reason=one.reason or UNREADABLE,
            )
            for one in seen
        ]
        return CompilationsReport(
            compilations=tuple(row for row, one in zip(rows, seen, strict=True) if not one.is_cache_hit),
            cache_hits=tuple(row for row, one in zip(rows, seen, strict=True) if one.is_cache_hit),
            jax_count=len(self._jax_seconds),
            jax_seconds=sum(self._jax_seconds),
            other_count=len(self._others),
        )

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """The compilations of the watched functions, in order."""
        return self.report.compilations

    @property
    def cache_hits(self) -> tuple[Compilation, ...]:
        """The programs that were loaded from the persistent compilation cache instead."""
        return self.report.cache_hits

    @property
    def count(self) -> int:
        """Number of compilations of the watched functions."""
        return sum(not one.is_cache_hit for one in list(self._seen))

    def _add(self, event: CompileEvent) -> None:
        """Record a compilation. This runs inside the user's call."""
        call = event.call
        named = self._named(call)
        if not self._is_watched(call, is_jax_own=named is None):
            if event.is_cache_hit:
                return
            if named is None:
                self._jax_seconds.append(float(event.seconds))
            else:
                self._others.append(None)
            return
        name, definition = named or (plain_text(getattr(call.function, "__name__", "?")), None)
        seen = _Seen(name, definition, innermost(event.lines, self._is_hidden), event)
        try:
            seen.signature = signature_of(call, self._serials)
        except Exception:
            # Reading the arguments may run code of the user's classes. The compilation still counts.
            seen.signature = None
        self._seen.append(seen)

    def _named(self, call: CompiledCall) -> tuple[str, Origin | None] | None:
        """Return the name and the definition of the function; None for a function of JAX itself."""
        if call.function is not None:
            found = described_inside(call.function, self._is_jax_own, is_pmapped=call.kind == "pmap")
            if not found.is_jax_own:
                definition = None if found.code is None else code_origin(found.code)
                if definition is not None:
                    self._names[found.plain, definition.file] = found.name, definition
                return found.name, definition
        if call.source is None or self._is_jax_own(call.source.file):
            return None
        name, file, line = call.source
        return self._names.get((name, file)) or (name, Origin(file=file, line=line, function=name))

    def _is_watched(self, call: CompiledCall, *, is_jax_own: bool) -> bool:
        if not self._targets:
            return not is_jax_own
        layers = [] if call.function is None else wrapped_functions(call.function)
        for target in self._targets:
            if any(reference() is layer for reference in target.layers for layer in layers):
                return True
            if call.function is None and call.source and call.source[:2] in target.sources:
                return True
        return False


def _target(function: Callable[..., Any]) -> _Target:
    layers: list[weakref.ReferenceType[Any]] = []
    sources = set()
    for layer in wrapped_functions(function):
        code = code_of(layer)
        if code is not None:
            sources.add((code.co_name, code.co_filename))
        try:
            layers.append(weakref.ref(layer))
        except TypeError:
            continue
    return _Target(tuple(layers), frozenset(sources))
