"""Compilations: the call that JAX is compiling, listeners for its end, and what is left of a refused one."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeVar

from ..base.text import plain_text
from . import private
from .jax_stack import (
    COMPILE,
    compiling,
    frames,
    is_failing,
    is_in_jax,
    keepalives,
    lowering_result,
    stacks_of_other_threads,
)
from .jitted import closed_over
from .shardings import describe_sharding, is_named

CACHE_MISS = "cache_miss"
"""The function that runs when a jitted or pmapped function is called with new arguments."""

JIT_VARIABLES = ("fun", "jit_info")
"""Its variables: the function inside ``jax.jit``, and the arguments of ``jax.jit``."""

TRANSFORMED_MISS = "call_impl_cache_miss"
"""The function that runs for a program that a transformation made from a jitted function."""

AHEAD_OF_TIME = ("stages.py", "compile")
"""The method ``Lowered.compile``."""

COMPILER_OPTIONS = "compiler_options"
"""Its variable for the options."""

PMAPPED = ("pmap.py", "wrapped", "infer_params")
"""Since JAX 0.8, the function that ``jax.pmap`` returns, and its variable for the user's function."""

PMAPPED_FUNCTIONS = ("f", "wrapped_fun")
"""The variables of that function with the user's function; in JAX 0.8, and since JAX 0.9."""

ARGUMENTS = "all_args_info"
"""The variable of the compiling function with the types and the names of the arguments."""

_WRAPPER = "traceback_util.py"

_MOST_FRAMES_BETWEEN = 4
"""Most frames between a call of pmap and the jitted function that it calls."""

Kind = Literal["call", "pmap", "transformed", "ahead of time", "unknown"]


class Source(NamedTuple):
    """Name and place of a function, as JAX records them with a program."""

    name: str
    file: str
    line: int


class CompiledCall(NamedTuple):
    """A call that is being compiled. It refers to the arguments themselves."""

    kind: Kind = "unknown"
    function: Any = None
    """The function inside ``jax.jit`` or ``jax.pmap``; None if it is not on the stack."""

    source: Source | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    options: Any = None
    """The arguments of ``jax.jit``: a named tuple of JAX, whose fields are private."""

    avals: Sequence[Any] = ()
    """Types of the program's flat arguments."""

    names: Sequence[str | None] = ()
    """Their names, such as ``params['w']``; empty where JAX does not record them."""

    shardings: Mapping[int, Any] = {}
    """Shardings of some of them, by position."""

    compiler_options: Mapping[str, str] = {}
    """The options of ``lower().compile()``, as text."""


def compiled_call(callers: Iterable[FrameType]) -> CompiledCall:
    """Return the call that is being compiled, given the frames that led to it, innermost first."""
    program = CompiledCall()
    frames = iter(callers)
    for frame in frames:
        name = frame.f_code.co_name
        if name not in (COMPILE, CACHE_MISS, TRANSFORMED_MISS, AHEAD_OF_TIME[1]) or not is_in_jax(frame):
            continue
        if name == COMPILE:
            program = _call_of_program(frame.f_locals)
        elif name == AHEAD_OF_TIME[1] and _file(frame) == AHEAD_OF_TIME[0]:
            options = frame.f_locals.get(COMPILER_OPTIONS) or {}
            texts = {plain_text(name): plain_text(value) for name, value in options.items()}
            return program._replace(kind="ahead of time", compiler_options=texts)
        elif name == TRANSFORMED_MISS:
            return _transformed(program, frame.f_locals, frames)
        elif name == CACHE_MISS:
            return _called(program, frame.f_locals, frames)
    return program


def is_called_elsewhere() -> bool:
    """Return whether another thread is in the call of a jitted function that looks for its program."""
    return any(
        frame.f_code.co_name == CACHE_MISS for _, stack in stacks_of_other_threads() for frame in stack
    )


def _file(frame: FrameType) -> str:
    return os.path.basename(frame.f_code.co_filename)


def _call_of_program(variables: Mapping[str, Any]) -> CompiledCall:
    """Return the facts that the compiling function has, given its variables."""
    arguments = variables.get(ARGUMENTS)
    debug_info = getattr(arguments, "debug_info", None) or variables.get("jaxpr_debug_info")
    avals = tuple(getattr(arguments, "in_avals", None) or ())
    names = tuple(getattr(debug_info, "arg_names", None) or ())
    kept = variables.get("kept_var_idx")
    shardings = variables.get("in_shardings")
    by_position = {}
    if kept is not None and isinstance(shardings, Sequence) and len(shardings) == len(kept):
        by_position = dict(zip(sorted(kept), shardings, strict=True))
    return CompiledCall(
        source=_source(debug_info),
        avals=avals,
        names=names if len(names) == len(avals) else (),
        shardings=by_position,
    )


def _source(debug_info: Any) -> Source | None:
    """Return the name and the place in a text such as ``step at train.py:12``."""
    text = getattr(debug_info, "func_src_info", None)
    return source_of_text(text) if isinstance(text, str) else None


def source_of_text(text: str) -> Source | None:
    """Return name, file and line of a text such as ``step at train.py:12``; None for other texts.

    >>> source_of_text("step at train.py:12")
    Source(name='step', file='train.py', line=12)
    """
    name, _, place = text.partition(" at ")
    file, _, line = place.rpartition(":")
    return Source(name, file, int(line)) if file and line.isdecimal() else None


_JAXPRS = ("ClosedJaxpr", "Jaxpr")


def traced_constants(thing: Any) -> tuple[str, Sequence[Any]] | None:
    """Return the function of a jaxpr as text, and the constants that it captured; None for other objects.

    The text is ``jit(step) at train.py:12``, with the transformation that traced the function.
    """
    cls = type(thing)
    if cls.__name__ not in _JAXPRS or not cls.__module__.startswith("jax."):
        return None
    info = getattr(getattr(thing, "jaxpr", thing), "debug_info", None)
    source = _source(info)
    constants = getattr(thing, "consts", None)
    if source is None or not isinstance(constants, list | tuple):
        return None
    traced_for = getattr(info, "traced_for", None) or "jit"
    return f"{traced_for}({source.name}) at {os.path.basename(source.file)}:{source.line}", constants


def _transformed(
    program: CompiledCall, variables: Mapping[str, Any], callers: Iterable[FrameType]
) -> CompiledCall:
    """Return a call of a jitted function under a transformation, such as grad or vmap.

    The backward pass runs after the call of the function; then the function is not on the stack.
    """
    name = variables.get("name")
    source = program.source or _traced_in(variables.get("jaxpr"), name)
    function = None
    for frame in callers:
        if frame.f_code.co_name == CACHE_MISS and is_in_jax(frame):
            inside = frame.f_locals.get(JIT_VARIABLES[0])
            if getattr(inside, "__name__", None) == name:
                function = inside
            break
    return program._replace(kind="transformed", function=function, source=source)


def _traced_in(jaxpr: Any, name: Any) -> Source | None:
    """Return a line of a traced function: JAX 0.4.38 does not record its first line."""
    for equation in getattr(jaxpr, "eqns", ()):
        traceback = getattr(equation.source_info, "traceback", None)
        for frame in getattr(traceback, "frames", ()):
            if frame.function_name.rpartition(".")[2] == name:
                return Source(str(name), frame.file_name, frame.line_num)
    return None


def _called(
    program: CompiledCall, variables: Mapping[str, Any], callers: Iterable[FrameType]
) -> CompiledCall:
    """Return a call of a jitted or a pmapped function."""
    call = program._replace(args=tuple(variables["args"]), kwargs=dict(variables["kwargs"]))
    function, options = map(variables.get, JIT_VARIABLES)
    if options is None:  # pmap, up to JAX 0.7
        prepared = getattr(variables.get("p"), "flat_fun", None)
        inside = function if function is not None else getattr(prepared, "f", None)
        return call._replace(kind="pmap", function=inside)
    file, name, variable = PMAPPED
    for frame in islice(callers, _MOST_FRAMES_BETWEEN):
        if _file(frame) == file and frame.f_code.co_name == name and is_in_jax(frame):
            inside = _pmapped(frame.f_locals.get(variable))
            return call._replace(
                kind="pmap",
                function=function if inside is None else inside,
                args=tuple(frame.f_locals["args"]),
                kwargs=dict(frame.f_locals["kwargs"]),
            )
        if _file(frame) != _WRAPPER:
            break
    return call._replace(kind="call", function=function, options=options)


def _pmapped(function: Any) -> Any:
    """Return the user's function that a function of ``jax.pmap`` refers to."""
    variables = closed_over(function)
    pmapped = next((variables[name] for name in PMAPPED_FUNCTIONS if name in variables), None)
    return getattr(pmapped, "f", pmapped)


LOWERED_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"

COMPILED_EVENT = "/jax/core/compile/backend_compile_duration"


class ModuleListener:
    """A listener that a lowered module keeps alive."""

    def lowered(self, module: Any) -> None:
        """Handle the end of the module's lowering."""

    def compiled(self, succeeded: bool) -> None:
        """Handle the end of the module's compilation."""


_L = TypeVar("_L", bound=ModuleListener)


def module_listener(module_context: Any, listener_class: type[_L]) -> _L:
    """Return a module's listener of a class, added if the module has none."""
    for keepalive in module_context.keepalives:
        if isinstance(keepalive, listener_class):
            return keepalive
    monitoring = private("monitoring")
    if _on_lowering_event not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_on_lowering_event)
    listener = listener_class()
    module_context.add_keepalive(listener)
    return listener


def compilations_are_heard() -> bool:
    """Return whether listeners hear of the end of every compilation.

    JAX 0.4 does not record failed ones, and programs can remove all listeners of JAX's events.
    """
    import jax

    return (
        jax.__version_info__ >= (0, 5)
        and _on_lowering_event in private("monitoring").get_event_duration_listeners()
    )


def _on_lowering_event(event: str, duration: float, **_: Any) -> None:
    """Find the lowering or compilation that ended on the stack, and notify its listeners."""
    if event == LOWERED_EVENT and (result := lowering_result()) is not None:
        for keepalive in result.keepalive or ():
            if isinstance(keepalive, ModuleListener):
                keepalive.lowered(result.module)
    elif event == COMPILED_EVENT and (frame := next(compiling(frames()), None)) is not None:
        # Since JAX 0.5 the event is also recorded when the compilation fails.
        succeeded = not is_failing(frame)
        for keepalive in keepalives(frame):
            if isinstance(keepalive, ModuleListener):
                keepalive.compiled(succeeded)


RETRIEVED_EVENT = "/jax/compilation_cache/cache_retrieval_time_sec"


class CompileEvent(NamedTuple):
    """The end of a compilation, in the thread that compiled."""

    seconds: float
    """Duration of the compilation, or of the load from the persistent cache."""

    is_cache_hit: bool
    """Whether the program came from the persistent compilation cache."""

    call: CompiledCall
    """The call that needed the program. It refers to the user's arrays: read it and drop it."""

    lines: list[tuple[str, int, str]]
    """File, line and function of each frame, innermost first."""


Listener = Callable[[CompileEvent], None]

_listeners: tuple[Listener, ...] = ()

_lock = threading.RLock()

_thread = threading.local()


def add_compile_listener(listener: Listener) -> None:
    """Call a function at the end of each compilation, in any thread. An error in it is suppressed."""
    global _listeners
    monitoring = private("monitoring")
    with _lock:
        if _on_event not in monitoring.get_event_duration_listeners():
            monitoring.register_event_duration_secs_listener(_on_event)
        _listeners = (*_listeners, listener)


def remove_compile_listener(listener: Listener) -> None:
    """Stop calling a function. The last one takes its event listener out of JAX."""
    global _listeners
    with _lock:
        _listeners = tuple(registered for registered in _listeners if registered != listener)
        if not _listeners:
            _unregister(private("monitoring"))


def _unregister(monitoring: Any) -> None:
    """Unregister the event listener; where that is not possible, it stays and does nothing."""
    # Another thread may be iterating over JAX's list: removing any but the last entry would make it skip the
    # listener after it.
    with contextlib.suppress(AttributeError, AssertionError, ValueError, IndexError):
        if monitoring.get_event_duration_listeners()[-1] is _on_event:
            unregister = (
                getattr(monitoring, "unregister_event_duration_listener", None)
                or monitoring._unregister_event_duration_listener_by_callback
            )  # up to JAX 0.8
            unregister(_on_event)


def _on_event(event: str, duration: float, **_: Any) -> None:
    """Notify the listeners of a compilation. JAX would end the user's call with an error raised here."""
    if event == RETRIEVED_EVENT:
        _thread.was_retrieved = True
    elif event == COMPILED_EVENT:
        was_retrieved = getattr(_thread, "was_retrieved", False)
        _thread.was_retrieved = False
        if _listeners:
            with contextlib.suppress(Exception):
                _notify(duration, was_retrieved)


def _notify(duration: float, was_retrieved: bool) -> None:
    # Since JAX 0.5 the event is also recorded when the compilation fails.
    frame = next(compiling(frames()), None)
    if frame is not None and is_failing(frame):
        return
    lines = [(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name) for frame in frames()]
    event = CompileEvent(duration, was_retrieved, compiled_call(frames()), lines)
    for listener in _listeners:
        with contextlib.suppress(Exception):
            listener(event)


_RECORD = "*.after_optimizations.hlo.pb"


def refused_program(lowered: Any) -> bytes | None:
    """Compile a program again that was refused, and return what XLA made of it; None if it is not known.

    It is a serialized ``HloProto``. XLA writes it to a temporary directory, which is removed.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    import tempfile

    import jax

    with (
        tempfile.TemporaryDirectory(prefix="jax-array-info-") as folder,
        private("config").persistent_cache_min_compile_time_secs(math.inf),
    ):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            lowered.compile(compiler_options={"xla_dump_to": folder, "xla_dump_hlo_as_proto": True})
        # The largest: small programs inside have their own.
        records = sorted((path.read_bytes() for path in Path(folder).glob(_RECORD)), key=len)
    return records[-1] if records else None


SHARDINGS = ("in_shardings", "out_shardings")

CHOSEN = {"donated arguments": "donate_arg", "static arguments": "static_arg"}
"""The options that choose arguments. JAX finds their names where the function has a signature."""

OPTIONS = ("keep_unused", "inline", "device", "backend")
"""The options that are kept as they are. A version of JAX may lack some of them."""

_LONGEST = 200


def jit_parameters(options: Any, function: Any) -> tuple[list[Parameter], frozenset[int], frozenset[str]]:
    """Return the parameters of a jitted function, and the positions and the names of the static ones."""
    signature = getattr(options, "fun_signature", None)
    if signature is None and inspect.isfunction(function):
        signature = inspect.signature(function)
    return (
        list(signature.parameters.values()) if isinstance(signature, inspect.Signature) else [],
        frozenset(getattr(options, "static_argnums", None) or ()),
        frozenset(getattr(options, "static_argnames", None) or ()),
    )


def jit_options(options: Any) -> dict[str, str]:
    """Return the other arguments of ``jax.jit`` as text, by name; empty where they are not recorded."""
    if options is None:
        return {}
    words = {name: plain_text(getattr(options, name, None)) for name in OPTIONS}
    for name, option in CHOSEN.items():
        names, numbers = (getattr(options, option + form, None) for form in ("names", "nums"))
        words[name] = ", ".join(map(plain_text, names or numbers or ()))
    for name in SHARDINGS:
        leaves = getattr(options, f"{name}_leaves", None) or ()
        texts = (
            str(describe_sharding(leaf, 0)) if is_named(leaf) else type(leaf).__name__ for leaf in leaves
        )
        words[name] = ", ".join(texts).replace("UnspecifiedValue", "unspecified")[:_LONGEST]
    compiler = getattr(options, "compiler_options_kvs", None) or ()
    words["compiler_options"] = plain_text(dict(compiler))[:_LONGEST]
    return words
