"""Layouts of meshes that need not exist: a shape, the sizes of mesh axes and a spec are enough. No jax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..compat.partition_specs import SpecLike, as_spec
from ..errors import LayoutError, SpecError
from ..layouts import dtypes
from ..layouts.dtypes import packed_nbytes
from ..layouts.layout import ShardingLayout, mesh_layout
from ..layouts.spec import MeshAxes
from ..reports.array import ArrayReport, ShardingDescription
from ..reports.mesh import MeshReport, ShardReport
from ..text import plain_text
from .spec_checks import spec_problems, uneven_axes


def spec_layout(
    shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike, *, uneven: bool = False
) -> ShardingLayout:
    """Return which device of a mesh holds which slice of an array.

    Devices are numbered 0…n−1, the last mesh axis fastest.

    Args:
        shape: Shape of the whole array.
        mesh: Size of each mesh axis by name, such as ``{"data": 8, "fsdp": 32}``.
        spec: A PartitionSpec, or any sequence of None, a name or a tuple of names (``SpecLike``).
        uneven: Whether axes need not divide: the last shards are then smaller or empty, as the
            compiler makes them inside jit.

    Raises:
        SpecError: (a ValueError) all that does not fit, together, each with its remedy.

    >>> spec_layout((16, 16), {"data": 4, "model": 2}, ("model", None)).shard_shape
    (8, 16)
    """
    plain = as_spec(spec)
    problems = spec_problems(shape, mesh, plain)
    if not uneven:
        problems += [str(axis) for axis in uneven_axes(shape, mesh, plain)]
    if problems:
        raise SpecError(problems)
    return mesh_layout(shape, mesh, plain.axes)


def planned_report(
    shape: Sequence[int],
    mesh: Mapping[str, int],
    spec: SpecLike,
    *,
    dtype: str = "float32",
    name: str | None = None,
    uneven: bool = False,
) -> ArrayReport:
    """Return the report of an array that does not exist yet, on a mesh that need not.

    Args:
        shape: Shape of the whole array.
        mesh: Size of each mesh axis by name.
        spec: A PartitionSpec, or any sequence of None, a name or a tuple of names.
        dtype: Name of the dtype, of numpy or of ml_dtypes, such as ``bfloat16`` or ``int4``.
        name: A name for it, repeated in the report.
        uneven: Whether axes need not divide.

    Raises:
        SpecError: (a ValueError) all that does not fit, together, an unknown dtype included.
    """
    shape = tuple(shape)
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
    """Return the bits that an element of a dtype takes on a device.

    Args:
        name: Name of a dtype of numpy or of ml_dtypes, such as ``bfloat16`` or ``int4``.

    Raises:
        SpecError: (a ValueError) there is none of this name, or it is not one of arrays on devices.
    """
    try:
        dtype = dtypes.named_dtype(name)
    except (SyntaxError, TypeError, ValueError) as error:
        raise SpecError(
            [f"{name!r} is not an array dtype: use one such as float32, bfloat16 or int4"]
        ) from error
    return dtypes.bits_per_element(dtype)


def shard_report(report: ArrayReport, device_id: int) -> ShardReport:
    """Return what one device holds of an array.

    Raises:
        LayoutError: (a ValueError) the device holds no part of it, or which device does is not known.
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
        platform=layout.platform,
    )


def mesh_plan(mesh: Mapping[str, int]) -> MeshReport:
    """Return the report of a mesh that need not exist; its devices are numbered 0…n−1.

    Args:
        mesh: Size of each mesh axis by name.

    Raises:
        SpecError: (a ValueError) an axis has no devices.
    """
    sizes = tuple(mesh.values())
    layout = spec_layout(sizes, mesh, tuple(mesh))
    return MeshReport(axes=planned_axes(mesh), layout=layout)


def planned_axes(mesh: Mapping[str, int]) -> MeshAxes:
    """Return the axes of a mesh that need not exist."""
    return MeshAxes(tuple(map(plain_text, mesh)), tuple(mesh.values()))
