"""Containers, boxes, meshes and shardings, and the traversal of their leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compat import values
from ..compat.arrays import array_facts, array_like, attribute, shard_place
from ..compat.shardings import (
    default_memory_kind,
    describe_sharding,
    device_name,
    has_devices,
    is_named,
    local_first,
    mesh_axes,
)
from ..errors import LayoutError
from ..layouts.spec import Spec, as_spec
from ..reports.array import ArrayReport, ShardingDescription
from ..text import plain_text
from .paths import Notation

if TYPE_CHECKING:
    from ..reports.tree import VariableKind


def object_report(value: Any, name: str | None) -> ArrayReport:
    """Return the report of an object that is neither an array nor a container."""
    import jax

    type_name = values.type_name(value)
    if issubclass(type(value), jax.Shard):
        device, index, replica = shard_place(value)
        return ArrayReport(
            name=name,
            kind="object",
            type_name=type_name,
            device=device_name(device),
            index=index,
            replica=replica,
        )
    description = _description(value)
    if not values.is_sharding(value) or not has_devices(value):
        if description is not None and description.mesh is None:
            type_name = description.type  # in JAX 0.12, the class PartitionSpec is named P
        return ArrayReport(name=name, kind="object", type_name=type_name, sharding=description)
    devices = sorted(device.id for device in value.device_set)
    local = local_first(value.device_set)
    return ArrayReport(
        name=name,
        kind="object",
        type_name=type_name,
        sharding=description,
        memory_kind=value.memory_kind,
        default_memory_kind=default_memory_kind(local),
        devices=tuple(devices),
        device=device_name(local) if len(devices) == 1 else None,
    )


def object_text(value: Any) -> str:
    """Return a sharding or a partition spec as short text; an empty string for any other value."""
    description = _description(value)
    return "" if description is None or description.spec is None else description.with_mesh


def _description(value: Any) -> ShardingDescription | None:
    """Return the spec and the mesh of an object; None if it has neither."""
    with contextlib.suppress(LayoutError):  # the mesh is empty
        if values.is_partition_spec(value):
            return ShardingDescription(type="PartitionSpec", spec=as_spec(value))
        if values.is_mesh(value):
            return ShardingDescription(type=type(value).__name__, mesh=mesh_axes(value))
        if values.is_sharding(value) and is_named(value):
            return describe_sharding(value, 0)
    return None


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
        found = () if known else _stored(content)
        if not found:
            return content
        content = found[0]
    return value


def logical_names(box: Any) -> Spec | None:
    """Return the logical names of the array axes, stored in a box next to its value; None if it has none.

    These are the ``names`` of ``nn.Partitioned`` and ``nn.LogicallyPartitioned``, and the sharding in the
    metadata of an nnx variable, whose key depends on the version of flax; and the axis names of a NamedArray.
    Of nested boxes, the outermost that has names decides.
    """
    for _ in range(_DEEPEST):
        known = issubclass(type(box), _NOT_BOXES) or values.is_array_type(box)
        found = () if known else _stored(box)
        if not found:
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
        box = found[0]
    return None


def variable_kind(box: Any) -> VariableKind | None:
    """Return the kind of a variable of Flax nnx; None for another object."""
    for cls in type(box).__mro__:
        if cls.__name__ in _VARIABLES and cls.__module__.startswith("flax."):
            return _VARIABLES[cls.__name__]
    return None


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
    (found,) = _attribute(value, name) or (None,)
    return found if issubclass(type(found), cls) else None


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
    if len(pairs) == 1 and pairs[0][0] == ():
        return None
    return pairs


def _attribute(box: Any, name: str) -> tuple[Any, ...]:
    """Return a stored attribute, as a tuple; an empty tuple if it is missing or computed."""
    found = inspect.getattr_static(box, name, _MISSING)
    if isinstance(found, MemberDescriptorType):
        with contextlib.suppress(AttributeError):
            return (found.__get__(box),)
    return () if found is _MISSING or hasattr(type(found), "__get__") else (found,)


MAX_DEPTH = 100
_MOST_SEARCHED = 1000
"""Maximum number of entries that are searched in an object."""

Entries = list[tuple[str, Any]]
"""The entries of a container, each with the text of its key."""

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


class Walk:
    """A depth-first traversal of a container, in JAX's order. A subclass handles the leaves.

    ``None`` is a leaf. A container inside itself, which crashes JAX, is a leaf, and so is any container more
    than 100 levels deep.

    Args:
        notation: Notation of the paths.
        opens_boxes: Whether a box is replaced by its content, so that its key is not in the path.
    """

    def __init__(self, notation: Notation, *, opens_boxes: bool) -> None:
        self._notation = notation
        self._opens_boxes = opens_boxes
        self._array_types: set[type] = set()
        self._described: dict[int, tuple[Any, Any]] = {}
        """Objects other than arrays, and their descriptions, by the ``id`` of the object."""

    def add_array(self, path: str, array: Any) -> None:
        """Handle an array, an abstract value or the facts of an array-like object."""

    def add_other(self, path: str, value: Any) -> None:
        """Handle a leaf that is not an array."""

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        """Handle a container before its entries."""

    def start(self, value: Any) -> bool:
        """Traverse a container, and return whether the value is one."""
        entries = entries_of(value, self._notation)
        if entries is None:
            return False
        self.enter("", value, entries)
        self.visit(entries, "", (id(value),))
        return True

    def visit(self, entries: Entries, path: str, ancestors: tuple[int, ...]) -> None:
        """Handle the leaves below the entries of one container.

        Args:
            entries: The entries.
            path: Path of the container.
            ancestors: The ``id`` of the container and of each container around it.
        """
        for key, entry in entries:
            cls = type(entry)
            if cls in PLAIN:
                self.add_other(path + key, entry)
            elif cls in self._array_types:
                self.add_array(path + key, entry)
            elif self._opens_boxes and (content := content_of(entry)) is not entry:
                self.visit([(key, content)], path, ancestors)
            else:
                self._visit_other(entry, path + key, ancestors)

    def _visit_other(self, value: Any, path: str, ancestors: tuple[int, ...]) -> None:
        cls = type(value)
        is_leaf = id(value) in ancestors or len(ancestors) == MAX_DEPTH
        entries = None if is_leaf else entries_of(value, self._notation)
        if entries is not None:
            self.enter(path, value, entries)
            self.visit(entries, path, (*ancestors, id(value)))
        elif not self._opens_boxes and not is_leaf and (content := content_of(value)) is not value:
            self.enter(path, value, [("", content)])
            self.visit([("", content)], path, (*ancestors, id(value)))
        elif (found := self._once(value, leaf_of)) is not None:
            if found is value:
                self._array_types.add(cls)
            self.add_array(path, found)
        else:
            self.add_other(path, value)

    def _once(self, value: Any, describe: Callable[[Any], Any]) -> Any:
        """Return the description of a value, the same object for each path of the value."""
        known = self._described.get(id(value))
        if known is None:
            known = self._described[id(value)] = value, describe(value)
        return known[1]


def leaf_of(value: Any) -> Any:
    """Return an array as it is, and the facts of any other value with a shape and a dtype; else None."""
    cls = type(value)
    if issubclass(cls, np.ndarray) and cls is not np.ndarray:
        # A subclass, such as np.memmap, may override any attribute.
        return np.ndarray.view(value, np.ndarray)
    if values.is_array_type(value):
        return value
    return None if object_text(value) else array_facts(value) or array_like(value)


def entries_of(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a container in JAX's order; None if the value is not a container.

    An array-like object that JAX does not flatten, such as an array of zarr, which is a dataclass, is a leaf,
    unless it has JAX arrays in it, such as a layer that states its shape and dtype.
    """
    entries = _registered_entries(value, notation)
    if entries is not None:
        return entries
    entries = _own_entries(value, notation)
    is_leaf = entries is not None and array_like(value) is not None and not _has_jax_array(entries, notation)
    return None if is_leaf else entries


def _registered_entries(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a pytree; None for any other value."""
    cls = type(value)
    # Most containers have one of these types; flattening them with JAX would be slower.
    if cls is list or cls is tuple:
        return [(notation.index(number), entry) for number, entry in enumerate(value)]
    if cls is dict:
        keys = _sorted(value)
        return list(zip(notation.items(keys), [value[key] for key in keys], strict=True))
    if cls in PLAIN or issubclass(cls, type) or values.is_array_type(value):
        return None
    if values.is_partition_spec(value):  # a tuple up to JAX 0.5
        return None
    children = children_of(value)
    if children is None:
        return None
    texts = notation.children([keys for keys, _ in children])
    return list(zip(texts, [child for _, child in children], strict=True))


def _own_entries(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a container that is not registered with JAX; None for any other value."""
    cls = type(value)
    if issubclass(cls, type) or values.is_array_type(value) or values.is_partition_spec(value):
        return None
    # A subclass may override the methods of set, dict, list and tuple, so the base class's are called.
    if issubclass(cls, (set, frozenset)):
        return [("", entry) for entry in (set if issubclass(cls, set) else frozenset).__iter__(value)]
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        return [(notation.attribute(field.name), attribute(value, field.name)) for field in fields]
    if issubclass(cls, dict):
        pairs = list(dict.items(value))
        return list(
            zip(notation.items([key for key, _ in pairs]), [entry for _, entry in pairs], strict=True)
        )
    if issubclass(cls, (list, tuple)):
        entries = (list if issubclass(cls, list) else tuple).__iter__(value)
        return [(notation.index(number), entry) for number, entry in enumerate(entries)]
    return None


def _has_jax_array(entries: Entries, notation: Notation) -> bool:
    """Return whether a JAX array, or an abstract one, is among entries or below them."""
    found, known = [entry for _, entry in entries], set[int]()
    while found and len(known) < _MOST_SEARCHED:
        value = found.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        if values.is_array_type(value):
            if not issubclass(type(value), (np.ndarray, np.generic)):
                return True
            continue
        below = _registered_entries(value, notation) or _own_entries(value, notation) or ()
        found += [entry for _, entry in below]
    return False


def _sorted(keys: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict in JAX's order, or in insertion order if they cannot be sorted."""
    try:
        return sorted(keys)
    except Exception:
        # Comparing keys may raise anything.
        return list(keys)
