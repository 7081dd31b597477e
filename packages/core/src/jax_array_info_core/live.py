"""All live arrays → LiveArrayReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from . import compat
from .arrays import packed_nbytes
from .errors import LayoutError
from .labels import labels_by_id
from .layout import ShardingLayout
from .model import LiveArrayGroup, LiveArrayReport
from .profile import buffer_nbytes
from .shardings import sharding_layout


def live_array_report(platform: str | None = None) -> LiveArrayReport:
    """Return what all arrays that are alive take on each device of this process.

    Nothing is waited for, no array is added or kept alive. Arrays are those of ``jax.live_arrays``:
    shards that a program has taken from an array (``array.addressable_shards``) are listed beside
    it, but their memory counts once in ``device_nbytes``, which comes from the backend's own memory
    profile. Takes about a microsecond an array.

    Args:
        platform: The platform to look at, such as ``"cpu"``; the default one when None.
    """
    import jax

    devices = jax.local_devices(backend=platform)
    groups, kinds = _group(compat.live_arrays(platform))
    nbytes, source = _device_nbytes(platform, devices, kinds)
    return LiveArrayReport(
        platform=devices[0].platform,
        visible_devices=jax.device_count(platform),
        groups=tuple(sorted(groups, key=_largest_first)),
        array_count=sum(group.count for group in groups),
        device_nbytes=tuple((device.id, nbytes[device.id]) for device in devices),
        nbytes_source=source,
    )


def _largest_first(group: LiveArrayGroup) -> tuple[Any, ...]:
    return (-group.shard_nbytes, group.shape, group.dtype, group.label or "", -group.count)


class _Kind:
    """Arrays of one shape, dtype and sharding."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, sharding: Any) -> None:
        bits = compat.bits_per_element(dtype) or 0
        self.shape = shape
        self.dtype = str(dtype)
        try:
            self.layout: ShardingLayout | None = sharding_layout(shape, sharding)
            shard_shape = self.layout.shard_shape
        except LayoutError:
            self.layout = None
            shard_shape = sharding.shard_shape(shape)
        self.nbytes = packed_nbytes(shape, bits) or 0
        self.shard_nbytes = packed_nbytes(shard_shape, bits) or 0
        self.device_count = sharding.num_devices
        self.devices = tuple(device.id for device in sharding.device_set)

    def group(self, label: str | None) -> LiveArrayGroup:
        return LiveArrayGroup(
            self.shape,
            self.dtype,
            self.nbytes,
            self.shard_nbytes,
            self.device_count,
            self.layout.replicas if self.layout else 1,
            label,
            0,
        )


def _group(arrays: Iterable[Any]) -> tuple[list[LiveArrayGroup], Counter[_Kind]]:
    """Return the arrays grouped by what a table shows of them, and counted by kind.

    Shardings are told apart by identity first, which costs no hash of theirs: arrays that one
    computation made share one. They are kept while reading so that no identity is used twice.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    shardings: dict[int, Any] = {}
    labels = labels_by_id()
    for array in arrays:
        sharding = array.sharding
        shardings[id(sharding)] = sharding
        counts[array.shape, array.dtype, id(sharding), labels.get(id(array)) if labels else None] += 1
    by_content: dict[tuple[Any, ...], _Kind] = {}
    kinds: Counter[_Kind] = Counter()
    groups: Counter[LiveArrayGroup] = Counter()
    for (shape, dtype, sharding_id, label), count in counts.items():
        sharding = shardings[sharding_id]
        content = (shape, dtype, sharding)
        if content not in by_content:
            by_content[content] = _Kind(shape, dtype, sharding)
        kind = by_content[content]
        kinds[kind] += count
        groups[kind.group(label)] += count
    return [_counted(group, count) for group, count in groups.items()], kinds


def _counted(group: LiveArrayGroup, count: int) -> LiveArrayGroup:
    import dataclasses

    return dataclasses.replace(group, count=count)


def _device_nbytes(
    platform: str | None, devices: list[Any], kinds: Counter[_Kind]
) -> tuple[Counter[int], Literal["profile", "arrays"]]:
    """Return the bytes on each device, from the backend's profile where it has one."""
    import jax

    nbytes: Counter[int] = Counter()
    try:
        profile = jax.profiler.device_memory_profile(platform)
    except Exception:
        # Backends without a profile raise what they like (XlaRuntimeError, NotImplementedError).
        for kind, count in kinds.items():
            for device_id in kind.devices:
                nbytes[device_id] += kind.shard_nbytes * count
        return nbytes, "arrays"
    by_name = buffer_nbytes(profile)
    for device in devices:
        nbytes[device.id] = by_name.get(str(device), 0)
    return nbytes, "profile"
