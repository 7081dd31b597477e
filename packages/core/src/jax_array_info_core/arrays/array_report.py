"""Reports on single values, also in the boxes of other libraries, and on objects such as shardings."""

from __future__ import annotations

import contextlib
import inspect
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import LayoutError
from ..base.text import plain_text
from ..compat import values
from ..compat.arrays import array_facts, array_like, shard_place
from ..compat.shardings import (
    default_memory_kind,
    describe_sharding,
    device_name,
    has_devices,
    is_named,
    local_first,
    mesh_axes,
)
from ..compat.values import ArrayFacts, KnownSharding
from ..facts.reports.array import ArrayReport, ShardingDescription
from ..geometry.layouts.dtypes import dtype_name, packed_nbytes
from ..geometry.layouts.layout import local_part
from ..geometry.layouts.spec import MeshAxes, Spec, as_spec

if TYPE_CHECKING:
    from ..facts.reports.tree import VariableKind


_LONGEST_VALUE = 1000


def array_report(value: Any, name: str | None = None) -> ArrayReport:
    """Return the report of any value: its type, shape, dtype, sharding and size in bytes.

    The value can be a jax.Array (including a deleted or donated array, a PRNG key or an array that spans
    processes), a Ref, a traced value, a ShapeDtypeStruct, a NumPy array, another object with a shape and a
    dtype, such as a dataset in a file, a scalar, None, a container of arrays, a sharding, a mesh or a shard.
    Wrappers such as Flax's ``nnx.Param`` are replaced by their content.

    The call creates no array, and waits only for the value of a concrete 0-d array. For a traced value, the
    report contains only what is known while JAX traces: a sharding that XLA chooses later is unknown.

    Args:
        value: The value to report on.
        name: Name of the value in the report.

    >>> import jax.numpy as jnp
    >>> report = array_report(jnp.zeros((4, 2)), "weights")
    >>> report.name, report.shape, report.dtype, report.nbytes
    ('weights', (4, 2), 'float32', 32)
    """
    if name is not None:
        name = plain_text(name)
    cls, type_name = type(value), values.type_name(value)
    if value is None:
        return ArrayReport(name=name, kind="none", type_name=type_name)
    if issubclass(cls, (str, bytes, int, float, complex, np.generic)):
        return ArrayReport(name=name, kind="scalar", type_name=type_name, value=_scalar_text(value))
    if issubclass(cls, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)
        return ArrayReport(
            name=name,
            kind="numpy",
            type_name=type_name,
            shape=plain.shape,
            dtype=dtype_name(plain.dtype),
            nbytes=plain.nbytes,
            shard_nbytes=plain.nbytes,
            value=_scalar_text(value) if plain.shape == () else None,
        )
    facts = array_facts(value)
    if facts is not None:
        return report_of_facts(facts, name)
    content = content_of(value)
    if content is not value:
        return array_report(content, name)
    from .walk import container_report  # arrays do not need it

    container = container_report(value, name)
    if container is not None:
        return container
    facts = array_like(value)
    return object_report(value, name) if facts is None else report_of_facts(facts, name)


def report_of_facts(
    facts: ArrayFacts, name: str | None = None, known: KnownSharding | None = None
) -> ArrayReport:
    """Return the report of an array, a traced value or an abstract value.

    Args:
        facts: The facts about the value.
        name: Name of the value in the report.
        known: Its sharding, if more is known than in ``facts.known``.
    """
    known = known or facts.known
    sharding, devices = known.sharding, known.sharding.devices
    layout = sharding.layout
    bits = None if facts.is_deleted else facts.bits
    nbytes = packed_nbytes(facts.shape, bits) if facts.nbytes is None else facts.nbytes
    # An abstract value has no data on any process.
    process = None if facts.kind == "abstract" else devices.process
    shard_nbytes = nbytes if facts.is_unsharded else None
    part = None
    if layout is not None:
        shard_nbytes = packed_nbytes(layout.shard_shape, bits)
        if process is not None and not facts.is_deleted:
            part = local_part(layout, process, bits)
    return ArrayReport(
        name=name,
        kind=facts.kind,
        type_name=facts.type_name,
        shape=facts.shape,
        dtype=facts.dtype,
        bits=facts.bits,
        nbytes=nbytes,
        shard_nbytes=shard_nbytes,
        value=facts.value,
        weak_type=facts.weak_type,
        memory_kind=sharding.memory_kind,
        default_memory_kind=devices.default_memory_kind,
        is_deleted=facts.is_deleted,
        is_fully_addressable=process is None,
        local_part=part,
        source=known.source,
        unknown_because=known.unknown_because,
        sharding=sharding.description,
        layout=layout,
        devices=devices.ids,
        device=devices.name,
        is_default_device=devices.is_default,
        visible_devices=devices.visible,
        batch=known.batch,
        manual_axes=known.manual_axes,
        varying_axes=facts.varying_axes,
        invariant_axes=_invariant_axes(facts, known.manual_axes),
        unreduced_axes=facts.unreduced_axes,
        called_under=facts.called_under,
    )


def _invariant_axes(facts: ArrayFacts, manual: MeshAxes | None) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value is known not to vary."""
    if manual is None or not facts.is_varying_known:
        return ()
    return tuple(name for name in manual.names if name not in (*facts.varying_axes, *facts.unreduced_axes))


def _scalar_text(value: Any) -> str:
    """Return a scalar as text, truncated to 1000 characters."""
    # Python refuses to convert very large integers to decimal.
    is_long = issubclass(type(value), int) and int.bit_length(value) > _LONGEST_VALUE
    text = hex(value) if is_long else plain_text(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


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
