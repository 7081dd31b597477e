"""Any value → ArrayReport."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import compat
from .containers import entries_of, leaves_of
from .errors import LayoutError
from .layout import ShardingLayout
from .local import LocalPart, local_part
from .model import ArrayReport, BatchAxis, Dim, Source
from .shardings import describe_sharding, sharding_layout
from .units import device_name, packed_nbytes

_LONGEST_VALUE = 1000


def array_report(value: Any, name: str | None = None) -> ArrayReport:
    """Return what a value is, how large, and where its bytes are.

    Any value will do: a jax array (deleted, donated, of PRNG keys, spanning processes), a Ref, a traced
    value, a ShapeDtypeStruct, a numpy array, a scalar, None, a container of arrays. Nothing is
    waited for except the value of a concrete 0-d array, and no array is added to those alive. Inside
    a trace only what is known while tracing is reported; ``source`` tells how.

    Args:
        value: What to report on.
        name: A name for it, repeated in the report.
    """
    if name is not None:
        name = str(name)
    kind_name = type(value).__name__
    if value is None:
        return ArrayReport(name, "none", kind_name)
    if isinstance(value, (str, bytes, int, float, complex, np.generic)):
        return ArrayReport(name, "scalar", kind_name, value=_scalar_text(value))
    if isinstance(value, np.ndarray):
        text = str(value) if value.shape == () else None
        return ArrayReport(
            name, "numpy", kind_name, value.shape, str(value.dtype), value.nbytes, value.nbytes, text
        )
    if compat.is_tracer(value):
        return _traced_report(value, name)
    if compat.is_shape_dtype_struct(value):
        return _abstract_report(value, name, "array", value.sharding)
    if compat.is_abstract_value(value):
        return _abstract_report(value, name, "type", compat.typed_sharding(value))
    entries = entries_of(value)
    if entries is not None:
        return ArrayReport(name, "container", kind_name, length=len(entries), leaves=leaves_of(value))
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
        return _concrete_report(value, name)
    return ArrayReport(name, "object", kind_name)


def _concrete_report(array: Any, name: str | None) -> ArrayReport:
    """Return the report of what has memory: a jax.Array, a Ref, or another library's array."""
    sharding = getattr(array, "sharding", None)
    if not compat.is_sharding(sharding):
        sharding = None
    report = _placed_report(array, name, sharding)
    is_array = compat.is_array(array)
    deleted = is_array and array.is_deleted()
    whole = bool(getattr(sharding, "is_fully_addressable", True))
    return dataclasses.replace(
        report,
        kind="array" if is_array else "array-like",
        source="array" if report.sharding else "unknown",
        value=None if deleted else _scalar_value(array),
        is_deleted=deleted,
        nbytes=None if deleted else report.nbytes,
        shard_nbytes=None if deleted else report.shard_nbytes,
        is_fully_addressable=whole,
        local_part=None if whole or deleted else _local_part(array, sharding, report.layout),
    )


def _local_part(array: Any, sharding: Any, layout: ShardingLayout | None) -> LocalPart | None:
    """Return what this process holds of an array that is not all its own."""
    if layout is None:
        return None
    # Asked of the array's own backend, which need not be the default one.
    process = compat.local_device_first(sharding).client.process_index()
    return local_part(layout, process, compat.bits_per_element(array.dtype))


def _abstract_report(value: Any, name: str | None, source: Source, sharding: Any) -> ArrayReport:
    """Return the report of a shape and dtype without data, hence without bytes."""
    return dataclasses.replace(
        _placed_report(value, name, sharding),
        kind="abstract",
        source="unknown" if sharding is None else source,
        nbytes=None,
        shard_nbytes=None,
    )


def _traced_report(value: Any, name: str | None) -> ArrayReport:
    manual = compat.is_manual(value)
    sharding = None if manual else compat.typed_sharding(value.aval)
    batch = compat.batch_of(value)
    if batch is not None:
        # The type of a batched value is that of what the function sees.
        sharding = None
    report = _placed_report(value, name, sharding)
    source: Source = "manual" if manual else "type" if report.sharding else "unknown"
    return dataclasses.replace(
        report,
        kind="tracer",
        source=source,
        batch=None if batch is None else BatchAxis(batch[0], _plain_shape(batch[1])),
        varying_axes=compat.varying_axes(value),
    )


def _placed_report(value: Any, name: str | None, sharding: Any) -> ArrayReport:
    """Return what shape, dtype and sharding alone tell."""
    shape = _plain_shape(value.shape)
    bits = compat.bits_per_element(value.dtype)
    report = ArrayReport(
        name,
        "array",
        type(value).__name__,
        shape,
        str(value.dtype),
        nbytes=packed_nbytes(shape, bits),
        weak_type=bool(getattr(value, "weak_type", False)),
    )
    if sharding is None:
        return report
    layout = _layout(shape, sharding)
    report = dataclasses.replace(
        report,
        sharding=describe_sharding(sharding, len(shape)),
        layout=layout,
        memory_kind=sharding.memory_kind,
        shard_nbytes=packed_nbytes(layout.shard_shape, bits) if layout else None,
    )
    if compat.is_abstract_mesh(getattr(sharding, "mesh", None)):
        return report
    return _with_devices(report, sharding)


def _with_devices(report: ArrayReport, sharding: Any) -> ArrayReport:
    """Return the report with what is known of the devices that hold the array."""
    device = compat.local_device_first(sharding)
    single = sharding.num_devices == 1
    return dataclasses.replace(
        report,
        devices=tuple(sorted(device.id for device in sharding.device_set)),
        device=device_name(device) if single else None,
        is_default_device=not single or compat.is_default_device(device),
        default_memory_kind=compat.default_memory_kind(device),
        visible_devices=compat.visible_devices(device.platform),
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


def _plain_shape(shape: Sequence[Any]) -> tuple[Dim, ...]:
    return tuple(int(dim) if isinstance(dim, (int, np.integer)) else str(dim) for dim in shape)


def _scalar_text(value: Any) -> str:
    """Return a scalar as it prints, cut where it is longer than anyone reads."""
    # Python refuses to write very large integers in decimal.
    text = hex(value) if isinstance(value, int) and value.bit_length() > _LONGEST_VALUE else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _scalar_value(array: Any) -> str | None:
    """Return the value of a concrete 0-d array; None for others, and where it cannot be read."""
    if array.shape != () or not compat.is_array(array) or compat.is_extended(array.dtype):
        return None
    copy = compat.host_copy(array)
    return None if copy is None else str(copy)
