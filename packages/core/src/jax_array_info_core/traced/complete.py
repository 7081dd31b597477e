"""What is learnt of a traced value after tracing → its report, completed."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from .. import compat
from ..arrays.report import placed_report, with_devices, with_local_part
from ..compat.devices import local_device_first, local_first, placement
from ..compat.lowering import Compilation, LoweringPlace
from ..layouts import dtypes
from ..layouts.dtypes import packed_nbytes
from ..layouts.layout import Placement, ShardingLayout, mesh_layout
from ..layouts.spec import some_axes
from ..layouts.xla import XlaSharding, spec_of_xla, xla_layout
from ..reports.array import ArrayReport, BatchAxes, ShardingDescription

_OF_THE_SHARDING = (
    "sharding",
    "layout",
    "memory_kind",
    "shard_nbytes",
    "devices",
    "device",
    "is_default_device",
    "default_memory_kind",
    "visible_devices",
)


def from_array(report: ArrayReport, array: Any, batch: BatchAxes | None) -> ArrayReport:
    """Return the report of a traced value that stands for a concrete array, as under vmap or grad alone."""
    return dataclasses.replace(
        _placed(report, array.shape, array.dtype, array.sharding), source="array", batch=batch
    )


def from_jax(report: ArrayReport, dtype: Any, sharding: Any) -> ArrayReport | None:
    """Return the report with a sharding that JAX itself has read, None where that says nothing true.

    Inside shard_map it says ``P()``; under vmap it is that of another shape.
    """
    rank = len(report.shape or ())
    if report.source == "manual":
        return report
    if report.batch or len(compat.spec_entries(getattr(sharding, "spec", ()))) > rank:
        return None
    return dataclasses.replace(_placed(report, report.shape, dtype, sharding), source="compiler")


def _placed(report: ArrayReport, shape: Any, dtype: Any, sharding: Any) -> ArrayReport:
    """Return the report of a traced value with a sharding; of another shape where vmap hides an axis."""
    placed = placed_report(SimpleNamespace(shape=shape, dtype=dtype), None, sharding)
    placed = dataclasses.replace(
        report, unknown_because=None, **{name: getattr(placed, name) for name in _OF_THE_SHARDING}
    )
    if sharding.is_fully_addressable:
        return placed
    return with_local_part(placed, local_device_first(sharding), dtype)


def from_shard_map(report: ArrayReport, place: LoweringPlace) -> ArrayReport:
    """Return the report of one shard, of which the type did not tell that it is one."""
    manual = place.mesh and some_axes(place.mesh, place.manual)
    return dataclasses.replace(report, source="manual", unknown_because=None, manual_axes=manual)


def from_compiler(
    report: ArrayReport,
    batch: BatchAxes | None,
    place: LoweringPlace,
    compilation: Compilation,
    sharding: XlaSharding,
    dtype: Any,
) -> ArrayReport:
    """Return the report with the sharding that XLA chose.

    Args:
        report: What was known while tracing.
        batch: The axes that vmap hides; the sharding is that of the whole value.
        place: What the program was lowered for.
        compilation: What it is compiled for.
        sharding: What XLA says; it numbers the devices 0…n−1.
        dtype: The value's dtype.
    """
    shape = batch.shape if batch else report.shape or ()
    # A PRNG key is an axis more to XLA, whole on each device.
    sharding = sharding.leading(len(shape))
    if place.manual:
        return _auto_part(from_shard_map(report, place), place, sharding)
    lengths = tuple(map(int, shape))
    devices, mesh = compilation
    spec = spec_of_xla(sharding, mesh.shape) if mesh else None
    if spec is not None:
        described = ShardingDescription(type="NamedSharding", spec=spec, mesh=mesh)
    elif place.device_count == 1:
        described = ShardingDescription(type="SingleDeviceSharding")
    else:
        described = ShardingDescription(type="GSPMDSharding", text=str(sharding))
    report = dataclasses.replace(
        report, source="compiler", unknown_because=None, batch=batch, sharding=described
    )
    if len(devices) != place.device_count:
        return report
    layout = _layout(lengths, sharding, described, placement(devices))
    bits = dtypes.bits_per_element(dtype)
    report = dataclasses.replace(
        report, layout=layout, shard_nbytes=packed_nbytes(layout.shard_shape, bits) if layout else None
    )
    local = local_first(devices)
    report = with_devices(report, devices, local)
    here = local.client.process_index()
    if all(device.process_index == here for device in devices):
        return report
    return with_local_part(report, local, dtype)


def _layout(
    shape: tuple[int, ...], sharding: XlaSharding, described: ShardingDescription, devices: Placement
) -> ShardingLayout | None:
    """Return which device holds what; by the spec where there is one, which tells partial sums, too."""
    if described.spec is None or described.mesh is None:
        return xla_layout(shape, sharding, devices)
    sizes = described.mesh.shape
    ids = devices.ids.reshape(described.mesh.sizes)
    return mesh_layout(shape, sizes, described.spec.axes, ids, devices.platform, devices.processes)


def _auto_part(report: ArrayReport, place: LoweringPlace, sharding: XlaSharding) -> ArrayReport:
    """Return the report of one shard with its sharding over the mesh axes that are not manual."""
    mesh = place.mesh and some_axes(place.mesh, set(place.mesh.names) - place.manual)
    spec = spec_of_xla(sharding, mesh.shape) if mesh else None
    return (
        report
        if spec is None
        else dataclasses.replace(
            report, sharding=ShardingDescription(type="NamedSharding", spec=spec, mesh=mesh)
        )
    )
