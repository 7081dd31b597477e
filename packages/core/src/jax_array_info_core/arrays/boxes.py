"""Boxes of other libraries around a value, with the names of its axes, and the children of a pytree."""

from __future__ import annotations

import contextlib
import inspect
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from ..base.text import plain_text
from ..compat import values
from ..compat.shardings import is_named
from ..geometry.layouts.spec import Spec, as_spec

if TYPE_CHECKING:
    from ..facts.reports.tree import VariableKind

_DEEPEST = 10

_MISSING = object()

_NAMES = ("out_sharding", "sharding_names", "sharding", "names")

_VARIABLES: dict[str, VariableKind] = {"Param": "parameter", "RngState": "RNG state"}

_NOT_BOXES = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex, type, type(None))


def content_of(value: Any) -> Any:
    """Return the value in a box, or in nested boxes. Any other value is returned as it is.

    A box is a pytree whose only child is its attribute ``value``, such as ``nn.Partitioned``, a NamedArray of
    haliax or penzai, or a leaf with an attribute ``raw_value``, such as ``nnx.Param`` before flax 0.12. The
    stored value is read without
    running a property or a hook. A box that contains itself is returned as it is.
    """
    content = value
    for _ in range(_DEEPEST):
        known = issubclass(type(content), _NOT_BOXES) or values.is_array_type(content)
        inner = () if known else _stored(content)
        if not inner:
            return content
        content = inner[0]
    return value


def logical_names(box: Any) -> Spec | None:
    """Return the logical names of the array axes, stored in a box next to its value; None if it has none.

    These are the ``names`` of ``nn.Partitioned`` and ``nn.LogicallyPartitioned``, and the sharding in the
    metadata of an nnx variable, whose key depends on the version of flax; and the axis names of a NamedArray.
    Of nested boxes, the outermost that has names decides.
    """
    for _ in range(_DEEPEST):
        known = issubclass(type(box), _NOT_BOXES) or values.is_array_type(box)
        inner = () if known else _stored(box)
        if not inner:
            return None
        # Since flax 0.11, a variable has a dict of its metadata; before, each entry is an attribute.
        (metadata,) = _attribute(box, "_var_metadata") or (None,)
        for key in _NAMES:
            (names,) = (metadata.get(key),) if type(metadata) is dict else _attribute(box, key) or (None,)
            spec = _names(names)
            if spec is not None:
                return spec
        if (spec := _axis_names(box)) is not None:
            return spec
        box = inner[0]
    return None


def variable_kind(box: Any) -> VariableKind | None:
    """Return the kind of a variable of Flax nnx; None for another object."""
    named_alike = (cls for cls in type(box).__mro__ if cls.__name__ in _VARIABLES)
    return next((_VARIABLES[cls.__name__] for cls in named_alike if cls.__module__.startswith("flax.")), None)


def _axis_names(box: Any) -> Spec | None:
    """Return the axis names of a NamedArray of haliax or penzai; None for another object."""
    if (axes := _stored_as(box, "axes", tuple)) is not None and _attribute(box, "array"):  # haliax
        names = [_attribute(axis, "name") for axis in axes]
        return Spec(tuple((plain_text(name),) for (name,) in names)) if all(names) else None
    array = _attribute(box, "data_array")
    if array and (named := _stored_as(box, "named_axes", dict)) is not None:  # penzai: the last axes
        ndim = len(array[0].shape) if values.is_array_type(array[0]) else len(named)
        places = {name: ndim - len(named) + number for number, name in enumerate(named)}
    elif array and (places := _stored_as(box, "data_axis_for_name", dict)) is not None:  # a view
        ndim = len(_stored_as(box, "data_shape", tuple) or ())
    else:
        return None
    by_place = {place: (plain_text(name),) for name, place in places.items()}
    return Spec(tuple(by_place.get(place, ()) for place in range(ndim)))


def _stored_as(value: Any, name: str, cls: type) -> Any:
    """Return a stored attribute of a type; None if it is missing or has another type."""
    (attribute,) = _attribute(value, name) or (None,)
    return attribute if issubclass(type(attribute), cls) else None


def _names(metadata: Any) -> Spec | None:
    """Return names, a PartitionSpec or the spec of a sharding as a ``Spec``; None for any other object."""
    if values.is_sharding(metadata) and is_named(metadata):
        metadata = metadata.spec
    is_spec = values.is_partition_spec(metadata)
    if not is_spec and not (type(metadata) in (tuple, list) and all(map(_is_entry, metadata))):
        return None
    return as_spec(metadata)


def _is_entry(entry: Any) -> bool:
    """Return whether an object is an entry of logical names: None, a name or a tuple of names."""
    if type(entry) in (tuple, list):
        return all(issubclass(type(name), str) for name in entry)
    return entry is None or issubclass(type(entry), str)


def _stored(box: Any) -> tuple[Any, ...]:
    """Return the value in a box, as a tuple; an empty tuple if the object is not a box."""
    children = children_of(box)
    if children is None:
        return _attribute(box, "raw_value")
    is_box = len(children) == 1 and (_names_of(children) == ["value"] or _axis_names(box) is not None)
    return (children[0][1],) if is_box else ()


def _names_of(children: list[tuple[tuple[Any, ...], Any]]) -> list[str | None]:
    """Return the name of the attribute of each child; None for children that are not attributes."""
    return [getattr(keys[0], "name", None) if len(keys) == 1 else None for keys, _ in children]


def children_of(value: Any) -> list[tuple[tuple[Any, ...], Any]] | None:
    """Return the children of a pytree, each with its key path in JAX; None for a leaf."""
    import jax

    # False for the pytree itself, True for each of its children, even for the pytree again.
    is_leaf = iter([False])
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda _: next(is_leaf, True))
    except Exception:
        # Keys may not be sortable, and the flatten function of a registered class may raise anything.
        return None
    return None if len(pairs) == 1 and pairs[0][0] == () else pairs


def _attribute(box: Any, name: str) -> tuple[Any, ...]:
    """Return a stored attribute, as a tuple; an empty tuple if it is missing or computed."""
    attribute = inspect.getattr_static(box, name, _MISSING)
    if isinstance(attribute, MemberDescriptorType):
        with contextlib.suppress(AttributeError):
            return (attribute.__get__(box),)
    return () if attribute is _MISSING or hasattr(type(attribute), "__get__") else (attribute,)
