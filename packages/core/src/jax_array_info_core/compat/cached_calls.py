"""The calls of a jitted function whose programs JAX has in its caches."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from .compiled_calls import CompiledCall, call_of_program
from .jitted import (
    cache_entries,
    computations_by_program,
    entries_by_key,
    jitted_types,
    live_jitted_functions,
    traced_by_function,
)
from .private import private

UNREADABLE = (ImportError, AttributeError, TypeError, LookupError)


def unreadable_functions() -> dict[int, weakref.ReferenceType[Any]]:
    """Return the functions that have a program whose keys this version of JAX does not show, by id.

    These are all that were called up to JAX 0.5, and those of ``jax.pmap`` up to JAX 0.7.
    """
    types: Sequence[type] = jitted_types()[1:]
    try:
        computations_by_program()
    except UNREADABLE:
        types = jitted_types()
    if not types:
        return {}
    found = [one for one in live_jitted_functions() if type(one) in types and cache_entries(one)]
    return {id(one.__wrapped__): weakref.ref(one) for one in found}


def cached_calls(
    call: CompiledCall, unreadable: Mapping[int, weakref.ReferenceType[Any]]
) -> list[CompiledCall] | None:
    """Return the earlier calls of a call's function that have a program, from the keys of JAX's caches.

    The arguments of each are its static values and, for the others, the structures of their trees.

    Args:
        call: The call.
        unreadable: The functions that had a program without keys.

    Returns:
        Empty if the function has no program. None if it has one whose key cannot be read, as after
        ``clear_cache`` of any function, which empties the cache with the keys.
    """
    try:
        if call.kind == "call":
            computations = computations_by_program()
            calls = [
                call_of_program(computation.compile_args)._replace(**arguments)
                for program, arguments in _traced(call.function)
                for computation in computations.get(id(program), ())
            ]
            return calls or (None if _has_program(call.function, computations) else [])
    except UNREADABLE:
        pass
    function = unreadable.get(id(call.function), lambda: None)()
    return None if getattr(function, "__wrapped__", None) is call.function is not None else []


def _has_program(function: Any, computations: Mapping[int, Any]) -> bool:
    return any(
        computations.get(id(part))
        for other, parts in traced_by_function()
        if other is function
        for part in parts
    )


def _traced(function: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each cached trace of a function with the fields of the call that it was made for."""
    cache = private("pjit")._infer_params_cached
    for key, parts in entries_by_key(cache):
        if key is not function:
            continue
        options: Any = None
        signature: Any = None
        # Up to JAX 0.8, the key of an entry is one tuple.
        for part in chain.from_iterable(part if type(part) is tuple else (part,) for part in parts):
            if hasattr(part, "static_argnums"):
                options = part
            elif hasattr(part, "dynamic_arg_treedefs"):
                signature = part
            elif getattr(part, "pjit_params", None) is not None and signature is not None:
                args, kwargs = _arguments(signature, options.static_argnums)
                fields = {"kind": "call", "function": function, "options": options}
                yield part.pjit_params.params["jaxpr"], {**fields, "args": args, "kwargs": kwargs}


def _arguments(signature: Any, static_numbers: Sequence[int]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments in their order: static values, and structures of trees."""
    dynamic, static = list(signature.dynamic_arg_treedefs), list(signature.static_args)
    names = list(signature.dynamic_arg_names), list(signature.static_arg_names)
    count = len(dynamic) + len(static) - len(names[0]) - len(names[1])
    trees, values = iter(dynamic), iter(static)
    args = [next(values if number in static_numbers else trees) for number in range(count)]
    return args, dict(zip(names[0], trees, strict=True)) | dict(zip(names[1], values, strict=True))
