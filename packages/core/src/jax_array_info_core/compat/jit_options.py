"""Arguments of ``jax.jit``, from JAX's private record of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from inspect import Parameter
from typing import Any

from ..layouts.spec import effective_spec
from ..text import plain_text
from .meshes import mesh_axes
from .partition_specs import as_spec
from .shardings import is_named

SHARDINGS = ("in_shardings", "out_shardings")
CHOSEN = {"donated arguments": "donate_arg", "static arguments": "static_arg"}
"""The options that choose arguments. JAX finds their names where the function has a signature."""
OPTIONS = ("keep_unused", "inline", "device", "backend")
"""The options that are kept as they are. A version of JAX may lack some of them."""
_LONGEST = 200
_KEY = re.compile(r"\['([^']*)'\]|\[([^\]]*+)\]?|\.(\w+)")
"""One key in JAX's names of arguments."""


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
    found = {name: plain_text(getattr(options, name, None)) for name in OPTIONS}
    for name, option in CHOSEN.items():
        names, numbers = (getattr(options, option + form, None) for form in ("names", "nums"))
        found[name] = ", ".join(map(plain_text, names or numbers or ()))
    for name in SHARDINGS:
        leaves = getattr(options, f"{name}_leaves", None) or ()
        found[name] = ", ".join(map(_sharding_text, leaves))[:_LONGEST]
    compiler = getattr(options, "compiler_options_kvs", None) or ()
    found["compiler_options"] = plain_text(dict(compiler))[:_LONGEST]
    return found


def slash_names(names: Sequence[str | None]) -> list[str | None]:
    """Return the names of flat arguments, such as ``params['w']``, as paths such as ``params/w``."""
    return [name and _KEY.sub(lambda key: "/" + next(filter(None, key.groups()), ""), name) for name in names]


def _sharding_text(sharding: Any) -> str:
    """Return the spec of a sharding without what does not shard."""
    if is_named(sharding):
        return str(effective_spec(as_spec(sharding.spec), mesh_axes(sharding.mesh).shape))
    return type(sharding).__name__
