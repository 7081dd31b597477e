"""Any value → ArrayReport."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import compat
from ..compat import values
from ..compat.devices import (
    default_memory_kind,
    device_name,
    is_default_device,
    local_device_first,
    visible_devices,
)
from ..errors import LayoutError
from ..layouts import dtypes
from ..layouts.dtypes import packed_nbytes
from ..layouts.layout import ShardingLayout
from ..layouts.local import local_part
from ..layouts.spec import MeshAxes, some_axes
from ..reports.array import ArrayReport, BatchAxes, Dim, Source
from ..text import plain_length, plain_text
from .boxes import content_of
from .objects import object_report
from .pytrees import contents_of
from .shardings import describe_sharding, sharding_layout

_LONGEST_VALUE = 1000
ONLY_THE_COMPILER_KNOWS = "only the compiler will know it"
IN_A_REDUCER = "a reducer sees single elements"
IN_A_KERNEL = "a Pallas kernel sees a block"
_NOT_PARTITIONED = {"reducer": IN_A_REDUCER, "kernel": IN_A_KERNEL}


def array_report(value: Any, name: str | None = None) -> ArrayReport:
    """Return what a value is, how large, and where its bytes are.

    Any value will do: a jax array (deleted, donated, of PRNG keys, spanning processes), a Ref, a traced
    value, a ShapeDtypeStruct, a numpy array, a scalar, None, a container of arrays, a sharding, a mesh, a
    shard. A box such as flax's ``nnx.Param`` is reported as what it holds. Nothing is waited for except the
    value of a concrete 0-d array, and no array is added to those alive. Inside a trace only what is known
    while tracing is reported; ``source`` tells how.

    Args:
        value: What to report on.
        name: A name for it, repeated in the report.
    """
    if name is not None:
        name = plain_text(name)
    kind, kind_name = type(value), values.type_name(value)
    if value is None:
        return ArrayReport(name=name, kind="none", type_name=kind_name)
    if issubclass(kind, (str, bytes, int, float, complex, np.generic)):
        return ArrayReport(name=name, kind="scalar", type_name=kind_name, value=_scalar_text(value))
    if issubclass(kind, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)
        text = _scalar_text(value) if plain.shape == () else None
        return ArrayReport(
            name=name,
            kind="numpy",
            type_name=kind_name,
            shape=plain.shape,
            dtype=str(plain.dtype),
            nbytes=plain.nbytes,
            shard_nbytes=plain.nbytes,
            value=text,
        )
    if values.is_tracer(value):
        return _traced_report(value, name)
    if values.is_shape_dtype_struct(value):
        return _abstract_report(value, name, "array", value.sharding)
    if values.is_abstract_value(value):
        return _abstract_report(value, name, "type", compat.typed_sharding(value))
    if values.is_array(value):
        return _concrete_report(value, name)
    content = content_of(value)
    if content is not value:
        return array_report(content, name)
    contents = contents_of(value)
    if contents is not None:
        return ArrayReport(
            name=name, kind="container", type_name=kind_name, length=contents.length, leaves=contents.leaves
        )
    found = compat.array_like(value)
    if found is not None:
        return dataclasses.replace(_concrete_report(found, name), type_name=kind_name)
    return object_report(value, name)


def _concrete_report(array: Any, name: str | None) -> ArrayReport:
    """Return the report of what has memory: a jax.Array, a Ref, or another library's array."""
    sharding = getattr(array, "sharding", None)
    if not values.is_sharding(sharding):
        sharding = None
    report = placed_report(array, name, sharding)
    is_array = values.is_array(array)
    deleted = is_array and array.is_deleted()
    report = dataclasses.replace(
        report,
        kind="array" if is_array else "array-like",
        source="array" if report.sharding else "unknown",
        value=None if deleted else _scalar_value(array),
        is_deleted=deleted,
        nbytes=None if deleted else report.nbytes,
        shard_nbytes=None if deleted else report.shard_nbytes,
    )
    if sharding is None or sharding.is_fully_addressable:
        return report
    return with_local_part(report, local_device_first(sharding), array.dtype)


def with_local_part(report: ArrayReport, device: Any, dtype: Any) -> ArrayReport:
    """Return the report of what spans processes, with what this one holds of it.

    Args:
        report: The report.
        device: One of the devices. Its backend tells the process; it need not be the default backend.
        dtype: Dtype of the array.
    """
    part = None
    if report.layout is not None and not report.is_deleted:
        bits = dtypes.bits_per_element(dtype)
        part = local_part(report.layout, device.client.process_index(), bits)
    return dataclasses.replace(report, is_fully_addressable=False, local_part=part)


def _abstract_report(value: Any, name: str | None, source: Source, sharding: Any) -> ArrayReport:
    """Return the report of a shape and dtype without data; its bytes are those that an array would take."""
    report = placed_report(value, name, sharding, source != "type" or compat.is_decided(sharding))
    is_whole = sharding is None and source != "type"
    return dataclasses.replace(
        report,
        kind="abstract",
        source="unknown" if sharding is None else source,
        shard_nbytes=report.nbytes if is_whole else report.shard_nbytes,
    )


def _traced_report(value: Any, name: str | None) -> ArrayReport:
    """Return what is known while JAX traces."""
    blind_spot = compat.blind_spot()
    if blind_spot:
        # The type may have a sharding, which means nothing there.
        return dataclasses.replace(
            placed_report(value, name, None, decided=False),
            kind="tracer",
            source="unknown",
            unknown_because=_NOT_PARTITIONED[blind_spot],
            called_under=compat.called_under(value),
        )
    manual = manual_axes(compat.type_mesh(value.aval))
    batch = compat.batch_of(value)
    # The type of a batched value is that of what the function sees.
    sharding = compat.typed_sharding(value.aval) if batch is None else None
    report = placed_report(value, name, sharding, not manual and compat.is_decided(sharding))
    source: Source = "manual" if manual else "type" if report.sharding else "unknown"
    return dataclasses.replace(
        report,
        kind="tracer",
        source=source,
        unknown_because=ONLY_THE_COMPILER_KNOWS if source == "unknown" else None,
        called_under=compat.called_under(value),
        batch=batch and BatchAxes(axes=batch.axes, shape=plain_shape(batch.shape)),
        manual_axes=manual,
        varying_axes=compat.varying_axes(value),
    )


def manual_axes(mesh: Any) -> MeshAxes | None:
    """Return those axes of a mesh that are Manual, None where none is."""
    axes = None if mesh is None else compat.mesh_axes(mesh)
    if axes is None or "Manual" not in axes.types:
        return None
    return some_axes(
        axes, [name for name, kind in zip(axes.names, axes.types, strict=True) if kind == "Manual"]
    )


def placed_report(value: Any, name: str | None, sharding: Any, decided: bool = True) -> ArrayReport:
    """Return what shape, dtype and sharding alone tell; a layout where the sharding says all."""
    shape = plain_shape(value.shape)
    bits = dtypes.bits_per_element(value.dtype)
    report = ArrayReport(
        name=name,
        kind="array",
        type_name=values.type_name(value),
        shape=shape,
        dtype=str(value.dtype),
        nbytes=packed_nbytes(shape, bits),
        weak_type=bool(getattr(value, "weak_type", False)),
    )
    if sharding is None:
        return report
    layout = _layout(shape, sharding) if decided else None
    report = dataclasses.replace(
        report,
        sharding=describe_sharding(sharding, len(shape)),
        layout=layout,
        memory_kind=sharding.memory_kind,
        shard_nbytes=packed_nbytes(layout.shard_shape, bits) if layout else None,
    )
    if values.is_abstract_mesh(getattr(sharding, "mesh", None)):
        return report
    return with_devices(report, list(sharding.device_set), local_device_first(sharding))


def with_devices(report: ArrayReport, devices: Sequence[Any], local: Any) -> ArrayReport:
    """Return the report with what is known of the devices that hold the array.

    Args:
        report: The report.
        devices: All of them.
        local: One of them, of this process where it has any.
    """
    single = len(devices) == 1
    return dataclasses.replace(
        report,
        devices=tuple(sorted(device.id for device in devices)),
        device=device_name(local) if single else None,
        is_default_device=not single or is_default_device(local),
        default_memory_kind=default_memory_kind(local),
        visible_devices=visible_devices(local.platform),
    )


def _layout(shape: tuple[Dim, ...], sharding: Any) -> ShardingLayout | None:
    """Return the layout, None where the shape is symbolic or the shards are no grid."""
    lengths = [dim for dim in shape if isinstance(dim, int)]
    if len(lengths) < len(shape):
        return None
    try:
        return sharding_layout(lengths, sharding)
    except LayoutError:
        return None


def plain_shape(shape: Sequence[Any]) -> tuple[Dim, ...]:
    """Return a shape as numbers, and as text where it is symbolic."""
    return tuple(map(plain_length, shape))


def _scalar_text(value: Any) -> str:
    """Return a scalar as it prints, cut where it is longer than anyone reads."""
    # Python refuses to write very large integers in decimal.
    is_long = issubclass(type(value), int) and int.bit_length(value) > _LONGEST_VALUE
    text = hex(value) if is_long else plain_text(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _scalar_value(array: Any) -> str | None:
    """Return the value of a concrete 0-d array; None for others, and where it cannot be read."""
    if array.shape != () or not values.is_array(array) or values.is_extended(array.dtype):
        return None
    copy = compat.host_copy(array)
    return None if copy is None else str(copy)
