"""Registration of a primitive with transformations that keep their own tables of rules."""

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
    """Register that a primitive preserves replication, for the shard_map of JAX up to 0.5."""
    with contextlib.suppress(ImportError, AttributeError):
        shard_map = importlib.import_module("jax.experimental.shard_map")
        shard_map.register_check(primitive)(lambda mesh, replicated, **_: [replicated] if has_result else [])
        shard_map.register_norewrite(primitive)


def register_for_refs(primitive: Any) -> None:
    """Register that a primitive without a result does not change a Ref, if JAX has Refs."""
    with contextlib.suppress(ImportError, AttributeError):
        register_discharge_rule = private("state.discharge").register_discharge_rule

        def discharged(*arguments: Any, **parameters: Any) -> Any:
            # The value of the Ref comes last, after JAX's arguments about the types.
            primitive.bind(arguments[-1], **parameters)
            return [None], []

        register_discharge_rule(primitive)(discharged)


def register_where_used(
    primitive: Any, jet_rule: Callable[..., Any], sparse_rule: Callable[..., Any], *, has_result: bool
) -> None:
    """Register a primitive with the experimental parts of JAX that the program has imported.

    Importing them here would take longer than the rest of an inspection.

    Args:
        primitive: The primitive, which has one operand.
        jet_rule: Its rule for ``jax.experimental.jet``.
        sparse_rule: Its rule for a sparse operand under ``jax.experimental.sparse.sparsify``.
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
            # Without a signature, a primitive consumes its keys.
            forwards = [checker.Forward(0, 0)] if has_result else []
            checker.key_reuse_signatures.setdefault(primitive, checker.KeyReuseSignature(*forwards))


def returned_key(key: Any) -> Any:
    """Return a PRNG key for a primitive to return unchanged; any other value as it is.

    With ``jax_debug_key_reuse``, JAX marks the returned key as consumed before it applies the primitive's
    signature. The result must therefore be a new object, not the operand.
    """
    import jax

    if jax.config.jax_debug_key_reuse and hasattr(key, "_impl") and hasattr(key, "_base_array"):
        return type(key)(key._impl, key._base_array)
    return key
