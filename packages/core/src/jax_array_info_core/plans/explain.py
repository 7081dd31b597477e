"""Explanations of XLA shardings, without JAX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import SpecError
from ..layouts.grid import describe_pattern
from ..layouts.layout import ShardingLayout
from ..layouts.notation import format_mesh
from ..layouts.spec import Spec
from ..layouts.xla import mesh_of_xla, parse_xla_sharding, spec_of_xla
from ..quantities import counted
from ..reports.mesh import XlaReport
from .plan import mesh_sizes, planned_axes, spec_problems, uneven_counts


def xla_report(
    text: str, mesh: Mapping[str, int] | None = None, shape: Sequence[int] | None = None
) -> XlaReport:
    """Explain an XLA sharding: its equivalent PartitionSpec, and the devices of each shard.

    Args:
        text: The sharding, such as ``{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}``.
        mesh: Size of each mesh axis by name. If None, the mesh in the text, as in
            ``{mesh['x'=4,'y'=2], [{'y'}, {'x'}]}``. Without a mesh, no PartitionSpec is computed.
        shape: Global shape of the array. If None, each tile has one element. The axes need not be divisible
            by their numbers of shards.

    Raises:
        NotationError: (a ValueError) If the text is not an XLA sharding. The message marks the error.
        SpecError: (a ValueError) If the mesh, the shape and the sharding do not match.
        LayoutError: (a ValueError) If the sharding has more than 1,048,576 devices.

    >>> report = xla_report("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", {"x": 4, "y": 2})
    >>> str(report.spec), report.patterns[0]
    ("P('y',)", 'axis 0: 2 shards, shard k on devices 0,2,4,6 + k')
    """
    sharding = parse_xla_sharding(text)
    mesh = mesh_of_xla(text) if mesh is None else mesh_sizes(mesh)
    problems = spec_problems(shape or (), mesh or {}, Spec(()))
    if problems:
        raise SpecError(problems)
    counts = sharding.counts
    devices = sharding.device_ids
    if mesh is not None:
        total = math.prod(mesh.values())
        if sharding.kind == "tiled" and total != devices.size:
            problems.append(
                f"the mesh {format_mesh(mesh)} has {total} devices, but the sharding has {devices.size}"
            )
        problems += [
            f"device {device} is not in the mesh {format_mesh(mesh)} of {total} devices"
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
    found = (nouns.get(subgroup, subgroup) for subgroup in subgroups if subgroup != "unreduced")
    return " and ".join(dict.fromkeys(found)) or "replicas"
