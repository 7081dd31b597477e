"""All live arrays → LiveArrayReport."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from . import compat
from .arrays import packed_nbytes
from .errors import LayoutError
from .labels import labels_by_id
from .model import LiveArrayGroup, LiveArrayReport
from .profile import buffer_nbytes
from .shardings import sharding_layout


def live_array_report(platform: str | None = None) -> LiveArrayReport:
    """Return what all arrays that are alive take on each device of this process.

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
    groups: Counter[LiveArrayGroup] = Counter()
    for kind, count in kinds.items():
        groups[kind.group] += count
    return LiveArrayReport(
        platform=devices[0].platform,
        visible_devices=jax.device_count(platform),
        groups=tuple(
            dataclasses.replace(group, count=count)
            for group, count in sorted(groups.items(), key=_largest_first)
        ),
        array_count=groups.total(),
        device_nbytes=tuple((device.id, nbytes[device.id]) for device in devices),
        nbytes_source=source,
    )


def _largest_first(counted: tuple[LiveArrayGroup, int]) -> tuple[Any, ...]:
    group, count = counted
    return (-group.shard_nbytes, group.shape, group.dtype, group.label or "", -count)


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """What arrays of one shape, dtype, label and sharding have in common."""

    group: LiveArrayGroup
    devices: frozenset[int]


def _count_kinds(arrays: Sequence[Any]) -> Counter[_Kind]:
    """Return how many arrays there are of each kind.

    Types and shardings are told apart by identity first, which costs no hash of theirs: arrays that
    one computation made share both. The list of arrays keeps them, so that no identity is used twice.
    """
    labels = labels_by_id()
    keys = [
        (id(array.aval), id(array.sharding), labels.get(id(array)) if labels else None) for array in arrays
    ]
    samples = dict(zip(keys, arrays, strict=True))
    kinds: Counter[_Kind] = Counter()
    known: dict[tuple[Any, ...], _Kind] = {}
    for key, count in Counter(keys).items():
        array, label = samples[key], key[-1]
        content = (array.shape, array.dtype, array.sharding, label)
        if content not in known:
            known[content] = _kind_of(*content)
        kinds[known[content]] += count
    return kinds


def _kind_of(shape: tuple[int, ...], dtype: Any, sharding: Any, label: str | None) -> _Kind:
    try:
        layout = sharding_layout(shape, sharding)
        shard_shape, replicas = layout.shard_shape, layout.replicas
    except LayoutError:
        shard_shape, replicas = sharding.shard_shape(shape), 1
    bits = compat.bits_per_element(dtype)
    group = LiveArrayGroup(
        shape=shape,
        dtype=str(dtype),
        nbytes=packed_nbytes(shape, bits) or 0,
        shard_nbytes=packed_nbytes(shard_shape, bits) or 0,
        device_count=sharding.num_devices,
        replicas=replicas,
        label=label,
        count=1,
    )
    return _Kind(group, frozenset(device.id for device in sharding.device_set))


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
                nbytes[device_id] += kind.group.shard_nbytes * count
        return nbytes, "arrays"
    by_name = buffer_nbytes(profile)
    for device in devices:
        nbytes[device.id] = by_name.get(str(device), 0)
    return nbytes, "profile"
