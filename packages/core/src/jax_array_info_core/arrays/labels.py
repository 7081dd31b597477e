"""Labels of arrays, in a table that keeps no array alive."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ..base.config import config
from ..base.errors import LabelError
from ..base.text import plain_text
from ..compat import values
from ..compat.arrays import label_carrier, shard_views

# Arrays are not hashable, so the key is their id. The weak reference removes its own entry.
_labels: dict[int, tuple[weakref.ref[Any], str]] = {}


def label_array(array: Any, name: str | None) -> None:
    """Label an array in the table of live arrays, or remove its label.

    The label is not stored on the array and does not keep it alive. A traced value gets no label. While
    ``config.assign_labels_to_arrays`` is False, labels can be removed but not added.

    Args:
        array: A concrete ``jax.Array`` of any shape.
        name: The label; None or an empty string removes it.

    Raises:
        LabelError: (a TypeError) If ``array`` is not a jax.Array, or ``name`` is not a str.

    >>> import jax.numpy as jnp
    >>> weights = jnp.zeros((4, 2))
    >>> label_array(weights, "weights")
    >>> label_of(weights)
    'weights'
    """
    if name is not None and not issubclass(type(name), str):
        raise LabelError(f"a label must be a str, or None to remove it, got {type(name).__name__}")
    if values.is_tracer(array):
        return
    if not values.is_array(array):
        raise LabelError(f"only a jax.Array can have a label, got {type(array)}: label the arrays in it")
    carrier = label_carrier(array)
    key = id(carrier)
    label = "" if name is None else plain_text(name)
    if not label:
        _labels.pop(key, None)
    if not label or not config.assign_labels_to_arrays:
        return

    def forget(reference: weakref.ref[Any]) -> None:
        # A new labeled array may already have the same id.
        if key in _labels and _labels[key][0] is reference:
            del _labels[key]

    _labels[key] = (weakref.ref(carrier, forget), label)


def labels_by_id() -> dict[int, str]:
    """Return the labels of all live arrays, by the arrays' ``id``; none if labels are turned off."""
    if not config.assign_labels_to_arrays:
        return {}
    return {key: name for key, (reference, name) in list(_labels.items()) if reference() is not None}


def label_of(array: Any) -> str | None:
    """Return the label of an array; None if it has none, or if labels are turned off."""
    return labels_by_id().get(id(label_carrier(array)))


def bases_of_views(arrays: Sequence[Any]) -> dict[int, Any]:
    """Return the base of each view among some live arrays, by the ``id`` of the view.

    Reading ``array.addressable_shards``, as checkpointing libraries do, adds one array per device to
    ``jax.live_arrays()`` until ``array`` is freed. These views share its buffers and take no memory. A view
    is returned only if its base is among ``arrays``: without the base, the view holds the memory.

    Views from ``array.addressable_data``, and those that JAX before 0.12 creates to read the values of a
    sharded array, are not recognized. They count as separate arrays.

    Args:
        arrays: Live arrays, such as ``jax.live_arrays()``. None are created.
    """
    return {id(view): base for view, base in shard_views(arrays)}
