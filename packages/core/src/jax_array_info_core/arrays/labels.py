"""Names that users gave to arrays: a table beside the arrays that keeps none of them alive."""

from __future__ import annotations

import weakref
from typing import Any

from .. import compat
from ..compat import values
from ..config import config
from ..errors import LabelError
from ..text import plain_text

# Arrays have no hash, so they are found by identity; the weak reference removes its own entry.
_labels: dict[int, tuple[weakref.ref[Any], str]] = {}


def label_array(array: Any, name: str | None) -> None:
    """Give an array a name for the table of live arrays, or take it away with None or an empty one.

    Nothing is written on the array and nothing keeps it alive. A traced value has no memory of its
    own, and with ``config.assign_labels_to_arrays = False`` no names are given: in both cases
    nothing happens.

    Raises:
        LabelError: (a TypeError) the value is no jax array, or the name no str.
    """
    if name is not None and not issubclass(type(name), str):
        raise LabelError(f"a label is a str, or None to remove it; got {type(name).__name__}")
    if values.is_tracer(array):
        return
    if not values.is_array(array):
        raise LabelError(f"only jax arrays carry labels, got {type(array)}")
    carrier = compat.label_carrier(array)
    key = id(carrier)
    label = "" if name is None else plain_text(name)
    if not label:
        _labels.pop(key, None)
    if not label or not config.assign_labels_to_arrays:
        return

    def forget(reference: weakref.ref[Any]) -> None:
        # The id may already belong to a new array with a label of its own.
        if key in _labels and _labels[key][0] is reference:
            del _labels[key]

    _labels[key] = (weakref.ref(carrier, forget), label)


def labels_by_id() -> dict[int, str]:
    """Return the labels of the arrays that are alive, by the arrays' ``id``; none when they are off."""
    if not config.assign_labels_to_arrays:
        return {}
    return {key: name for key, (reference, name) in list(_labels.items()) if reference() is not None}


def label_of(array: Any) -> str | None:
    """Return the label of an array, None where it has none."""
    return labels_by_id().get(id(compat.label_carrier(array)))
