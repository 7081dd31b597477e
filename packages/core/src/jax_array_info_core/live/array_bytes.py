"""Sizes of live arrays by shape, dtype and sharding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..compat.shardings import describe_sharding, sharding_layout
from ..errors import LayoutError
from ..layouts.dtypes import bits_per_element, packed_nbytes
from ..layouts.notation import format_mesh
from ..reports.live import LiveArrayGroup


@dataclass(frozen=True, slots=True, eq=False)
class ShardedType:
    """A shape, dtype and sharding. Compared by identity, which makes counting many arrays fast."""

    template: LiveArrayGroup
    """One array of this type, without its devices."""

    local_devices: tuple[int, ...]
    """The ids of the devices of this process that hold a shard."""


def sharded_type(shape: tuple[int, ...], dtype: Any, sharding: Any) -> ShardedType:
    """Return the sharded type of a shape, dtype and sharding."""
    try:
        layout = sharding_layout(shape, sharding)
        shard_shape, replicas = layout.shard_shape, layout.replicas
        partial_sums, unreduced = layout.partial_sums, layout.unreduced
    except LayoutError:
        shard_shape, replicas = sharding.shard_shape(shape), 1
        partial_sums, unreduced = 1, ()
    bits = bits_per_element(dtype)
    template = LiveArrayGroup(
        shape=shape,
        dtype=str(dtype),
        nbytes=packed_nbytes(shape, bits) or 0,
        shard_nbytes=packed_nbytes(shard_shape, bits) or 0,
        device_count=sharding.num_devices,
        replicas=replicas,
        partial_sums=partial_sums,
        unreduced=unreduced,
        sharding=_sharding_text(sharding, len(shape)),
        memory_kind=sharding.memory_kind,
        label=None,
        count=1,
    )
    return ShardedType(template, tuple(sorted(device.id for device in sharding.addressable_devices)))


def _sharding_text(sharding: Any, ndim: int) -> str:
    described = describe_sharding(sharding, ndim)
    if described.spec is None or described.mesh is None:
        return described.type if described.text is None else f"{described.type} {described.text}"
    return f"{described.spec} over {format_mesh(described.mesh.shape)}"


def local_nbytes(counts: Iterable[tuple[ShardedType, int]]) -> Counter[int]:
    """Return the bytes of some arrays on each device of this process. A shared buffer counts each time.

    Args:
        counts: Sharded types, each with a number of arrays.
    """
    nbytes: Counter[int] = Counter()
    for array_type, count in counts:
        for device in array_type.local_devices:
            nbytes[device] += array_type.template.shard_nbytes * count
    return nbytes
