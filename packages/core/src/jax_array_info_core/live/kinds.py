"""Kinds of live arrays: those of one shape, dtype and sharding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..arrays.shardings import describe_sharding, sharding_layout
from ..errors import LayoutError
from ..layouts.dtypes import bits_per_element, packed_nbytes
from ..layouts.notation import format_mesh


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """What arrays of one shape, dtype and sharding have in common."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    shard_nbytes: int
    device_count: int
    replicas: int
    sharding: str
    memory_kind: str | None
    local_devices: tuple[int, ...]

    @property
    def local_nbytes(self) -> int:
        """Bytes of one array on each device of this process that holds it; 0 where none does."""
        return self.shard_nbytes if self.local_devices else 0


def kind_of(shape: tuple[int, ...], dtype: Any, sharding: Any) -> Kind:
    """Return what arrays of a shape, dtype and sharding have in common."""
    try:
        layout = sharding_layout(shape, sharding)
        shard_shape, replicas = layout.shard_shape, layout.replicas
    except LayoutError:
        shard_shape, replicas = sharding.shard_shape(shape), 1
    bits = bits_per_element(dtype)
    return Kind(
        shape=shape,
        dtype=str(dtype),
        nbytes=packed_nbytes(shape, bits) or 0,
        shard_nbytes=packed_nbytes(shard_shape, bits) or 0,
        device_count=sharding.num_devices,
        replicas=replicas,
        sharding=_sharding_text(sharding, len(shape)),
        memory_kind=sharding.memory_kind,
        local_devices=tuple(sorted(device.id for device in sharding.addressable_devices)),
    )


def _sharding_text(sharding: Any, ndim: int) -> str:
    described = describe_sharding(sharding, ndim)
    if described.spec is None or described.mesh is None:
        return described.type if described.text is None else f"{described.type} {described.text}"
    return f"{described.spec} over {format_mesh(described.mesh.shape)}"


def local_nbytes(counts: Iterable[tuple[Kind, int]]) -> Counter[int]:
    """Return what so many arrays of each kind take on each device of this process, each by itself."""
    nbytes: Counter[int] = Counter()
    for kind, count in counts:
        for device in kind.local_devices:
            nbytes[device] += kind.shard_nbytes * count
    return nbytes
