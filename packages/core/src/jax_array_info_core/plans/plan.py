"""Layouts and reports of planned arrays, from a shape, mesh sizes and a spec, without JAX."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from ..errors import LayoutError, SpecError
from ..layouts import dtypes
from ..layouts.dtypes import packed_nbytes
from ..layouts.layout import ShardingLayout, mesh_layout
from ..layouts.partition_specs import SpecLike, as_spec
from ..layouts.spec import MeshAxes
from ..reports.array import ArrayReport, ShardingDescription
from ..reports.mesh import MeshReport, ShardReport
from ..text import plain_text
from .spec_checks import mesh_sizes, spec_problems, uneven_axes


def spec_layout(
    shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike, *, uneven: bool = False
) -> ShardingLayout:
    """Return the layout of a planned array. No devices are needed.

    Devices are numbered 0…n−1 in the order of the mesh; the last axis varies fastest.

    Args:
        shape: Global shape of the array.
        mesh: Size of each mesh axis by name, such as ``{"data": 8, "fsdp": 32}``.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.
        uneven: Whether to allow axes that are not divisible by their number of shards. The last shards
            then have fewer elements or none. Inside jit, XLA pads them to the size of the first.

    Raises:
        SpecError: (a ValueError) If shape, mesh and spec do not match. The message lists every problem, with
            a fix if there is one.

    >>> spec_layout((16, 16), {"data": 4, "model": 2}, ("model", None)).shard_shape
    (8, 16)
    """
    plain = as_spec(spec)
    shape, mesh = tuple(map(operator.index, shape)), mesh_sizes(mesh)
    problems = spec_problems(shape, mesh, plain)
    if not uneven:
        problems += [str(axis) for axis in uneven_axes(shape, mesh, plain)]
    if problems:
        raise SpecError(problems)
    return mesh_layout(shape, mesh, plain.axes, unreduced=plain.unreduced)


def planned_report(
    shape: Sequence[int],
    mesh: Mapping[str, int],
    spec: SpecLike,
    *,
    dtype: str = "float32",
    name: str | None = None,
    uneven: bool = False,
) -> ArrayReport:
    """Return the report of a planned array: the bytes and the slice on each device. No devices are needed.

    Args:
        shape: Global shape of the array.
        mesh: Size of each mesh axis by name.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.
        dtype: Name of a NumPy or ml_dtypes dtype, such as ``bfloat16`` or ``int4``.
        name: Name of the array in the report.
        uneven: Whether to allow axes that are not divisible by their number of shards. The last shards
            then have fewer elements or none. Inside jit, XLA pads them to the size of the first.

    Raises:
        SpecError: (a ValueError) If shape, mesh and spec do not match, or the dtype is not known. The message
            lists every problem.

    >>> report = planned_report((16, 16), {"data": 4, "model": 2}, ("data",), dtype="bfloat16")
    >>> report.nbytes, report.shard_nbytes, report.replicas
    (512, 128, 2)
    """
    shape, mesh = tuple(map(operator.index, shape)), mesh_sizes(mesh)
    plain = as_spec(spec)
    problems: list[str] = []
    bits = None
    try:
        bits = dtype_bits(dtype)
    except SpecError as error:
        problems += error.problems
    try:
        layout = spec_layout(shape, mesh, plain, uneven=uneven)
    except SpecError as error:
        problems += error.problems
    if problems:
        raise SpecError(problems)
    return ArrayReport(
        name=None if name is None else plain_text(name),
        kind="planned",
        type_name="planned",
        shape=shape,
        dtype=plain_text(dtype),
        nbytes=packed_nbytes(shape, bits),
        shard_nbytes=packed_nbytes(layout.shard_shape, bits),
        source="array",
        sharding=ShardingDescription(type="NamedSharding", spec=plain, mesh=planned_axes(mesh)),
        layout=layout,
    )


def dtype_bits(name: str) -> int | None:
    """Return the bits per element of a dtype on a device.

    Args:
        name: Name of a NumPy or ml_dtypes dtype, such as ``bfloat16`` or ``int4``.

    Raises:
        SpecError: (a ValueError) If there is no such dtype, or JAX arrays cannot have it.

    >>> dtype_bits("bfloat16"), dtype_bits("int4")
    (16, 4)
    """
    try:
        dtype = dtypes.named_dtype(name)
    except (SyntaxError, TypeError, ValueError) as error:
        raise SpecError(
            [f"{name!r} is not an array dtype: use one such as float32, bfloat16 or int4"]
        ) from error
    return dtypes.bits_per_element(dtype)


def shard_report(report: ArrayReport, device_id: int) -> ShardReport:
    """Return the report of the shard that a device holds.

    Args:
        report: Report of the array. Its ``layout`` must not be None.
        device_id: Id of the device.

    Raises:
        LayoutError: (a ValueError) If the device holds no shard of the array, or ``report.layout`` is None.

    >>> report = planned_report((16, 16), {"data": 4, "model": 2}, ("data",))
    >>> shard = shard_report(report, 5)
    >>> shard.index, shard.nbytes, shard.holders
    (((8, 12), (0, 16)), 256, (4, 5))
    """
    layout = report.layout
    if layout is None:
        raise LayoutError("the device of each shard is not known")
    index = layout.index_of(device_id)
    lengths = [piece.stop - piece.start for piece in index]
    return ShardReport(
        device_id=device_id,
        index=tuple((piece.start, piece.stop) for piece in index),
        nbytes=packed_nbytes(lengths, dtypes.bits_of_name(report.dtype)),
        holders=layout.holders_of(device_id),
        partial_sums=layout.partial_sums,
        platform=layout.platform,
    )


def mesh_plan(mesh: Mapping[str, int]) -> MeshReport:
    """Return the report of a planned mesh, whose devices are numbered 0…n−1. No devices are needed.

    Args:
        mesh: Size of each mesh axis by name.

    Raises:
        SpecError: (a ValueError) If the size of an axis is less than 1, or the mesh has more than 1,048,576
            devices.

    >>> mesh_plan({"data": 2, "model": 2}).layout.device_ids[..., 0].tolist()
    [[0, 1], [2, 3]]
    """
    mesh = mesh_sizes(mesh)
    layout = spec_layout(tuple(mesh.values()), mesh, tuple(mesh))
    return MeshReport(axes=planned_axes(mesh), layout=layout)


def planned_axes(mesh: Mapping[str, int]) -> MeshAxes:
    """Return the axes of a planned mesh."""
    sizes = mesh_sizes(mesh)
    return MeshAxes(tuple(sizes), tuple(sizes.values()))
