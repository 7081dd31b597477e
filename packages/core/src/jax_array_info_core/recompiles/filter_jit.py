"""Calls of ``equinox.filter_jit``, which passes the arrays of the user's arguments without their paths."""

from __future__ import annotations

import contextlib
import inspect

from ..arrays.paths import SlashNotation, key_text
from ..compat.compiled_calls import CompiledCall
from ..compat.jitted import position_names
from .serials import Serials
from .signatures import Signature
from .statics import static_of
from .structures import tree_of

MODULE = "equinox._jit"
DYNAMIC = ("dynamic_donate", "dynamic_nodonate")
"""The arguments with the arrays: by group, those of the first argument, of the rest and of the function."""


def with_user_paths(signature: Signature, call: CompiledCall, serials: Serials) -> Signature:
    """Return a signature with the paths of the user's arguments; unchanged for a call without Equinox."""
    if getattr(call.function, "__module__", None) == MODULE and call.kind == "call":
        # Another version of Equinox has other parts, and flattening runs code of the user's classes.
        with contextlib.suppress(Exception):
            return _with_user_paths(signature, call, serials)
    return signature


def _with_user_paths(signature: Signature, call: CompiledCall, serials: Serials) -> Signature:
    import jax

    # Each group has the leaves that are no arrays, and the structure of all.
    function, first, rest = call.args[2]
    numbered = {
        group: jax.tree_util.tree_unflatten(structure, range(len(leaves)))
        for group, (leaves, structure) in {"fun": function, "first": first, "rest": rest}.items()
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
            rest[0],
        ),
    }
    leaves, statics, trees = {}, {}, {}
    for group, (arguments, others) in groups.items():
        for name, value in arguments.items():
            trees[name] = tree_of(value, serials)
            found, _ = jax.tree_util.tree_flatten_with_path(value)
            paths = SlashNotation().children([keys for keys, _ in found])
            for inner, (keys, number) in zip(paths, found, strict=True):
                path = name + inner if keys else name
                given = (signature.leaves.get(f"{part}/{group}/{number}") for part in DYNAMIC)
                leaf = next(filter(None, given), None)
                if others[number] is not None:
                    statics[path] = static_of(others[number], serials)
                elif leaf is not None:
                    leaves[path] = leaf
    return signature._replace(leaves=leaves, statics=statics, trees=trees, keywords=())
