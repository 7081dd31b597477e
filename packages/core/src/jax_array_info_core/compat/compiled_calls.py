"""The call that JAX is compiling, from JAX's functions on the stack."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import Any, Literal, NamedTuple

from ..text import plain_text
from .jax_stack import COMPILE, is_in_jax
from .jitted import closed_over

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
    found = next((variables[name] for name in PMAPPED_FUNCTIONS if name in variables), None)
    return getattr(found, "f", found)
