"""Rules of a primitive for the transformations that keep a table of their own."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import Any

from .private import private

_JET = "jax.experimental.jet"
_KEY_REUSE = "jax.experimental.key_reuse._core"
_SPARSIFY = "jax.experimental.sparse.transform"


def register_replication(primitive: Any, *, has_result: bool) -> None:
    """Tell shard_map up to jax 0.5 that a primitive leaves replication as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        shard_map = importlib.import_module("jax.experimental.shard_map")
        shard_map.register_check(primitive)(lambda mesh, replicated, **_: [replicated] if has_result else [])
        shard_map.register_norewrite(primitive)


def register_for_refs(primitive: Any) -> None:
    """Tell JAX, where it has Refs, that a primitive without result leaves one as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        register_discharge_rule = private("state.discharge").register_discharge_rule

        def discharged(*arguments: Any, **parameters: Any) -> Any:
            # The content is last, after what JAX says of the types.
            primitive.bind(arguments[-1], **parameters)
            return [None], []

        register_discharge_rule(primitive)(discharged)


def register_where_used(
    primitive: Any, jet_rule: Callable[..., Any], sparse_rule: Callable[..., Any], *, has_result: bool
) -> None:
    """Register a primitive with experimental parts of JAX, once the program uses them.

    Importing them takes longer than all else that a look does.

    Args:
        primitive: The primitive, of one operand.
        jet_rule: Its rule for ``jax.experimental.jet``.
        sparse_rule: Its rule for a sparse operand of ``jax.experimental.sparse.sparsify``.
        has_result: Whether it returns its operand.
    """
    import jax

    with contextlib.suppress(ImportError, AttributeError):
        if _JET in sys.modules:
            sys.modules[_JET].jet_rules.setdefault(primitive, jet_rule)
        if _SPARSIFY in sys.modules:
            sparsify = sys.modules[_SPARSIFY]
            for rules in (sparsify.sparse_rules_bcoo, sparsify.sparse_rules_bcsr):
                rules.setdefault(primitive, sparse_rule)
        if jax.config.jax_debug_key_reuse:
            checker = importlib.import_module(_KEY_REUSE)
            # A primitive without a signature consumes the keys that it is given.
            forwards = [checker.Forward(0, 0)] if has_result else []
            checker.key_reuse_signatures.setdefault(primitive, checker.KeyReuseSignature(*forwards))


def returned_key(key: Any) -> Any:
    """Return a PRNG key as a primitive may return it that leaves it as it is.

    Where JAX checks for reuse, it marks what a primitive returns as consumed, before it heeds the
    signature. That must not be the object that the primitive was given.
    """
    import jax

    if jax.config.jax_debug_key_reuse and hasattr(key, "_impl") and hasattr(key, "_base_array"):
        return type(key)(key._impl, key._base_array)
    return key
