"""Live arrays, counted: what is alike among them, and what they take on each device."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..arrays.labels import labels_by_id
from ..arrays.views import bases_of_views
from ..compat.shardings import describe_sharding, sharding_layout
from ..errors import LayoutError
from ..layouts import dtypes
from ..layouts.dtypes import packed_nbytes
from ..layouts.notation import format_mesh
from ..origins.origins import array_origins
from ..reports.live import LiveArrayGroup
from ..reports.origin import Origin


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def shown(self) -> tuple[Any, ...]:
        """What a group shows of it: all but on which devices it is."""
        return (
            self.shape,
            self.dtype,
            self.nbytes,
            self.shard_nbytes,
            self.device_count,
            self.replicas,
            self.sharding,
            self.memory_kind,
            bool(self.local_devices),
        )


def kind_of(shape: tuple[int, ...], dtype: Any, sharding: Any) -> Kind:
    """Return what arrays of a shape, dtype and sharding have in common."""
    try:
        layout = sharding_layout(shape, sharding)
        shard_shape, replicas = layout.shard_shape, layout.replicas
    except LayoutError:
        shard_shape, replicas = sharding.shard_shape(shape), 1
    bits = dtypes.bits_per_element(dtype)
    return Kind(
        shape,
        str(dtype),
        packed_nbytes(shape, bits) or 0,
        packed_nbytes(shard_shape, bits) or 0,
        sharding.num_devices,
        replicas,
        _sharding_text(sharding, len(shape)),
        sharding.memory_kind,
        tuple(sorted(device.id for device in sharding.addressable_devices)),
    )


def _sharding_text(sharding: Any, ndim: int) -> str:
    described = describe_sharding(sharding, ndim)
    if described.spec is None or described.mesh is None:
        return described.type if described.text is None else f"{described.type} {described.text}"
    return f"{described.spec} over {format_mesh(described.mesh.shape)}"


def local_nbytes(counts: Mapping[Kind, int]) -> Counter[int]:
    """Return what so many arrays of each kind take on each device of this process, each by itself."""
    nbytes: Counter[int] = Counter()
    for kind, count in counts.items():
        for device in kind.local_devices:
            nbytes[device] += kind.shard_nbytes * count
    return nbytes


_Key = tuple[tuple[int, ...], Any, Any, str | None, Origin | None, str | None]
"""Shape, dtype, sharding, label and origin of an array, and what it is a view of."""


class Population:
    """Arrays, counted while they are read: an object for each of them would cost more than all the rest."""

    def __init__(self, arrays: Sequence[Any], *, origins: bool) -> None:
        self.arrays = arrays
        self.keys = _keys(arrays, origins)
        """What is told apart, of each array."""
        self.counts = Counter(self.keys)
        self._kinds: dict[tuple[Any, ...], Kind] = {}
        self.kinds = {key: self._kind(key) for key in self.counts}

    def _kind(self, key: _Key) -> Kind:
        content = key[:3]
        if content not in self._kinds:
            self._kinds[content] = kind_of(*content)
        return self._kinds[content]

    def kind_counts(self) -> Counter[Kind]:
        """Return how many arrays of each kind there are, without views: they take nothing."""
        counts: Counter[Kind] = Counter()
        for key, count in self.counts.items():
            if key[5] is None:
                counts[self.kinds[key]] += count
        return counts

    def groups(self, holders: Mapping[int, Sequence[str]] | None = None) -> tuple[LiveArrayGroup, ...]:
        """Return arrays that are alike but for the devices they are on, together, the largest first.

        Args:
            holders: The paths to each array, by its ``id``; None where that was not asked.
        """
        rows: dict[tuple[Any, ...], _Row] = {}
        row_of: dict[_Key, _Row] = {}
        for key, count in self.counts.items():
            kind, more = self.kinds[key], key[3:]
            row = rows.setdefault((*kind.shown, *more), _Row(kind, *more))
            row.add(count, kind.local_devices)
            row_of[key] = row
        if holders is not None:
            # The newest come first among those that are alive; people count from the oldest.
            for array, key in zip(reversed(self.arrays), reversed(self.keys), strict=True):
                row_of[key].hold(holders.get(id(array), ()))
        return tuple(sorted((row.group() for row in rows.values()), key=_largest_first))


class _Row:
    """A group that is being counted."""

    def __init__(self, kind: Kind, label: str | None, origin: Origin | None, views_of: str | None) -> None:
        self.kind = kind
        self.label = label
        self.origin = origin
        self.views_of = views_of
        self.count = 0
        self.places: Counter[int] = Counter()
        self.holders: dict[str, None] = {}
        self.more_holders: dict[str, None] = {}
        self.unheld_count = 0

    def add(self, count: int, devices: Sequence[int]) -> None:
        """Count so many arrays more, which are on these devices of this process."""
        self.count += count
        for device in devices:
            self.places[device] += count

    def hold(self, paths: Sequence[str]) -> None:
        """Take note of who holds one of the arrays."""
        # One of each array first: the others say less that is new.
        self.holders.update(dict.fromkeys(paths[:1]))
        self.more_holders.update(dict.fromkeys(paths[1:]))
        self.unheld_count += not paths

    def group(self) -> LiveArrayGroup:
        """Return what has been counted."""
        kind = self.kind
        return LiveArrayGroup(
            shape=kind.shape,
            dtype=kind.dtype,
            nbytes=kind.nbytes,
            shard_nbytes=kind.shard_nbytes if self.views_of is None else 0,
            device_count=kind.device_count,
            replicas=kind.replicas,
            label=self.label,
            count=self.count,
            device_counts=tuple(sorted(self.places.items())),
            sharding=kind.sharding,
            memory_kind=kind.memory_kind,
            origin=self.origin,
            holders=tuple(self.holders | self.more_holders),
            unheld_count=self.unheld_count,
            views_of=self.views_of,
        )


def _largest_first(group: LiveArrayGroup) -> tuple[Any, ...]:
    origin = group.origin
    where = (origin.file, origin.line) if origin else ("", 0)
    return (
        -group.local_nbytes,
        group.shape,
        group.dtype,
        group.label or "",
        -group.count,
        group.sharding,
        group.memory_kind or "",
        where,
        group.views_of or "",
    )


def _keys(arrays: Sequence[Any], origins: bool) -> list[_Key]:
    """Return what is told apart, of each array."""
    labels = labels_by_id()
    label_of = (labels.get(id(array)) for array in arrays) if labels else itertools.repeat(None)
    origin_of = map(array_origins(), arrays) if origins else itertools.repeat(None)
    bases = {
        view: labels.get(id(base)) or dtypes.type_text(base.dtype, base.shape)
        for view, base in bases_of_views(arrays).items()
    }
    base_of = (bases.get(id(array)) for array in arrays) if bases else itertools.repeat(None)
    return [
        (array.shape, array.dtype, array.sharding, label, origin, base)
        for array, label, origin, base in zip(arrays, label_of, origin_of, base_of, strict=False)
    ]
