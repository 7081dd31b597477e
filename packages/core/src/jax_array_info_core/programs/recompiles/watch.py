"""A watch for the compilations in a block of code."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import signal
import threading
import traceback
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, Self

from ...arrays.origins.origins import (
    JAX_MODULES,
    UserLines,
    code_of,
    code_origin,
    described,
    files_of,
    wrapped_functions,
)
from ...arrays.paths import SlashNotation, key_text
from ...base.errors import CheckError, TrackerError, UnsupportedValueError
from ...base.grouping import by_key
from ...base.quantities import counted
from ...base.text import plain_text, printable
from ...compat.compiled_calls import (
    CompiledCall,
    CompileEvent,
    add_compile_listener,
    is_called_elsewhere,
    remove_compile_listener,
)
from ...compat.jitted import (
    STATES,
    cache_entries,
    jitted_types,
    live_jitted_functions,
    nnx_states,
    position_names,
)
from ...facts.reports.compiles import Compilation, CompilationsReport
from ...facts.reports.origin import Origin
from .reasons import COMPILED_BEFORE, FIRST, MOST_EARLIER, UNREADABLE, group_of, reason_of
from .signatures import Signature, functions_of, signature_of, tree_of
from .statics import Reader, Serials

MODULE = "equinox._jit"
DYNAMIC = ("dynamic_donate", "dynamic_nodonate")
"""The arguments with the arrays: by group, those of the first argument, of the rest and of the function."""


def with_user_paths(signature: Signature, call: CompiledCall, serials: Serials) -> Signature:
    """Return a signature with the paths of the user's arguments, for calls through Equinox and nnx."""
    if any(f"/{STATES}/0/" in path for path in signature.leaves):
        # Another version of nnx has other parts.
        with contextlib.suppress(Exception):
            return _with_nnx_paths(signature, call)
    if getattr(call.function, "__module__", None) == MODULE and call.kind == "call":
        # Another version of Equinox has other parts, and flattening runs code of the user's classes.
        with contextlib.suppress(Exception):
            return _with_user_paths(signature, call, serials)
    return signature


def _with_nnx_paths(signature: Signature, call: CompiledCall) -> Signature:
    """Return a signature with the keys of the variables of nnx objects, which nnx passes as a list."""
    states = f"/{STATES}/0/"
    groups = by_key((path.partition(states)[0], path) for path in signature.leaves if states in path)
    objects = nnx_states((call.args, call.kwargs))
    renamed: dict[str, str] = {}
    for (name, paths), keys in zip(groups.items(), (keys for keys in objects if keys), strict=True):
        for path, key in zip(paths, keys, strict=True):
            renamed[path] = "/".join([name, *map(key_text, key)])
    return signature._replace(
        leaves={renamed.get(path, path): leaf for path, leaf in signature.leaves.items()}
    )


def _with_user_paths(signature: Signature, call: CompiledCall, serials: Serials) -> Signature:
    import jax

    # Each group has the leaves that are no arrays, and the structure of all.
    function, first, remaining = call.args[2]
    numbered = {
        group: jax.tree_util.tree_unflatten(structure, range(len(leaves)))
        for group, (leaves, structure) in {"fun": function, "first": first, "rest": remaining}.items()
    }
    args, kwargs = numbered["rest"]
    values = [numbered["first"], *args][:-1]  # Equinox adds an argument.
    user_function = jax.tree_util.tree_unflatten(function[1], function[0])
    names = position_names(inspect.signature(user_function), len(values))
    groups = {
        "fun": ({"self": numbered["fun"]}, function[0]),
        "first": (dict(zip(names[:1], values[:1], strict=True)), first[0]),
        "rest": (
            dict(zip(names[1:], values[1:], strict=True)) | {key_text(key): kwargs[key] for key in kwargs},
            remaining[0],
        ),
    }
    leaves, statics, trees, reader = {}, {}, {}, Reader(serials)
    for group, (arguments, others) in groups.items():
        for name, value in arguments.items():
            trees[name] = tree_of(value, serials)
            flattened, _ = jax.tree_util.tree_flatten_with_path(value)
            paths = SlashNotation().children([keys for keys, _ in flattened])
            for inner, (keys, number) in zip(paths, flattened, strict=True):
                path = name + inner if keys else name
                given = (signature.leaves.get(f"{part}/{group}/{number}") for part in DYNAMIC)
                leaf = next(filter(None, given), None)
                if others[number] is not None:
                    statics[path] = reader.static(others[number])
                elif leaf is not None:
                    leaves[path] = leaf
    return signature._replace(leaves=leaves, statics=statics, trees=trees, keywords=())


_MOST_LINES = 20


def watch_compiles(*functions: Callable[..., Any], expect: int | None = None) -> CompileWatch:
    """Return a watch for the compilations in a ``with`` block, with the reason of each.

    The reason is what differs from the nearest earlier call that was compiled in the block: a shape, a dtype,
    a weak type, a sharding, a commitment, a static argument, the tree of an argument, a setting of JAX, the
    mesh in effect, or the function object itself. The first one in the block has nothing to be compared with;
    it says whether the function was compiled before the block. Calls that find their program in JAX's caches
    cost nothing and are not seen. Compilations of all threads are recorded.

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
    >>> with watch_compiles(double, expect=0):
    ...     output = double(batches[2])

    Args:
        functions: Functions to watch: jitted functions, methods, or functions that are jitted later, possibly
            through a partial or a transformation. If none is given, all functions outside JAX are watched.
        expect: Number of compilations that the block must have. Programs from the persistent compilation
            cache are not compilations.

    Raises:
        UnsupportedValueError: (a ValueError) If one of the functions is not a function, or ``expect`` is not
            a number of compilations.
        CheckError: (an AssertionError) At the end of the block, if ``expect`` is not the number of
            compilations. It lists each with its reason. An exception of the block itself is raised instead.
    """
    return CompileWatch(*functions, expect=expect)


class _Target(NamedTuple):
    """A function to watch, without a reference that keeps it alive."""

    layers: tuple[weakref.ReferenceType[Any], ...]
    sources: frozenset[tuple[str, str]]
    """Name and file of the functions."""


class _Named(NamedTuple):
    """A compiled function."""

    name: str
    definition: Origin | None
    argument: Any = None
    """The function, if it was a static argument."""


def watch_program(on_recompile: Callable[[Compilation], object]) -> CompileWatch:
    """Watch a whole program, as ``jai-cli run --recompiles`` does, and return the watch.

    Args:
        on_recompile: Function that is called with each recompilation at its end, inside the program's call.
            An error in it is suppressed.
    """
    watch = CompileWatch()
    watch._on_recompile = on_recompile
    return watch.__enter__()


class CompileWatch:
    """Watch for compilations. ``watch_compiles`` returns it.

    Its results can be read inside the block and after it. Entering it again after its block
    starts over; inside its block, or in another thread meanwhile, that raises ``TrackerError`` (a
    RuntimeError). It holds no array and keeps no function alive.
    """

    def __init__(self, *functions: Callable[..., Any], expect: int | None = None) -> None:
        if expect is not None and (type(expect) is not int or expect < 0):
            raise UnsupportedValueError(
                f"expect must be a number of compilations, such as 1, got {plain_text(expect, repr)}"
            )
        self._expected = expect
        for function in functions:
            if not callable(function):
                raise UnsupportedValueError(f"expected a function, got {type(function)}")
        self._targets = [_target(function) for function in functions]
        self._is_jax_own: Callable[[str], bool] = lambda file: False
        self._lines = UserLines()
        self._entered = threading.Lock()
        """Held inside the block."""
        self._reading = threading.RLock()
        """Held while a call is compared with earlier ones: a signal handler may compile meanwhile."""
        self._on_recompile: Callable[[Compilation], object] = lambda compilation: None
        self._start()

    def _start(self) -> None:
        self._serials = Serials()
        self._compiled: list[Compilation] = []
        self._loaded: list[Compilation] = []
        self._earlier: defaultdict[Hashable, deque[Signature]] = defaultdict(
            lambda: deque(maxlen=MOST_EARLIER)
        )
        """The last calls of each group."""
        self._numbers = Counter[Hashable]()
        """Number of programs so far, by group and code."""
        self._jitted: dict[int, tuple[weakref.ReferenceType[Any], bool]] = {}
        """The jitted functions from before the block, by the id of the function inside, and whether they had
        a program then."""
        self._names: dict[tuple[str, str], _Named] = {}
        self._jax_seconds: list[float] = []
        self._others: list[None] = []

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
        self._lines = UserLines()
        self._start()
        layers = [[reference() for reference in target.layers] for target in self._targets]
        jitted: list[list[Any]] = [
            [wrapper for wrapper in some if type(wrapper) in jitted_types()] for some in layers
        ]
        are_known = bool(jitted) and all(jitted)
        self._jitted = {
            id(wrapper.__wrapped__): (weakref.ref(wrapper), bool(cache_entries(wrapper)))
            for wrapper in (itertools.chain(*jitted) if are_known else live_jitted_functions())
        }
        add_compile_listener(self._add)

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        remove_compile_listener(self._add)
        self._entered.release()
        if error is None and self._expected not in (None, self.count):
            report = self.report()
            raise CheckError(_unexpected(self._expected, report), report)

    def report(self) -> CompilationsReport:
        """Return the compilations so far, inside the block or after it."""
        return CompilationsReport(
            compilations=tuple(self._compiled),
            cache_hits=tuple(self._loaded),
            jax_count=len(self._jax_seconds),
            jax_seconds=sum(self._jax_seconds),
            other_count=len(self._others),
        )

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """The compilations of the watched functions, in order."""
        return self.report().compilations

    @property
    def cache_hits(self) -> tuple[Compilation, ...]:
        """The programs that were loaded from the persistent compilation cache instead."""
        return self.report().cache_hits

    @property
    def count(self) -> int:
        """Number of compilations of the watched functions, first ones and recompilations."""
        return len(self._compiled)

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
        named = named or _Named(plain_text(getattr(call.function, "__name__", "?")), None)
        signature = None
        # Reading the arguments may run code of the user's classes. The compilation still counts.
        with _harmless():
            signature = with_user_paths(
                signature_of(call, self._serials, named.argument), call, self._serials
            )
        with self._reading:
            compilation = self._compared(event, named, signature)
            (self._loaded if event.is_cache_hit else self._compiled).append(compilation)
        if compilation.is_recompilation and not event.is_cache_hit:
            self._on_recompile(compilation)

    def _compared(self, event: CompileEvent, named: _Named, signature: Signature | None) -> Compilation:
        """Return a compilation with its reason, and keep its call for those that follow."""
        was_compiled_before = self._was_compiled_before(event.call, named)
        reason = UNREADABLE
        key: Hashable = named[:2]
        if signature is not None:
            group = group_of(signature)
            earlier, key = self._earlier[group], (group, signature.codes)
            was_compiled_before &= all(call.functions != signature.functions for call in earlier)
            with _harmless():
                first = FIRST[signature.kind] + COMPILED_BEFORE
                reason = first if was_compiled_before else reason_of(signature, earlier)
            earlier.append(signature)
        self._numbers[key] += 1
        return Compilation(
            function=named.name,
            definition=named.definition,
            origin=self._lines.origin(event.lines),
            seconds=float(event.seconds),
            reason=reason,
            was_compiled_before=was_compiled_before,
            number=self._numbers[key],
        )

    def _named(self, call: CompiledCall) -> _Named | None:
        """Return the name and the definition of the function; None for a function of JAX itself."""
        # A library may wrap the user's function, or pass it as a static argument of its own.
        for is_own, function in itertools.product(
            (self._lines.is_hidden, self._is_jax_own), functions_of(call)
        ):
            description = described(function, is_own, is_pmapped=call.kind == "pmap")
            if description.is_jax_own:
                continue
            definition = None if description.code is None else code_origin(description.code)
            named = _Named(description.name, definition, None if function is call.function else function)
            if definition is not None:
                self._names[description.plain, definition.file] = named._replace(argument=None)
            return named
        if call.source is None or self._is_jax_own(call.source.file):
            return None
        name, file, line = call.source
        return self._names.get((name, file)) or _Named(name, Origin(file=file, line=line, function=name))

    def _is_watched(self, call: CompiledCall, *, is_jax_own: bool) -> bool:
        """Return whether a function is one of the named functions or, without these, the user's."""
        if not self._targets:
            return not is_jax_own
        layers = [layer for function in functions_of(call) for layer in wrapped_functions(function)]
        return any(
            any(reference() is layer for reference in target.layers for layer in layers)
            or bool(call.function is None and call.source and call.source[:2] in target.sources)
            for target in self._targets
        )

    def _was_compiled_before(self, call: CompiledCall, named: _Named) -> bool:
        """Return whether the function had a program before the block, or has run one that is not this call's.

        A call that finds a program which ``lower().compile()`` or a report has compiled is not seen, but has
        an entry in the call cache by the next compilation, besides that of this call. All functions of a
        library may share one jitted function: then it is not known.
        """
        if call.kind not in ("call", "pmap") or named.argument is not None:
            return False
        reference, had_program = self._jitted.get(id(call.function), (lambda: None, False))
        jitted = reference()
        if jitted is None or jitted.__wrapped__ is not call.function:
            return False
        return had_program or ((cache_entries(jitted) or 0) > 1 and not is_called_elsewhere())


@contextlib.contextmanager
def _harmless() -> Iterator[None]:
    """Suppress what reading a call raises, even ``SystemExit``, but not Ctrl-C or signal handlers."""
    try:
        yield
    except Exception:
        return
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or _is_of_signal_handler(error):
            raise


def _is_of_signal_handler(error: BaseException) -> bool:
    """Return whether a handler of signals in Python raised an error, as to end the program on SIGTERM."""
    handlers = filter(callable, map(signal.getsignal, signal.valid_signals()))
    codes = {code_of(layer) for handler in handlers for layer in wrapped_functions(handler)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _unexpected(expected: int | None, report: CompilationsReport) -> str:
    """Return the message of a block with another number of compilations than expected."""
    notes = [(compilation, "") for compilation in report.compilations]
    notes += [(hit, "from the persistent compilation cache, not counted: ") for hit in report.cache_hits]
    lines = [
        f"{row.function}{f' at {row.origin}' if row.origin else ''}: {note}{row.reason}"
        for row, note in notes
    ]
    hidden = len(lines) - _MOST_LINES
    more = [f"and {hidden} more"] if hidden > 0 else []
    title = f"expected {counted(expected or 0, 'compilation', 'compilations')}, got {report.count}"
    return "\n".join(map(printable, [title, *lines[:_MOST_LINES], *more]))


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
    if len(layers) > 1 and issubclass(type(layers[-1]), property):
        inside = getattr(layers[-2], "__wrapped__", None)
        return [*layers[:-1], *([] if inside is None else wrapped_functions(inside))]
    return layers
