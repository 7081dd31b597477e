"""Layouts of meshes that need not exist: a shape, the sizes of mesh axes and a spec are enough. No jax."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence

import numpy as np

from . import dtypes
from .errors import LayoutError, SpecError
from .layout import ShardingLayout, mesh_layout
from .model import (
    ArrayReport,
    MeshAxes,
    MeshReport,
    ShardingDescription,
    ShardReport,
    Spec,
    XlaReport,
)
from .notation import format_mesh, parse_xla_sharding, spec_of_xla
from .patterns import describe_pattern
from .specs import SpecLike, as_spec, spec_problems, uneven_axes, uneven_counts
from .units import packed_nbytes, plain_text


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
        None if name is None else plain_text(name),
        "planned",
        "planned",
        shape,
        plain_text(dtype),
        nbytes=packed_nbytes(shape, bits),
        shard_nbytes=packed_nbytes(layout.shard_shape, bits),
        source="array",
        sharding=ShardingDescription("NamedSharding", plain, _mesh_axes(mesh)),
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
        raise SpecError([f"{name!r} is no dtype of arrays, such as float32, bfloat16 or int4"]) from error
    return dtypes.bits_per_element(dtype)


def shard_report(report: ArrayReport, device_id: int) -> ShardReport:
    """Return what one device holds of an array.

    Raises:
        LayoutError: (a ValueError) the device holds no part of it, or which device does is not known.
    """
    layout = report.layout
    if layout is None:
        raise LayoutError("it is not known which device holds which part of this array")
    index = layout.index_of(device_id)
    lengths = [piece.stop - piece.start for piece in index]
    bits = None
    with contextlib.suppress(SpecError):
        # PRNG keys have a dtype that only jax knows.
        bits = dtype_bits(report.dtype or "")
    return ShardReport(
        device_id,
        tuple((piece.start, piece.stop) for piece in index),
        packed_nbytes(lengths, bits),
        layout.holders_of(device_id),
        layout.platform,
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
    return MeshReport(_mesh_axes(mesh), layout)


def xla_report(
    text: str, mesh: Mapping[str, int] | None = None, shape: Sequence[int] | None = None
) -> XlaReport:
    """Return what a sharding means that XLA wrote: its PartitionSpec, its pattern, its layout.

    Args:
        text: The sharding, such as ``{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}``.
        mesh: The mesh that it is for.
        shape: Shape of the array; one element a tile when None. It need not divide.

    Raises:
        NotationError: (a ValueError) the text is no sharding; the error shows where.
        SpecError: (a ValueError) mesh, shape and sharding do not fit each other.
    """
    sharding = parse_xla_sharding(text)
    problems = spec_problems(shape or (), mesh or {}, Spec(()))
    if problems:
        raise SpecError(problems)
    counts = sharding.counts
    devices = sharding.device_ids
    if mesh is not None:
        total = math.prod(mesh.values())
        if sharding.kind == "tiled" and total != devices.size:
            problems.append(f"the mesh {format_mesh(mesh)} has {total} devices, the tiles {devices.size}")
        problems += [
            f"device {device} is not in the mesh {format_mesh(mesh)} of {total} devices"
            for device in devices[devices >= total].tolist()[:1]
        ]
    if shape is not None and sharding.kind == "tiled" and len(shape) != len(counts):
        problems.append(f"the sharding cuts {len(counts)} axes, the shape {tuple(shape)} has {len(shape)}")
    if problems:
        raise SpecError(problems)
    layout = None
    if sharding.kind == "tiled":
        layout = ShardingLayout(tuple(counts if shape is None else shape), devices)
    elif sharding.kind == "maximal" or (sharding.kind == "replicated" and mesh):
        ids = devices if devices.size else np.arange(math.prod((mesh or {}).values()))
        whole = tuple(shape or ())
        layout = ShardingLayout(whole, ids.reshape([1] * len(whole) + [-1]))
    return XlaReport(
        str(sharding),
        sharding.kind,
        None if mesh is None else _mesh_axes(mesh),
        None if mesh is None else spec_of_xla(sharding, mesh),
        describe_pattern(layout, copies=_subgroup_words(sharding.subgroups)) if layout else (),
        tuple(map(str, uneven_counts(shape or (), counts))),
        layout,
    )


def _mesh_axes(mesh: Mapping[str, int]) -> MeshAxes:
    return MeshAxes(tuple(map(plain_text, mesh)), tuple(mesh.values()))


def _subgroup_words(subgroups: Sequence[str]) -> str:
    """Return what the devices that share a tile hold of it."""
    words = {"replicated": "copies", "unreduced": "partial sums", "manual": "parts placed by hand"}
    return " and ".join(dict.fromkeys(words.get(kind, kind) for kind in subgroups)) or "copies"
