"""Signatures of compiled calls: all that decides whether JAX must compile, as plain values."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from inspect import Parameter
from types import FunctionType
from typing import Any, NamedTuple

from ..arrays.paths import key_text
from ..compat.compiled_calls import CompiledCall, Kind
from ..compat.jax_stack import ContextValue, trace_context
from ..compat.stages import jit_options, jit_parameters, slash_names
from ..origins.function_names import code_of, wrapped_functions
from ..text import plain_text
from .functions import bound_of, codes_of
from .leaves import Leaf, Leaves
from .serials import Serials
from .statics import Static, static_of
from .structures import Tree, tree_of

COMPILER_OPTION = "compiler option"
"""Beginning of the name of an option of ``compile()`` in the context."""
_MOST_STATIC_VALUES = 1000


class Signature(NamedTuple):
    """A compiled call. It holds no array, and no object of the user's."""

    kind: Kind
    group: Hashable
    """Equal for the calls of one function, and of other function objects of the same line."""

    functions: tuple[int, ...]
    """Numbers of the function object, and of the user's in it; empty if it was not on the stack."""

    codes: tuple[int, ...]
    """Numbers of their code."""

    bound: dict[tuple[int, str], str]
    """The values that are bound to them, as by ``partial``."""

    leaves: dict[str, Leaf]
    """The arrays and scalars, by path."""

    statics: dict[str, Static]
    """The static arguments, by name."""

    trees: dict[str, Tree]
    """The structure of each other argument, by name."""

    keywords: tuple[str, ...]
    """The arguments that were passed by name."""

    context: dict[str, ContextValue]
    """Settings of JAX, the mesh, and the arguments of ``jax.jit``."""


def signature_of(
    call: CompiledCall, serials: Serials, function: Any = None, *, by_types: bool = False
) -> Signature:
    """Return the signature of a call.

    Args:
        call: The call.
        serials: Numbers of the objects of one watch.
        function: The user's function, if a library passes it as an argument of its own jitted function.
        by_types: Read the arrays from the types of the program's arguments, as those of a cached call.
    """
    functions = [one for one in (call.function, function) if one is not None]
    context = trace_context()
    layers = [layer for function in functions for layer in wrapped_functions(function)]
    leaves = Leaves(is_x64="jax_enable_x64" in context and context["jax_enable_x64"].text == "True")
    signature = Signature(
        kind=call.kind,
        group=_group(call, layers),
        functions=tuple(map(serials.of, functions)),
        codes=codes_of(layers),
        bound=bound_of(layers),
        leaves={},
        statics={},
        trees={},
        keywords=tuple(sorted(map(plain_text, call.kwargs))),
        context=context,
    )
    if call.kind in ("call", "pmap"):
        for name, value, is_static in _arguments(call):
            if is_static:
                signature.statics[name] = static_of(value, serials)
            else:
                if not by_types:
                    signature.leaves.update(leaves.of_argument(name, value))
                signature.trees[name] = tree_of(value, serials)
        context.update(_options(call.options))
    if by_types or call.kind not in ("call", "pmap"):
        names = dict(enumerate(slash_names(call.names)))
        for number, aval in enumerate(call.avals):
            path = names.get(number) or f"input {number}"
            signature.leaves[path] = leaves.of_type(aval, call.shardings.get(number))
        for name, text in call.compiler_options.items():
            context[f"{COMPILER_OPTION} {name}"] = ContextValue(text)
    return signature


def static_functions(call: CompiledCall) -> Iterator[FunctionType]:
    """Yield the functions in a call's static arguments: ``equinox.filter_jit`` passes its function there."""
    waiting = [value for _, value, is_static in _arguments(call) if is_static]
    for _ in range(_MOST_STATIC_VALUES):
        if not waiting:
            return
        value = waiting.pop(0)
        if isinstance(value, FunctionType):
            yield value
        elif type(value) is tuple:
            waiting += value


def _group(call: CompiledCall, layers: Sequence[Any]) -> Hashable:
    if call.kind == "transformed" and call.source is not None:
        # The backward pass runs after the call, and its program has other inputs.
        return call.source.name, call.source.file, call.function is None
    codes = [code_of(layer) for layer in layers]
    lines = [(one.co_filename, one.co_firstlineno, one.co_name) for one in codes if one is not None]
    return tuple(lines) or call.source


def _arguments(call: CompiledCall) -> Iterator[tuple[str, Any, bool]]:
    """Yield name, value and whether it is static of each argument."""
    parameters, static_numbers, static_names = jit_parameters(call.options, call.function)
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    rest = next((one.name for one in parameters if one.kind is Parameter.VAR_POSITIONAL), "args")
    for number, value in enumerate(call.args):
        is_named = number < len(positional)
        name = positional[number] if is_named else f"{rest}/{number - len(positional)}"
        yield name, value, number in static_numbers or (is_named and name in static_names)
    for keyword, value in call.kwargs.items():
        yield key_text(keyword), value, keyword in static_names


def _options(options: Any) -> Iterator[tuple[str, ContextValue]]:
    for name, value in jit_options(options).items():
        yield name, ContextValue(value)
