"""Census of the live arrays: those that are alive, their kinds, and their bytes on each device."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import is_
from typing import Any, Literal, NamedTuple, TypeVar

from ...base.errors import LayoutError
from ...base.grouping import sums_by_key
from ...compat.arrays import has_tracebacks, shard_views, traceback_of
from ...compat.shardings import describe_sharding, is_named, sharding_layout
from ...facts.reports.live import LiveArrayGroup
from ...facts.reports.origin import Origin
from ...geometry.layouts.dtypes import bits_per_element, packed_nbytes, type_text
from ..origins.origins import traceback_origins
from ..origins.profiles import buffer_nbytes
from .trends import Level, Site

_LONGEST = 0.0025
"""Seconds after which other threads run."""
_READ = 10
"""Number of arrays that are read between two looks at the clock."""
_SEARCHED = 500
"""Number of arrays that are searched for views, or counted, before other threads run."""
_MOST_KNOWN = 4096
"""Number of combinations of shape, dtype, sharding and traceback that are remembered."""

_T = TypeVar("_T")
_identity = object.__hash__
"""Identity of an object as a number. ``id`` is slower once JAX is imported, and arrays have no hash."""


def array_number(array: Any) -> int:
    """Return the number of an array in a census that knows it: that of its weak reference."""
    return _identity(weakref.ref(array))


@dataclass(frozen=True, eq=False)
class Kind:
    """Arrays that agree in shape, dtype, sharding and allocation site.

    Compared by identity, which makes counting many arrays fast.
    """

    template: LiveArrayGroup
    """One of the arrays with its allocation site, without its devices."""

    local_devices: tuple[int, ...]
    """The ids of the devices of this process that hold a shard."""

    @cached_property
    def site(self) -> Site:
        """The source line, with dtype and shape, without callers: steps may be calls on several lines."""
        origin = self.template.origin
        content = type_text(self.template.dtype, self.template.shape)
        return Site(origin and replace(origin, callers=()), content)

    @cached_property
    def line(self) -> Site:
        """The source line alone, or dtype and shape where the line is not known."""
        return Site(self.site.origin, None) if self.site.origin else self.site


def kind_of(shape: tuple[int, ...], dtype: Any, sharding: Any) -> Kind:
    """Return the kind of the arrays of a shape, dtype and sharding, without an allocation site."""
    shard_shape, replicas, partial_sums = shape, 1, 1
    unreduced: tuple[str, ...] = ()
    if is_named(sharding) or sharding.num_devices > 1:  # else one device has all of it
        try:
            layout = sharding_layout(shape, sharding)
            shard_shape, replicas = layout.shard_shape, layout.replicas
            partial_sums, unreduced = layout.partial_sums, layout.unreduced
        except LayoutError:
            shard_shape = sharding.shard_shape(shape)
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
    return Kind(template, tuple(sorted(device.id for device in sharding.addressable_devices)))


class Alive(NamedTuple):
    """The arrays that are alive at one moment.

    Arrays are told apart by the numbers of their weak references: two arrays share none, not even one after
    the other at the same address, as long as the references are kept.
    """

    references: Mapping[int, weakref.ref[Any]] = {}
    """Weak references to all arrays, in the order of ``jax.live_arrays()``, the newest first."""

    kinds: Mapping[int, Kind] = {}
    """Kinds of all arrays in the same order. An array that is freed before it is read has none."""

    views: Set[int] = frozenset()
    """Arrays that share the buffers of another one that is alive. They take no memory."""

    @property
    def owners(self) -> Set[int]:
        """The arrays that are not views."""
        return self.kinds.keys() - self.views

    @property
    def nbytes(self) -> int:
        """The bytes of these tables, with the weak references."""
        each = sum(map(sys.getsizeof, next(iter(self.references.items()), ())))
        return sum(map(sys.getsizeof, self)) + each * len(self.references)

    def counts_without(self, other: Alive) -> Counter[Kind]:
        """Return the number of arrays of each kind, without views and those alive at another moment."""
        return Counter(map(self.kinds.__getitem__, self.owners - other.owners))


class Changes(NamedTuple):
    """Changes of the live arrays since the last update. Views are left out."""

    new: Counter[Kind]
    """Number of new arrays of each kind."""

    gone: Counter[Kind]
    """Number of arrays of each kind that were freed, deleted or donated."""

    lost: int = 0
    """Number of new arrays that were freed in a pause, before they were read. They are not counted."""


class Census:
    """The live arrays of this process, counted from time to time without keeping one alive.

    Each array is read once, when it is new.
    """

    def __init__(self, *, callers: int | None) -> None:
        """Begin without arrays.

        Args:
            callers: The most callers of an allocation site; None for no allocation sites.
        """
        self.alive = Alive()
        self.counts: Counter[Kind] = Counter()
        """The number of arrays of each kind that are alive. Views are left out."""
        self._has_origins = callers is not None
        remembered = functools.lru_cache(_MOST_KNOWN)
        type_of, origin_of = remembered(kind_of), remembered(traceback_origins(callers or 0))

        @remembered
        def from_line(shape: tuple[int, ...], dtype: Any, sharding: Any, origin: Origin | None) -> Kind:
            kind = type_of(shape, dtype, sharding)
            return replace(kind, template=replace(kind.template, origin=origin)) if origin else kind

        @remembered
        def from_traceback(shape: tuple[int, ...], dtype: Any, sharding: Any, traceback: Any) -> Kind:
            return from_line(shape, dtype, sharding, None if traceback is None else origin_of(traceback))

        self._kind_of = from_traceback

    def kinds(self, arrays: Sequence[Any]) -> list[Kind]:
        """Return the kind of each array.

        Hashing a shape and a sharding takes longer than reading them. Most arrays share both with others of
        the same type, in JAX one object: it is compared by identity first.
        """
        latest: dict[int, tuple[Any, Any, Any, Kind]] = {}
        kinds = []
        for array in arrays:
            sharding, aval = array.sharding, array.aval
            traceback = traceback_of(array) if self._has_origins else None
            last = latest.get(_identity(aval))
            if last is None or last[1] is not sharding or last[2] != traceback:
                kind = self._kind_of(array.shape, array.dtype, sharding, traceback)
                # Held, so that no other aval gets its identity.
                last = latest[_identity(aval)] = (aval, sharding, traceback, kind)
            kinds.append(last[3])
        return kinds

    def update(
        self, live_arrays: Callable[[], Iterable[Any]], pause: Callable[[], None] | None = None
    ) -> Changes:
        """Count the arrays that are alive now.

        Args:
            live_arrays: Returns all live arrays.
            pause: Lets other threads run. No array is kept alive meanwhile. None for no pauses.
        """
        turn, before = _Turn(pause), self.alive
        latest = list(map(weakref.ref, live_arrays()))
        is_same = len(latest) == len(before.references)
        if is_same and all(map(is_, latest, before.references.values())):
            return Changes(Counter(), Counter())
        references: dict[int, weakref.ref[Any]] = {}
        for listed in turn.pieces(latest, _SEARCHED):
            references.update(zip(map(_identity, listed), listed, strict=True))
        # The former references are kept to the end: their numbers are not used again before.
        unread = references.keys() - before.kinds.keys()
        read: dict[int, Kind] = {}
        for piece in turn.pieces(unread, _READ):
            read.update(self._read(piece, references))
        kinds: dict[int, Kind] = {}
        for keys in turn.pieces(references, _SEARCHED):
            kinds.update((key, kind) for key in keys if (kind := before.kinds.get(key) or read.get(key)))
        views = (_views(piece) for piece in turn.pieces(references.values(), _SEARCHED))
        now = Alive(references, kinds, set().union(*views) & references.keys())
        owners = now.owners
        turn.end_if_long()
        former = before.owners
        new, gone = Counter[Kind](), Counter[Kind]()
        for counts, moment, changed in ((new, now, owners - former), (gone, before, former - owners)):
            for piece in turn.pieces(changed, _SEARCHED):
                counts.update(map(moment.kinds.__getitem__, piece))
        self.counts, self.alive = self.counts + new - gone, now
        return Changes(new, gone, len(unread) - len(read))

    def _read(self, keys: Iterable[int], references: Mapping[int, weakref.ref[Any]]) -> dict[int, Kind]:
        """Return the kinds of those of some arrays that are still alive."""
        arrays = {key: array for key in keys if (array := references[key]()) is not None}
        return dict(zip(arrays, self.kinds([*arrays.values()]), strict=True))


def _views(references: Iterable[weakref.ref[Any]]) -> set[int]:
    """Return the numbers of the views of some arrays, which may be gone."""
    # In a function: none of its variables keeps an array alive afterwards.
    arrays = [array for array in (reference() for reference in references) if array is not None]
    return {array_number(view) for view, _ in shard_views(arrays)}


class _Turn:
    """A turn of this thread with Python's lock, which ends after 2.5 milliseconds with a pause."""

    def __init__(self, pause: Callable[[], None] | None) -> None:
        self._pause = pause
        self._start = time.perf_counter()

    def pieces(self, values: Iterable[_T], size: int) -> Iterator[list[_T]]:
        """Yield the values in pieces, with pauses between them; in one piece if there are no pauses."""
        remaining = iter(values)
        following = list(islice(remaining, size if self._pause else None))
        while piece := following:
            yield piece
            following = list(islice(remaining, size))
            if following:
                self.end_if_long()

    def end_if_long(self) -> None:
        """Let other threads run if the turn has been long."""
        if self._pause and time.perf_counter() - self._start > _LONGEST:
            self._pause()
            self._start = time.perf_counter()


def local_nbytes(counts: Mapping[Kind, int]) -> Counter[int]:
    """Return the bytes of some arrays on each device of this process. A shared buffer counts each time.

    Args:
        counts: The number of arrays of each kind.
    """
    return sums_by_key(
        (device, kind.template.shard_nbytes * count)
        for kind, count in counts.items()
        for device in kind.local_devices
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
    devices: Sequence[Any], profile: Mapping[str, int] | None, counts: Mapping[Kind, int]
) -> DeviceBytes:
    """Return the bytes of the live arrays on each device.

    Args:
        devices: The devices of one platform in this process.
        profile: The result of ``profile_nbytes``. It must be taken before ``jax.live_arrays()``, whose list
            keeps arrays alive that other code drops meanwhile.
        counts: The number of live arrays of each kind.
    """
    defaults = {device.id: device.default_memory().kind for device in devices}
    in_host = {kind: count for kind, count in counts.items() if is_in_host_memory(kind, defaults)}
    on_device = {kind: count for kind, count in counts.items() if kind not in in_host}
    host, nbytes = local_nbytes(in_host), local_nbytes(on_device)
    if profile is not None:
        # The profile does not separate memory kinds. The sum over the arrays in host memory is too large
        # where they share buffers, so the arrays on the device give a lower bound.
        least = _least_nbytes(on_device)
        for device in devices:
            profiled = profile.get(str(device), 0)
            nbytes[device.id] = min(profiled, max(profiled - host[device.id], least[device.id]))
            host[device.id] = min(host[device.id], profiled - nbytes[device.id])
    return DeviceBytes(
        tuple((device.id, nbytes[device.id]) for device in devices),
        tuple((device.id, host[device.id]) for device in devices if host[device.id]),
        "arrays" if profile is None else "profile",
    )


def _least_nbytes(kinds: Iterable[Kind]) -> Counter[int]:
    """Return a lower bound of the bytes on each device: shards of different sizes share no buffer."""
    return sums_by_key(
        {(device, kind.template.shard_nbytes) for kind in kinds for device in kind.local_devices}
    )


def is_in_host_memory(kind: Kind, defaults: Mapping[int, str | None]) -> bool:
    """Return whether arrays are in host memory on devices that have another default memory kind."""
    memory_kind = kind.template.memory_kind
    is_default = all(memory_kind == defaults.get(device) for device in kind.local_devices)
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


def known_origins() -> Literal["known", "not told by this jax"]:
    """Return whether JAX records the allocation sites of arrays."""
    return "known" if has_tracebacks() else "not told by this jax"


def levels_of(counts: Mapping[Kind, int]) -> dict[Site, Level]:
    """Return the level of each line, and of each dtype and shape of a line."""
    levels: dict[Site, Level] = {}
    for kind, count in counts.items():
        nbytes = count * kind.template.shard_nbytes * len(kind.local_devices)
        for site in {kind.site, kind.line}:
            arrays_before, nbytes_before = levels.get(site, (0, 0))
            levels[site] = Level(arrays_before + count, nbytes_before + nbytes)
    return levels
