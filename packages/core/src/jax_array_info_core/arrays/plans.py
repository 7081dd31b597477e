"""Arrays planned from a shape, a mesh and a spec, and shardings in XLA's notation."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import LayoutError, SpecError, UnsupportedValueError, require, require_report
from ..base.quantities import LARGEST, counted, format_number
from ..base.text import plain_text
from ..facts.reports.array import ArrayReport, ShardingDescription
from ..geometry.layouts import dtypes
from ..geometry.layouts.dtypes import packed_nbytes
from ..geometry.layouts.grid import describe_pattern
from ..geometry.layouts.layout import MAX_AXES, MAX_DEVICES, ShardingLayout, as_shape, mesh_layout
from ..geometry.layouts.notation import format_mesh
from ..geometry.layouts.spec import MeshAxes, Spec, SpecLike, UnevenAxis, as_spec, mesh_sizes

if TYPE_CHECKING:
    from ..facts.reports.mesh import ShardReport, XlaReport
    from ..geometry.layouts.xla import Copied


def spec_problems(shape: Sequence[int], mesh: Any, spec: SpecLike) -> list[str]:
    """Return the problems of a spec for a given shape and mesh; empty if it is valid.

    Axes that are not divisible by their number of shards are not listed: see ``uneven_axes``. A shape or a
    mesh can have at most 63 axes (31 with NumPy 1), and the length of an axis at most 300 digits. If one of
    these limits is exceeded, no other problems are listed.

    Args:
        shape: Global shape of the array.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.

    >>> spec_problems((16, 16), {"data": 4}, ("model",))
    ["'model' is not a mesh axis: the mesh has 'data'"]
    """
    mesh = mesh_sizes(mesh)
    if too_large := list(_exceeded_limits(shape, mesh)):
        return too_large
    spec = as_spec(spec)
    devices = math.prod(mesh.values())
    problems = (
        [f"{format_number(devices)} devices exceed the limit of {MAX_DEVICES}"]
        if devices > MAX_DEVICES
        else []
    )
    problems += [
        f"axis {axis} of shape {tuple(shape)} has a negative length"
        for axis, dim in enumerate(shape)
        if dim < 0
    ]
    problems += [
        f"mesh axis {name!r} has no devices: its size is {size}" for name, size in mesh.items() if size < 1
    ]
    uses = Counter(name for entry in (*spec.axes, spec.unreduced) for name in entry)
    known = ", ".join(map(repr, mesh)) or "no axes"
    problems += [f"{name!r} is not a mesh axis: the mesh has {known}" for name in uses if name not in mesh]
    problems += [
        f"{name!r} is used twice: a mesh axis can shard only one axis of an array"
        for name, count in uses.items()
        if count > 1
    ]
    if len(spec.axes) > len(shape):
        problems.append(
            f"the spec has {counted(len(spec.axes), 'entry', 'entries')}, "
            f"but the array has {counted(len(shape), 'axis', 'axes')}: shape {tuple(shape)}"
        )
    return problems


def _exceeded_limits(shape: Sequence[int], mesh: Mapping[str, int]) -> Iterator[str]:
    """Yield the limits on axes and lengths that a shape or a mesh exceeds."""
    for noun, lengths in (("an array", tuple(shape)), ("a mesh", tuple(mesh.values()))):
        if len(lengths) > MAX_AXES:
            yield f"{noun} of {len(lengths)} axes exceeds the limit of {MAX_AXES}"
        else:
            large = next((length for length in lengths if abs(length) > LARGEST), None)
            if large is not None:
                length = format_number(large)
                yield f"{noun} with an axis of length {length} exceeds the limit of 2^63 - 1"


def uneven_axes(shape: Sequence[int], mesh: Any, spec: SpecLike) -> tuple[UnevenAxis, ...]:
    """Return the array axes that are not divisible by their number of shards.

    Surplus entries of the spec and names that are not mesh axes are ignored, and the result is empty if the
    shape or the mesh exceeds the limits on axes and lengths. ``spec_problems`` reports these errors.

    Args:
        shape: Global shape of the array.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.

    >>> [(axis.axis, axis.count, axis.padded) for axis in uneven_axes((17, 16), {"x": 8}, ("x",))]
    [(0, 8, 24)]
    """
    spec = as_spec(spec)
    shape, mesh = tuple(shape), mesh_sizes(mesh)
    if any(_exceeded_limits(shape, mesh)):
        return ()
    uneven = []
    for axis, names in enumerate(spec.axes[: len(shape)]):
        count = math.prod([mesh.get(name, 1) for name in names]) if names else 1
        if count > 1 and shape[axis] % count:
            used = {name for other, entry in enumerate(spec.axes) if other != axis for name in entry}
            fitting = _fitting(shape[axis], {name: size for name, size in mesh.items() if name not in used})
            fitting_count = math.prod(mesh[name] for name in fitting)
            uneven.append(UnevenAxis(axis, shape, names, count, fitting, fitting_count))
    return tuple(uneven)


def strict_problems(shape: Sequence[int], mesh: Any, spec: SpecLike) -> list[str]:
    """Return the problems of a spec, and its axes that are not divisible by their number of shards."""
    return [*spec_problems(shape, mesh, spec), *map(str, uneven_axes(shape, mesh, spec))]


def uneven_counts(shape: Sequence[int], counts: Sequence[int]) -> tuple[UnevenAxis, ...]:
    """Return the array axes that are not divisible by the given numbers of shards, without a mesh."""
    return tuple(
        UnevenAxis(axis, tuple(shape), (), count, (), 1)
        for axis, (dim, count) in enumerate(zip(shape, counts, strict=False))
        if dim % count
    )


def _fitting(dim: int, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """Return the fewest mesh axes with the largest product that divides a length."""
    # By product: there are at most as many as the length has divisors.
    names_of: dict[int, tuple[str, ...]] = {1: ()}
    for name, size in mesh.items():
        for product, names in list(names_of.items()) if size > 1 else ():
            larger, longer = product * size, (*names, name)
            if dim % larger == 0 and len(longer) < len(names_of.get(larger, (*longer, name))):
                names_of[larger] = longer
    return names_of[max(names_of)]


def spec_layout(shape: Sequence[int], mesh: Any, spec: SpecLike, *, uneven: bool = False) -> ShardingLayout:
    """Return the layout of a planned array. No devices are needed.

    Devices are numbered 0…n−1 in the order of the mesh; the last axis varies fastest.

    Args:
        shape: Global shape of the array.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name, such as
            ``{"data": 8, "fsdp": 32}``. Devices are numbered by their positions in it.
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
    shape, mesh = as_shape(shape), mesh_sizes(mesh)
    if problems := (spec_problems if uneven else strict_problems)(shape, mesh, plain):
        raise SpecError(problems)
    return mesh_layout(shape, mesh, plain.axes, unreduced=plain.unreduced)


def planned_report(
    shape: Sequence[int],
    mesh: Any,
    spec: SpecLike,
    *,
    dtype: Any = "float32",
    name: str | None = None,
    uneven: bool = False,
) -> ArrayReport:
    """Return the report of a planned array: the bytes and the slice on each device. No devices are needed.

    Args:
        shape: Global shape of the array.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name. Devices are numbered by their
            positions in it.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.
        dtype: A dtype such as ``jnp.bfloat16``, or its name, such as ``bfloat16`` or ``int4``.
        name: Name of the array in the report.
        uneven: Whether to allow axes that are not divisible by their number of shards. The last shards
            then have fewer elements or none. Inside jit, XLA pads them to the size of the first.

    Raises:
        SpecError: (a ValueError) If shape, mesh and spec do not match, or the dtype is not known. The message
            lists every problem.
        UnsupportedValueError: (a ValueError) If ``shape`` is not a sequence of integers, or ``mesh`` not a
            mesh.

    >>> report = planned_report((16, 16), {"data": 4, "model": 2}, ("data",), dtype="bfloat16")
    >>> report.nbytes, report.shard_nbytes, report.replicas
    (512, 128, 2)
    """
    shape, mesh = as_shape(shape), mesh_sizes(mesh)
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
        dtype=dtypes.name_of(dtype),
        bits=bits,
        nbytes=packed_nbytes(shape, bits),
        shard_nbytes=packed_nbytes(layout.shard_shape, bits),
        source="array",
        sharding=ShardingDescription(type="NamedSharding", spec=plain, mesh=planned_axes(mesh)),
        layout=layout,
    )


def dtype_bits(dtype: Any) -> int:
    """Return the bits per element of a dtype on a device.

    Args:
        dtype: A dtype such as ``jnp.bfloat16``, or its name, such as ``bfloat16`` or ``int4``.

    Raises:
        SpecError: (a ValueError) If there is no such dtype, or JAX arrays cannot have it.

    >>> dtype_bits("bfloat16"), dtype_bits("int4")
    (16, 4)
    """
    bits = None
    with contextlib.suppress(TypeError):
        bits = dtypes.bits_of_name(dtypes.name_of(dtype))
    if bits is None:
        words = "is not an array dtype: use one such as float32, bfloat16 or int4"
        raise SpecError([f"{plain_text(dtype, repr)} {words}"])
    return bits


def shard_report(report: ArrayReport, device_id: int) -> ShardReport:
    """Return the report of the shard that a device holds.

    Args:
        report: Report of the array. Its ``layout`` must not be None.
        device_id: Id of the device.

    Raises:
        LayoutError: (a ValueError) If the device holds no shard of the array, or ``report.layout`` is None.
        UnsupportedValueError: (a ValueError) If ``report`` is not an ``ArrayReport``, or ``device_id`` not
            an integer.

    >>> report = planned_report((16, 16), {"data": 4, "model": 2}, ("data",))
    >>> shard = shard_report(report, 5)
    >>> shard.index, shard.nbytes, shard.holders
    (((8, 12), (0, 16)), 256, (4, 5))
    """
    from ..facts.reports.mesh import ShardReport  # plans of arrays do not need it

    require_report(report, ArrayReport)
    require(device_id, (int, np.integer), "the id of a device, an integer")
    layout = report.layout
    if layout is None:
        raise LayoutError(
            "the device of each shard is not known: the sharding does not list its devices. "
            "Use a NamedSharding"
        )
    index = layout.index_of(device_id)
    lengths = [piece.stop - piece.start for piece in index]
    return ShardReport(
        device_id=device_id,
        index=tuple((piece.start, piece.stop) for piece in index),
        nbytes=packed_nbytes(lengths, report.bits),
        holders=layout.holders_of(device_id),
        partial_sums=layout.partial_sums,
        platform=layout.platform,
    )


def planned_axes(mesh: Any) -> MeshAxes:
    """Return the axes of a planned mesh."""
    sizes = mesh_sizes(mesh)
    return MeshAxes(tuple(sizes), tuple(sizes.values()))


def xla_report(text: str, mesh: Any = None, shape: Sequence[int] | None = None) -> XlaReport:
    """Explain an XLA sharding: its equivalent PartitionSpec, and the devices of each shard.

    Args:
        text: The sharding, such as ``{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}``, also as
            ``sharding={…}`` or ``GSPMDSharding({…})``. Or one of Shardy, such as
            ``#sdy.sharding<@mesh, [{"x"}, {}]>``, or the type of an array, such as ``float32[8@x,8]``.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name. If None, the mesh in the text,
            as in ``{mesh['x'=4,'y'=2], [{'y'}, {'x'}]}``. Without a mesh, no PartitionSpec is computed of
            ``{devices=…}``, and the devices of named mesh axes are not known.
        shape: Global shape of the array. If None, each tile has one element. The axes need not be divisible
            by their numbers of shards.

    Raises:
        NotationError: (a ValueError) If the text is not a sharding. The message marks the error.
        SpecError: (a ValueError) If the mesh, the shape and the sharding do not match.
        LayoutError: (a ValueError) If the sharding has more than 1,048,576 devices.
        UnsupportedValueError: (a ValueError) If ``text`` is not text or a tuple of several shardings, or
            ``mesh`` not a mesh.

    >>> report = xla_report("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", {"x": 4, "y": 2})
    >>> str(report.spec), report.patterns[0]
    ("P('y',)", 'axis 0: 2 shards, shard k on devices 0,2,4,6 + k')
    """
    reports = xla_reports(text, mesh, shape)
    if len(reports) > 1:
        raise UnsupportedValueError(f"expected one sharding, got a tuple of {len(reports)}: pass one of them")
    return reports[0]


def xla_reports(text: str, mesh: Any = None, shape: Sequence[int] | None = None) -> list[XlaReport]:
    """Explain each sharding of a tuple such as ``{{replicated}, {devices=[4]<=[4]}}``.

    Arguments and errors are those of ``xla_report``, which explains one.
    """
    from ..geometry.layouts.xla import parse_copied  # plans do not need it

    require(text, str, 'an XLA sharding as text, such as "{devices=[2,4]<=[8]}"')
    sizes = None if mesh is None else mesh_sizes(mesh)
    return [
        _explained(copied, copied.mesh if sizes is None else sizes, copied.shape if shape is None else shape)
        for copied in parse_copied(text, sizes)
    ]


def _explained(copied: Copied, mesh: Mapping[str, int] | None, shape: Sequence[int] | None) -> XlaReport:
    from ..facts.reports.mesh import XlaReport
    from ..geometry.layouts.xla import spec_of_xla

    sharding = copied.sharding
    if copied.spec is not None and sharding.kind != "replicated":
        return XlaReport(
            text=str(copied.spec),
            kind=sharding.kind,
            spec=copied.spec,
            patterns=("mesh axes of unknown sizes: pass a mesh to list the devices of each shard",),
        )
    problems = spec_problems(shape or (), mesh or {}, Spec(()))
    if problems:
        raise SpecError(problems)
    counts = sharding.counts
    devices = sharding.device_ids
    if mesh is not None:
        total = math.prod(mesh.values())
        named = f"the mesh {format_mesh(mesh) or 'without axes'}"
        if sharding.kind == "tiled" and total != devices.size:
            problems.append(
                f"{named} has {counted(total, 'device', 'devices')}, but the sharding has {devices.size}"
            )
        problems += [
            f"device {device} is not in {named} of {counted(total, 'device', 'devices')}"
            for device in devices[devices >= total].tolist()[:1]
        ]
    if shape is not None and sharding.kind == "tiled" and len(shape) != len(counts):
        problems.append(
            f"the sharding is for {counted(len(counts), 'axis', 'axes')}, "
            f"but the array has {counted(len(shape), 'axis', 'axes')}: shape {tuple(shape)}"
        )
    if problems:
        raise SpecError(problems)
    spec = None if mesh is None else spec_of_xla(sharding, mesh)
    layout = None
    if sharding.kind == "tiled":
        layout = ShardingLayout(
            shape=tuple(counts if shape is None else shape),
            device_ids=sharding.holders,
            partial_sums=sharding.partial_sums,
            unreduced=spec.unreduced if spec else (),
        )
    elif sharding.kind == "maximal" or (sharding.kind == "replicated" and mesh):
        ids = devices if devices.size else np.arange(math.prod((mesh or {}).values()))
        lengths = tuple(shape or ())
        layout = ShardingLayout(shape=lengths, device_ids=ids.reshape([1] * len(lengths) + [-1]))
    return XlaReport(
        text=str(sharding),
        kind=sharding.kind,
        mesh=None if mesh is None else planned_axes(mesh),
        spec=spec,
        patterns=describe_pattern(layout, copies=_subgroup_nouns(sharding.subgroups)) if layout else (),
        uneven=tuple(map(str, uneven_counts(shape or (), counts))),
        layout=layout,
    )


def _subgroup_nouns(subgroups: Sequence[str]) -> str:
    """Return the nouns for what the devices of one tile hold besides partial sums, such as ``replicas``."""
    nouns = {"replicated": "replicas", "manual": "manual parts"}
    held = (nouns.get(subgroup, subgroup) for subgroup in subgroups if subgroup != "unreduced")
    return " and ".join(dict.fromkeys(held)) or "replicas"
