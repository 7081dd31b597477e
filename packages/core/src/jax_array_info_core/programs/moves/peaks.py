"""Memory of devices and hosts while a tree moves, in closed form for each way that JAX has."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.grouping import by_key
from ...base.quantities import format_device_ids
from ...compat.processes import compared_copies
from ...facts.reports.moves import Bound, DevicePeaks, MoveWay, WayName
from ...facts.reports.tree import TreeRow
from ...geometry.layouts.layout import ShardingLayout
from ...geometry.layouts.traffic import HeldShards
from .paths import EXACT, REFUSED, WITHOUT_HOST, Path, path_of
from .places import Place, is_uncommitted

Bytes = NDArray[Any]
"""Bytes on each device, then on the host of each process: int64, or Python integers if they are too many."""
_INT64_SUM = 2**62
_NO_IDS = np.array([], np.int64)


class Move(NamedTuple):
    """A leaf that moves or stays, on devices."""

    row: TreeRow
    before: Place
    after: Place
    path: Path

    @property
    def name(self) -> str:
        """First path of the same array."""
        return self.row.same_as or self.row.path

    def shard_nbytes(self, place: Place) -> int:
        """Return the bytes of a shard; 0 if the place is on no device."""
        return 0 if place.layout is None else self.row.nbytes_of(place.layout.shard_shape) or 0


def moves_of(
    pairs: Iterable[tuple[TreeRow, Place | None, Place | None]],
    shards: Callable[[ShardingLayout], HeldShards],
) -> list[Move]:
    """Return the leaves with their paths, without those that stay on the host and those of unknown places."""
    return [
        Move(
            row,
            before,
            after,
            path_of(
                row,
                before,
                after,
                None if before.layout is None else shards(before.layout),
                shards(after.layout),
            ),
        )
        for row, before, after in pairs
        if before is not None and after is not None and after.layout is not None
    ]


class Peaks:
    """The memory of each device, and of each host, for each way to move leaves."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.moves = moves
        self.moving = [move for move in moves if move.path.kind != "kept"]
        places = [place for move in moves for place in (move.before, move.after) if place.layout is not None]
        self.is_known = all(place.processes is not None for place in places)
        ids = {place.order.tobytes(): place.order for place in places}  # each order once
        self.ids = np.unique(np.concatenate([*ids.values(), _NO_IDS]))
        owners = {device: owner for place in places for owner, of in place.processes or () for device in of}
        numbers = [owners.get(device, 0) for device in self.ids.tolist()]
        self._hosts = len(self.ids) + np.unique(numbers, return_inverse=True)[1]
        self._size = len(self.ids) + len(set(numbers))
        most = sum((move.row.nbytes or 0) * (4 + self._size) for move in moves)
        self._dtype = np.int64 if most < _INT64_SUM else object

    @cached_property
    def before(self) -> Bytes:
        """Bytes of all leaves now."""
        arrays = {move.name: move for move in self.moves}
        return self._sum(self._on(move, move.before) for move in arrays.values())

    @cached_property
    def after(self) -> Bytes:
        """Bytes of all leaves at the end."""
        return self.before + self._sum(new - old for _, new, old in self._steps())

    def put(self, name: WayName) -> tuple[Bytes, MoveWay]:
        """Return the peaks of ``jax.device_put``, at once or leaf by leaf."""
        replaces = name == "leaf by leaf"
        held = peak = self.before
        for move, new, old in self._steps():
            # Without replacing, all leaves are compared before the first moves.
            start = held if replaces or move.path.kind != "compared" else self.before
            peak = np.maximum(peak, np.maximum(start + self._in_flight(move), held + new))
            held = held + new - old * replaces
        kinds = Counter(move.path.kind for move in self.moves)
        is_exact = EXACT.issuperset(kinds) and (replaces or kinds["sliced"] < 2)
        on_host: Bound | None = None if WITHOUT_HOST.issuperset(kinds) else "at least"
        return peak, self.way(name, peak, None if is_exact else "at least", on_host)

    def read(self) -> tuple[Bytes, MoveWay]:
        """Return the way of a restore, which reads the shards of all its devices into host memory.

        It makes an array for each path.
        """
        read = self._sum([])
        for move in self.moves:
            made = self._on(move, move.after)
            # NumPy has at least a byte for each element.
            np.add.at(made, self._hosts, made[: len(self.ids)] * -(-8 // (move.row.bits or 8)))
            read = read + made
        return read, self.way("from files", read, None, "at most")

    def refusal(self) -> str | None:
        """Return why ``jax.device_put`` cannot move all leaves; None if it can."""
        kinds = [kind for move in self.moving for kind in (move.row.kind, move.path.kind)]
        return next((REFUSED[kind] for kind in kinds if kind in REFUSED), None)

    def donation_refusal(self) -> str | None:
        """Return why JAX cannot donate all leaves to a compiled identity; None if it can."""
        if any(move.before.layout is None for move in self.moving):
            return "leaves are on no device"
        counts = Counter(move.name for move in self.moves)
        if any(counts[move.name] > 1 for move in self.moving):
            return "an array at several paths cannot be donated: it would be deleted at each of them"
        is_free = [is_uncommitted(move.row) for move in self.moving]
        order = self.moving[0].after.order
        is_near = [np.array_equal(move.before.order, order) for move in self.moving]
        are_targets_alike = all(np.array_equal(move.after.order, order) for move in self.moving)
        if not are_targets_alike or not all(map(operator.or_, is_near, is_free)):
            return "leaves have other devices than their targets, or in another order"
        if not all(is_near):
            return "uncommitted arrays are copied to the devices of their targets, and not donated"
        return None

    def donated(self, needed: int | None = None, on_host: int = 0) -> tuple[Bytes, MoveWay]:
        """Return the way of an identity that needs some bytes per device; without these, the least.

        An output can reuse the memory of an argument with as many bytes.
        """
        old, new = Counter[int](), Counter[int]()
        for move in self.moving:
            old[move.shard_nbytes(move.before)] += move.before.memory_kind is None
            new[move.shard_nbytes(move.after)] += move.after.memory_kind is None
        least = sum(nbytes * count for nbytes, count in (old | new).items())
        places = np.searchsorted(self.ids, self.moving[0].after.order)
        used = np.zeros(self._size, self._dtype)
        used[places] = least if needed is None else needed
        np.add.at(used, self._hosts[places], on_host)
        peak = used + self.before - self._sum(self._on(move, move.before) for move in self.moving)
        way = self.way("jit, donated", peak, "at least" if needed is None else None)
        is_on_device = all(place.memory_kind is None for move in self.moving for place in move[1:3])
        return peak, way if is_on_device or needed is not None else replace(way, host_nbytes=None)

    def way(self, name: WayName, peak: Bytes, bound: Bound | None, on_host: Bound | None = None) -> MoveWay:
        """Return a way with its peaks."""
        devices, hosts = np.split(peak, [len(self.ids)])
        return MoveWay(
            name=name,
            device_nbytes=int(devices.max()),
            bound=bound,
            host_nbytes=int(hosts.max()) if self.is_known else None,
            host_bound=on_host if self.is_known else None,
        )

    def by_device(self, peaks: Sequence[Bytes | None]) -> tuple[DevicePeaks, ...]:
        """Return the devices with these peaks, those that are alike together."""
        ids = self.ids.tolist()
        columns = [[None] * len(ids) if one is None else one.tolist() for one in peaks]
        figures = zip(self.before.tolist(), self.after.tolist(), *columns, strict=False)
        return tuple(
            DevicePeaks(
                devices=format_device_ids(alike),
                count=len(alike),
                before_nbytes=before,
                after_nbytes=after,
                peaks=tuple(most),
            )
            for (before, after, *most), alike in by_key(zip(figures, ids, strict=False)).items()
        )

    def _steps(self) -> Iterator[tuple[Move, Bytes, Bytes]]:
        """Yield each leaf with its new bytes, and with those that are free where it is the last of its array.

        Shards that a new array shares stay. The host gathers an array once, and holds it for as long.
        """
        last = {move.name: number for number, move in enumerate(self.moves)}
        alive: dict[str, tuple[Bytes, Bytes]] = {}
        for number, move in enumerate(self.moves):
            shared = np.sort(move.after.order)[move.path.shared]
            nbytes = (move.row.nbytes or 0) * (move.path.kind == "host")
            own, gathered = self._on(move, move.before, shared), self._filled(move.after, on_host=nbytes)
            earlier, on_host = alive.pop(move.name, (own, np.zeros_like(own)))
            own, gathered = np.minimum(own, earlier), np.maximum(gathered, on_host)
            if number < last[move.name]:
                alive[move.name] = own, gathered
            old = (own + gathered) * (move.name not in alive)
            yield move, self._on(move, move.after, shared) + gathered - on_host, old

    def _in_flight(self, move: Move) -> Bytes:
        """Return the bytes of a leaf that are needed only while it moves."""
        nbytes = move.row.nbytes or 0
        if move.path.kind == "sliced":  # all slices, of which one stays
            return self._filled(move.before, nbytes)
        if move.path.kind != "compared":
            return self._filled(move.after)
        count = move.after.process_count or 0
        # On a CPU, the value may be the memory of the device.
        copies = compared_copies(count) - (move.after.platform == "cpu")
        return self._filled(move.after, nbytes * copies, nbytes * count)

    def _filled(self, place: Place, on_device: int = 0, on_host: int = 0) -> Bytes:
        """Return bytes on each device of a place, and bytes on each of their hosts."""
        filled = np.zeros(self._size, self._dtype)
        if on_device or on_host:
            places = np.searchsorted(self.ids, place.order)
            filled[places] = on_device
            filled[self._hosts[places]] = on_host
        return filled

    def _on(self, move: Move, place: Place, shared: NDArray[np.int64] = _NO_IDS) -> Bytes:
        """Return the bytes of a leaf at a place, but on devices that share them with its other place."""
        nbytes = np.zeros(self._size, self._dtype)
        if place.layout is not None:
            own = np.setdiff1d(place.order, shared, assume_unique=True) if len(shared) else place.order
            places = np.searchsorted(self.ids, own)
            if place.memory_kind is None:
                nbytes[places] = move.shard_nbytes(place)
            else:
                np.add.at(nbytes, self._hosts[places], move.shard_nbytes(place))
        return nbytes

    def _sum(self, parts: Iterable[Bytes]) -> Bytes:
        return sum(parts, np.zeros(self._size, self._dtype))
