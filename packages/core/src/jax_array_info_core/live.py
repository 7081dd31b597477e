"""All live arrays → LiveArrayReport."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from . import dtypes
from .errors import LayoutError
from .labels import labels_by_id
from .memory_model import LiveArrayGroup, LiveArrayReport
from .profile import buffer_nbytes
from .shardings import sharding_layout
from .units import packed_nbytes


def live_array_report(platform: str | None = None) -> LiveArrayReport:
    """Return what all arrays that are alive in this process take on each of its devices.

    Nothing is waited for, no array is added or kept alive. Arrays are those of ``jax.live_arrays``:
    shards that a program has taken from an array (``array.addressable_shards``) are listed beside
    it, but their memory counts once in ``device_nbytes``, which comes from the backend's own memory
    profile. Takes about two microseconds an array.

    Args:
        platform: The platform to look at, such as ``"cpu"``; the default one when None.
    """
    import jax

    devices = jax.local_devices(backend=platform)
    kinds = _count_kinds(jax.live_arrays(platform))
    nbytes, source = _device_nbytes(platform, devices, kinds)
    groups = _groups(kinds)
    return LiveArrayReport(
        platform=devices[0].platform,
        visible_devices=jax.device_count(platform),
        groups=tuple(sorted(groups, key=_largest_first)),
        array_count=sum(group.count for group in groups),
        device_nbytes=tuple((device.id, nbytes[device.id]) for device in devices),
        nbytes_source=source,
    )


def _largest_first(group: LiveArrayGroup) -> tuple[Any, ...]:
    return (-group.local_nbytes, group.shape, group.dtype, group.label or "", -group.count)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """What arrays of one shape, dtype and sharding have in common."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    shard_nbytes: int
    device_count: int
    replicas: int
    local_devices: tuple[int, ...]

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
            bool(self.local_devices),
        )


_Counted = Counter[tuple[_Kind, str | None]]
"""How many arrays there are of each kind and label."""


def _count_kinds(arrays: Sequence[Any]) -> _Counted:
    """Return how many arrays there are of each kind and label.

    Grouped while reading: an object for each array would cost more than all the rest.
    """
    labels = labels_by_id()
    if labels:
        keys = [(array.shape, array.dtype, array.sharding, labels.get(id(array))) for array in arrays]
    else:
        keys = [(array.shape, array.dtype, array.sharding, None) for array in arrays]
    kinds: dict[tuple[Any, ...], _Kind] = {}
    counted: _Counted = Counter()
    for (*content, label), count in Counter(keys).items():
        key = tuple(content)
        if key not in kinds:
            kinds[key] = _kind_of(*content)
        counted[kinds[key], label] += count
    return counted


def _kind_of(shape: tuple[int, ...], dtype: Any, sharding: Any) -> _Kind:
    try:
        layout = sharding_layout(shape, sharding)
        shard_shape, replicas = layout.shard_shape, layout.replicas
    except LayoutError:
        shard_shape, replicas = sharding.shard_shape(shape), 1
    bits = dtypes.bits_per_element(dtype)
    return _Kind(
        shape,
        str(dtype),
        packed_nbytes(shape, bits) or 0,
        packed_nbytes(shard_shape, bits) or 0,
        sharding.num_devices,
        replicas,
        tuple(sorted(device.id for device in sharding.addressable_devices)),
    )


def _groups(counted: _Counted) -> list[LiveArrayGroup]:
    """Return arrays of kinds that are alike but for where they are, together."""
    first: dict[tuple[Any, ...], tuple[_Kind, str | None]] = {}
    totals: Counter[tuple[Any, ...]] = Counter()
    places: dict[tuple[Any, ...], Counter[int]] = {}
    for (kind, label), count in counted.items():
        look = (*kind.shown, label)
        first.setdefault(look, (kind, label))
        totals[look] += count
        held = places.setdefault(look, Counter())
        for device in kind.local_devices:
            held[device] += count
    return [
        LiveArrayGroup(
            kind.shape,
            kind.dtype,
            kind.nbytes,
            kind.shard_nbytes,
            kind.device_count,
            kind.replicas,
            label,
            totals[look],
            tuple(sorted(places[look].items())),
        )
        for look, (kind, label) in first.items()
    ]


def _device_nbytes(
    platform: str | None, devices: list[Any], counted: _Counted
) -> tuple[Counter[int], Literal["profile", "arrays"]]:
    """Return the bytes on each device, from the backend's profile where it has one."""
    import jax

    nbytes: Counter[int] = Counter()
    try:
        profile = jax.profiler.device_memory_profile(platform)
    except Exception:
        # Backends without a profile raise what they like (XlaRuntimeError, NotImplementedError).
        for (kind, _), count in counted.items():
            for device_id in kind.local_devices:
                nbytes[device_id] += kind.shard_nbytes * count
        return nbytes, "arrays"
    by_name = buffer_nbytes(profile)
    for device in devices:
        nbytes[device.id] = by_name.get(str(device), 0)
    return nbytes, "profile"
