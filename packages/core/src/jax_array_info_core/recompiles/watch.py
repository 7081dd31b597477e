"""A watch for the compilations in a block of code."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Self

from .. import compat
from ..compat.compile_events import CompileEvent, add_compile_listener, remove_compile_listener
from ..compat.compiled_calls import CompiledCall
from ..errors import TrackerError, UnsupportedValueError
from ..origins.function_names import code_of, described_inside, wrapped_functions
from ..origins.origins import JAX_MODULES, code_origin, files_of, hidden_files, innermost
from ..reports.compilations import Compilation, CompilationsReport
from ..reports.origin import Origin
from ..text import plain_text
from .reasons import CALLED_BEFORE, FIRST, UNREADABLE, reason_of
from .serials import Serials
from .signatures import Signature, signature_of, static_functions


def watch_compiles(*functions: Callable[..., Any]) -> CompileWatch:
    """Return a watch for the compilations in a ``with`` block, with the reason of each.

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

    def has_entries(self) -> bool:
        """Return whether one of the jitted functions has been called before, and has not been cleared."""
        functions = (reference() for reference in self.layers)
        return any(compat.cache_entries(one) for one in functions if type(one) in compat.jitted_types())


class _Named(NamedTuple):
    """A compiled function."""

    name: str
    definition: Origin | None
    argument: Any = None
    """The function, if it was a static argument."""


class _Seen:
    """A compilation. Its reason is computed when it is asked for."""

    def __init__(self, named: _Named, origin: Origin | None, event: CompileEvent) -> None:
        self.name, self.definition, self.origin = named.name, named.definition, origin
        self.seconds, self.is_cache_hit = float(event.seconds), event.is_cache_hit
        self.signature: Signature | None = None
        self.reason: str | None = None
        self.was_called_before = False


class CompileWatch:
    """Watch for compilations. ``watch_compiles`` returns it.

    Its results can be read inside the block and after it. Entering it again after its block
    starts over; inside its block, or in another thread meanwhile, that raises ``TrackerError`` (a
    RuntimeError). It holds no array and keeps no function alive.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        for function in functions:
            if not callable(function):
                raise UnsupportedValueError(f"expected a function, got {type(function)}")
        self._targets = [_target(function) for function in functions]
        self._is_jax_own: Callable[[str], bool] = lambda file: False
        self._is_hidden: Callable[[str], bool] = lambda file: False
        self._entered = threading.Lock()
        """Held inside the block."""
        self._start()

    def _start(self) -> None:
        self._serials = Serials()
        self._seen: list[_Seen] = []
        self._names: dict[tuple[str, str], _Named] = {}
        self._jax_seconds: list[float] = []
        self._others: list[None] = []
        self._called_before: list[_Target] = []

    def __enter__(self) -> Self:
        if not self._entered.acquire(blocking=False):
            raise TrackerError(
                "the watch is inside its block already, and entering it would start over: "
                "make another one with `watch_compiles()`"
            )
        try:
            self._enter()
        except BaseException:
            self._entered.release()
            raise
        return self

    def _enter(self) -> None:
        self._is_jax_own = functools.cache(files_of(JAX_MODULES))
        self._is_hidden = hidden_files()
        self._start()
        self._called_before = [target for target in self._targets if target.has_entries()]
        add_compile_listener(self._add)

    def __exit__(self, *_: object) -> None:
        remove_compile_listener(self._add)
        self._entered.release()

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
                if one.was_called_before and one.reason == FIRST["call"]:
                    one.reason += CALLED_BEFORE
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
        is_watched, target = self._watching(call, is_jax_own=named is None)
        if not is_watched:
            if event.is_cache_hit:
                return
            if named is None:
                self._jax_seconds.append(float(event.seconds))
            else:
                self._others.append(None)
            return
        named = named or _Named(plain_text(getattr(call.function, "__name__", "?")), None)
        seen = _Seen(named, innermost(event.lines, self._is_hidden), event)
        seen.was_called_before = any(target is one for one in self._called_before)
        try:
            seen.signature = signature_of(call, self._serials, named.argument)
        except Exception:
            # Reading the arguments may run code of the user's classes. The compilation still counts.
            seen.signature = None
        self._seen.append(seen)

    def _named(self, call: CompiledCall) -> _Named | None:
        """Return the name and the definition of the function; None for a function of JAX itself."""
        if call.function is not None:
            # A library may wrap the user's function, or pass it as a static argument of its own.
            functions = [call.function, *static_functions(call)]
            for is_own in (self._is_hidden, self._is_jax_own):
                for function in functions:
                    found = described_inside(function, is_own, is_pmapped=call.kind == "pmap")
                    if found.is_jax_own:
                        continue
                    definition = None if found.code is None else code_origin(found.code)
                    argument = None if function is call.function else function
                    named = _Named(found.name, definition, argument)
                    if definition is not None:
                        self._names[found.plain, definition.file] = named._replace(argument=None)
                    return named
        if call.source is None or self._is_jax_own(call.source.file):
            return None
        name, file, line = call.source
        known = self._names.get((name, file))
        return known or _Named(name, Origin(file=file, line=line, function=name))

    def _watching(self, call: CompiledCall, *, is_jax_own: bool) -> tuple[bool, _Target | None]:
        """Return whether a function is watched, and the target that it matches if functions were named."""
        if not self._targets:
            return not is_jax_own, None
        functions = [] if call.function is None else [call.function, *static_functions(call)]
        layers = [layer for function in functions for layer in wrapped_functions(function)]
        for target in self._targets:
            if any(reference() is layer for reference in target.layers for layer in layers):
                return True, target
            if call.function is None and call.source and call.source[:2] in target.sources:
                return True, target
        return False, None


def _target(function: Callable[..., Any]) -> _Target:
    layers: list[weakref.ReferenceType[Any]] = []
    sources = set()
    for layer in _layers(function):
        code = code_of(layer)
        if code is not None:
            sources.add((code.co_name, code.co_filename))
        try:
            layers.append(weakref.ref(layer))
        except TypeError:
            continue
    return _Target(tuple(layers), frozenset(sources))


def _layers(function: Any) -> list[Any]:
    """Return a function and all that it wraps. Equinox gives the wrapped function as a property."""
    layers = wrapped_functions(function)
    if len(layers) > 1 and isinstance(layers[-1], property):
        inside = getattr(layers[-2], "__wrapped__", None)
        return [*layers[:-1], *([] if inside is None else wrapped_functions(inside))]
    return layers
