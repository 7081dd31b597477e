"""Reports on single values, also in the boxes of other libraries, and on objects such as shardings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.text import plain_text
from ..compat import values
from ..compat.arrays import array_facts, array_like, shard_place
from ..compat.shardings import (
    default_memory_kind,
    device_name,
    has_devices,
    local_first,
    object_description,
)
from ..compat.values import ArrayFacts, KnownSharding
from ..facts.reports.array import ArrayReport
from ..geometry.layouts.dtypes import dtype_name, packed_nbytes
from ..geometry.layouts.layout import local_part
from ..geometry.layouts.spec import MeshAxes
from .boxes import content_of

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
    description = object_description(value)
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
