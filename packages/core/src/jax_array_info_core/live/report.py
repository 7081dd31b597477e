"""The report on all live arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import NoneType
from typing import Any, Literal, NamedTuple

from .. import compat
from ..arrays.labels import bases_of_views, labels_by_id
from ..compat.shardings import describe_sharding, sharding_layout
from ..errors import LayoutError, UnsupportedValueError, require
from ..grouping import by_key, sums_by_key
from ..holders.search import Holders, OnProgress, checked_seconds, find_holders
from ..layouts.dtypes import bits_per_element, packed_nbytes, type_text
from ..names import with_former_keywords
from ..origins.origins import array_origins
from ..origins.profiles import buffer_nbytes
from ..reading_lock import one_at_a_time
from ..reports.live import LiveArrayGroup, LiveArrayReport
from ..reports.origin import Origin


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
    description = describe_sharding(sharding, len(shape))
    template = LiveArrayGroup(
        shape=shape,
        dtype=str(dtype),
        nbytes=packed_nbytes(shape, bits) or 0,
        shard_nbytes=packed_nbytes(shard_shape, bits) or 0,
        device_count=sharding.num_devices,
        replicas=replicas,
        partial_sums=partial_sums,
        unreduced=unreduced,
        replicated_over=description.unused_axes,
        sharding=description.with_mesh,
        memory_kind=sharding.memory_kind,
        label=None,
        count=1,
    )
    return ShardedType(template, tuple(sorted(device.id for device in sharding.addressable_devices)))


def local_nbytes(counts: Iterable[tuple[ShardedType, int]]) -> Counter[int]:
    """Return the bytes of some arrays on each device of this process. A shared buffer counts each time.

    Args:
        counts: Sharded types, each with a number of arrays.
    """
    return sums_by_key(
        (device, array_type.template.shard_nbytes * count)
        for array_type, count in counts
        for device in array_type.local_devices
    )


class DeviceBytes(NamedTuple):
    """The bytes of the live arrays on the devices of this process."""

    on_devices: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of each device, without host memory."""

    in_host: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of the devices that have arrays in host memory."""

    source: Literal["profile", "arrays"]
    """``profile``: from the backend's memory profile; ``arrays``: summed over the arrays."""


def device_bytes(
    devices: Sequence[Any], profile: Mapping[str, int] | None, counts: Iterable[tuple[ShardedType, int]]
) -> DeviceBytes:
    """Return the bytes of the live arrays on each device.

    Args:
        devices: The devices of one platform in this process.
        profile: The result of ``profile_nbytes``. It must be taken before ``jax.live_arrays()``, whose list
            keeps arrays alive that other code drops meanwhile.
        counts: Sharded types, each with a number of live arrays. A type may occur several times.
    """
    defaults = {device.id: device.default_memory().kind for device in devices}
    in_host: list[tuple[ShardedType, int]] = []
    on_device: list[tuple[ShardedType, int]] = []
    for array_type, count in counts:
        (in_host if is_in_host_memory(array_type, defaults) else on_device).append((array_type, count))
    host, nbytes = local_nbytes(in_host), local_nbytes(on_device)
    if profile is not None:
        # The profile does not separate memory kinds. The sum over the arrays in host memory is too large
        # where they share buffers, so the arrays on the device give a lower bound.
        least = _least_nbytes(array_type for array_type, _ in on_device)
        for device in devices:
            profiled = profile.get(str(device), 0)
            nbytes[device.id] = min(profiled, max(profiled - host[device.id], least[device.id]))
            host[device.id] = min(host[device.id], profiled - nbytes[device.id])
    return DeviceBytes(
        tuple((device.id, nbytes[device.id]) for device in devices),
        tuple((device.id, host[device.id]) for device in devices if host[device.id]),
        "arrays" if profile is None else "profile",
    )


def _least_nbytes(array_types: Iterable[ShardedType]) -> Counter[int]:
    """Return a lower bound of the bytes on each device: shards of different sizes share no buffer."""
    return sums_by_key(
        {
            (device, array_type.template.shard_nbytes)
            for array_type in array_types
            for device in array_type.local_devices
        }
    )


def is_in_host_memory(array_type: ShardedType, defaults: Mapping[int, str | None]) -> bool:
    """Return whether arrays are in host memory on devices that have another default memory kind."""
    memory_kind = array_type.template.memory_kind
    is_default = all(memory_kind == defaults.get(device) for device in array_type.local_devices)
    return "host" in (memory_kind or "") and not is_default


def profile_nbytes(platform: str | None) -> dict[str, int] | None:
    """Return the bytes on each device by its name, or None where the backend has no memory profile."""
    import jax

    try:
        return buffer_nbytes(jax.profiler.device_memory_profile(platform))
    except Exception:
        # Backends without a memory profile raise different errors (XlaRuntimeError, NotImplementedError).
        # In a signal handler, protobuf may be only partly imported.
        return None


_Key = tuple[ShardedType, str | None, Origin | None, str | None]
"""Sharded type, label, allocation site and, for a view, the array whose buffers it shares."""


class LiveArrays:
    """Live arrays, read and counted once."""

    def __init__(self, arrays: Sequence[Any], *, origins: bool) -> None:
        self._arrays = arrays
        self._columns = _columns(arrays, origins)
        # The keys are counted as they come: storing 10,000 of them would take longer than counting.
        self._counts: Counter[_Key] = Counter(zip(*self._columns, strict=False))

    def type_counts(self) -> list[tuple[ShardedType, int]]:
        """Return sharded types, each with a number of arrays. Views take no memory and are left out."""
        return [(key[0], count) for key, count in self._counts.items() if key[3] is None]

    def groups(self, found: Holders | None = None) -> tuple[LiveArrayGroup, ...]:
        """Return groups of arrays that differ at most in their devices, the largest first.

        Args:
            found: What refers to each array; None without a search for it.
        """
        keys_of = by_key((_shown(*key), key) for key in self._counts)
        ids_of: dict[tuple[Any, ...], list[int]] = {}
        if found is not None:
            # jax.live_arrays() lists the newest first. Paths are listed from the oldest array.
            rows = zip(self._arrays, *self._columns, strict=False)
            ids_of = by_key((_shown(*key), id(array)) for array, *key in reversed(list(rows)))
        groups = [
            dataclasses.replace(self._group(keys), **({} if found is None else _held(found, ids_of[shown])))
            for shown, keys in keys_of.items()
        ]
        return tuple(sorted(groups, key=_largest_first))

    def _group(self, keys: Sequence[_Key]) -> LiveArrayGroup:
        array_type, label, origin, views_of = keys[0]
        device_counts = sums_by_key(
            (device, self._counts[key]) for key in keys for device in key[0].local_devices
        )
        return dataclasses.replace(
            array_type.template,
            shard_nbytes=array_type.template.shard_nbytes if views_of is None else 0,
            label=label,
            count=sum(self._counts[key] for key in keys),
            device_counts=tuple(sorted(device_counts.items())),
            origin=origin,
            views_of=views_of,
        )


def _held(found: Holders, ids: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a group that say what refers to its arrays."""
    return {
        "holders": tuple(dict.fromkeys(found.paths[key] for key in ids if key in found.paths)),
        "other_holder_count": sum(found.other_counts.get(key, 0) for key in ids),
        "unheld_count": sum(key not in found.paths and key not in found.garbage for key in ids),
        "garbage_count": sum(key in found.garbage for key in ids),
    }


def _columns(arrays: Sequence[Any], origins: bool) -> tuple[Iterable[Any], ...]:
    """Return the columns of the keys of some arrays: sharded types, labels, allocation sites, views."""
    cached_type = functools.cache(sharded_type)
    array_types = [cached_type(array.shape, array.dtype, array.sharding) for array in arrays]
    labels = labels_by_id()
    bases = {
        view: labels.get(id(base)) or type_text(base.dtype, base.shape)
        for view, base in bases_of_views(arrays).items()
    }
    nothing = repeat(None)
    return (
        array_types,
        [labels.get(id(array)) for array in arrays] if labels else nothing,
        list(map(array_origins(), arrays)) if origins else nothing,
        [bases.get(id(array)) for array in arrays] if bases else nothing,
    )


def _shown(array_type: ShardedType, *others: Any) -> tuple[Any, ...]:
    """Return the key of the group of an array: all but its devices, and whether any is in this process."""
    return (array_type.template, bool(array_type.local_devices), *others)


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


@with_former_keywords(holders="referrers")
def live_array_report(
    platform: str | None = None,
    *,
    device: Any = None,
    origins: bool = False,
    referrers: bool = False,
    max_seconds: float | None = 5.0,
    on_progress: OnProgress | None = None,
) -> LiveArrayReport:
    """Return the live arrays of this process and their bytes per device.

    The report covers the arrays of ``jax.live_arrays()``. Views, such as the shards that
    ``array.addressable_shards`` creates, form separate groups with ``views_of`` and 0 bytes. Other shared
    buffers are counted once in ``device_nbytes``, which comes from the backend's memory profile.

    The call never waits for a computation, adds no array and keeps none alive. It takes a few µs per array.
    With ``referrers``, it searches all objects of the program, which takes a second or more per million
    objects.

    >>> import jax.numpy as jnp
    >>> weights = jnp.zeros((7, 11))
    >>> [group.count for group in live_array_report().groups if group.shape == (7, 11)]
    [1]

    Args:
        platform: The platform, such as ``"cpu"``. Defaults to that of ``device``, or JAX's default backend.
        device: A device of ``jax.local_devices()``. The report then covers the arrays that have a shard on
            it, and their bytes there. Defaults to all devices of this process.
        origins: Whether to add the allocation site of each group: the innermost line outside JAX, the
            standard library, ``config.hidden_modules`` and installed packages other than
            ``config.user_packages``.
        referrers: Whether to add the shortest reference path to each array, and the number of further
            references. Paths begin at variables of modules or running functions, closures, generators or
            classes.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.
        on_progress: Function that is called repeatedly during the search, with the seconds since its start.

    Raises:
        UnsupportedValueError: (a ValueError) If ``device`` is not a device of ``platform`` in this process.
        ValueError: If ``max_seconds`` is negative or not a number.
    """
    import jax

    checked_seconds(max_seconds)
    require(platform, (str, NoneType), 'the name of a platform, such as "cpu"')
    devices = jax.local_devices(backend=platform or getattr(device, "platform", None))
    platform = devices[0].platform
    if device is not None and device not in devices:
        raise UnsupportedValueError(
            f"device={device!r} is not a {platform} device of this process: "
            "pass one of jax.local_devices(), such as jax.local_devices()[0]"
        )
    with one_at_a_time():
        # First, since the list of arrays keeps them alive.
        profile = profile_nbytes(platform)
        arrays = jax.live_arrays(platform)
        if device is not None:
            arrays = [array for array in arrays if device in array.sharding.device_set]
        live = LiveArrays(arrays, origins=origins)
        held = device_bytes(devices, profile, live.type_counts())
        found = find_holders(arrays, max_seconds=max_seconds, on_progress=on_progress) if referrers else None
        groups = live.groups(found)
        if device is not None:
            groups = tuple(
                dataclasses.replace(group, device_counts=_of_device(device, group.device_counts))
                for group in groups
            )
        del live, arrays
    return LiveArrayReport(
        platform=platform,
        visible_devices=jax.device_count(platform),
        groups=groups,
        array_count=sum(group.count for group in groups),
        device_nbytes=_of_device(device, held.on_devices),
        nbytes_source=held.source,
        host_nbytes=_of_device(device, held.in_host),
        origins=known_origins() if origins else "not asked",
        holders="not asked" if found is None else "complete" if found.is_complete else "incomplete",
        device=None if device is None else device.id,
    )


def _of_device(device: Any, numbers: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of device id and number that are those of a device; all of them for None."""
    return tuple(pair for pair in numbers if device is None or pair[0] == device.id)


def known_origins() -> Literal["known", "not told by this jax"]:
    """Return whether JAX records the allocation sites of arrays."""
    return "known" if compat.has_tracebacks() else "not told by this jax"
