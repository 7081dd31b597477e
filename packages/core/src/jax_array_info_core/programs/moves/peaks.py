"""Memory of each device while a tree moves, in closed form for each way that JAX has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.grouping import by_key
from ...base.quantities import format_device_ids
from ...compat.processes import compared_copies
from ...facts.reports.moves import DevicePeaks, MoveWay
from ...facts.reports.tree import TreeRow
from ...geometry.layouts.layout import ShardingLayout
from ...geometry.layouts.traffic import HeldShards
from .paths import EXACT, Path, path_of
from .places import Place

_Bytes = NDArray[Any]
"""Bytes on each device: int64, or Python integers as objects where they are too many."""
_INT64_SUM = 2**62
_REFUSED = (
    "JAX refuses a leaf whose devices are not those of its target, in several processes: "
    "the processes of both must differ, and the shards be the same"
)


class Move(NamedTuple):
    """A leaf that moves or stays, on devices."""

    row: TreeRow
    before: Place
    after: Place
    path: Path
    is_first: bool
    """Whether no path before it has the same array."""
    is_last: bool
    """Whether no path after it has the same array."""

    @property
    def old_nbytes(self) -> int:
        """Bytes of a shard in the memory of a device now."""
        return self._shard_nbytes(self.before)

    @property
    def new_nbytes(self) -> int:
        """Bytes of a shard of the target in the memory of a device."""
        return self._shard_nbytes(self.after)

    def _shard_nbytes(self, place: Place) -> int:
        is_on_device = place.layout is not None and place.memory_kind is None
        return (self.row.nbytes_of(place.layout.shard_shape) or 0) if is_on_device else 0  # type: ignore[union-attr]

    @property
    def host_nbytes(self) -> int:
        """Bytes that ``jax.device_put`` holds in host memory for as long as the old leaf lives."""
        return (self.row.nbytes or 0) if self.path.kind == "host" else 0

    @property
    def compared_nbytes(self) -> int:
        """Bytes that each process holds of all processes' values to compare them; 0 without."""
        return (self.row.nbytes or 0) * (self.after.process_count or 0) * (self.path.kind == "compared")


def moves_of(
    pairs: Iterable[tuple[TreeRow, Place | None, Place | None]],
    shards: Callable[[ShardingLayout], HeldShards],
) -> list[Move]:
    """Return the leaves with their paths, without those that stay on the host and those of unknown places."""
    known = [
        (row, before, after)
        for row, before, after in pairs
        if before is not None and after is not None and after.layout is not None
    ]
    keys = [row.path if row.same_as is None else row.same_as for row, _, _ in known]
    last = {key: number for number, key in enumerate(keys)}
    seen: set[str] = set()
    moves = []
    for number, (key, (row, before, after)) in enumerate(zip(keys, known, strict=True)):
        have = None if before.layout is None else shards(before.layout)
        path = path_of(row, before, after, have, shards(after.layout))  # type: ignore[arg-type]
        moves.append(Move(row, before, after, path, key not in seen, last[key] == number))
        seen.add(key)
    return moves


class Peaks:
    """The memory of each device for each way to move leaves."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.moves = moves
        self.is_moving = any(move.path.kind != "kept" for move in moves)
        layouts = [place.layout for move in moves for place in (move.before, move.after)]
        distinct = {id(layout.device_ids): layout.device_ids.ravel() for layout in layouts if layout}
        self.ids = np.unique(np.concatenate([*distinct.values(), np.array([], np.int64)]))
        total = 2 * sum(move.old_nbytes + move.new_nbytes + 99 * move.compared_nbytes for move in moves)
        self._dtype = np.int64 if total < _INT64_SUM else object

    @cached_property
    def before(self) -> _Bytes:
        """Bytes of all leaves now."""
        return self._sum(self._on(move.before, move.old_nbytes) for move in self.moves if move.is_first)

    @cached_property
    def after(self) -> _Bytes:
        """Bytes of all leaves at the end."""
        return self._sum(self._on(move.after, move.new_nbytes) for move in self.moves)

    def put(self, *, replaces: bool) -> _Bytes:
        """Return the peaks of ``jax.device_put``, with the old leaf dropped after each new one or not."""
        held = peak = self.before
        if not replaces:  # all are compared before the first moves
            for move in self.moves:
                peak = np.maximum(peak, held + self._compared(move))
        for move in self.moves:
            new = self._on(move.after, move.new_nbytes)
            new[self._places(move.after)[move.path.shared]] = 0
            if replaces:
                peak = np.maximum(peak, held + self._compared(move))
            if move.path.kind == "sliced":
                slices = self._on(move.before, move.row.nbytes or 0)
                peak = np.maximum(peak, held + np.maximum(slices, new))
            held = held + new
            peak = np.maximum(peak, held)
            if replaces and move.is_last:
                gone = self._on(move.before, move.old_nbytes)
                gone[self._places(move.after)[move.path.shared]] = 0
                held = held - gone
        return peak

    def put_way(self, peak: _Bytes, *, replaces: bool) -> MoveWay:
        """Return the way of ``jax.device_put`` with these peaks."""
        name: Any = "leaf by leaf" if replaces else "at once"
        kinds = Counter(move.path.kind for move in self.moves)
        if kinds["none"]:
            return MoveWay(name=name, reason=_REFUSED)
        is_exact = EXACT.issuperset(kinds) and (replaces or kinds["sliced"] < 2)
        is_known = all(move.after.processes is not None for move in self.moves)
        on_host = [move.host_nbytes for move in self.moves]
        gathered = max(on_host, default=0) if replaces else sum(on_host)
        compared = max((move.compared_nbytes for move in self.moves), default=0)
        is_measured = set(kinds) <= {"kept", "copied"}
        return MoveWay(
            name=name,
            device_nbytes=most(peak),
            bound=None if is_exact else "at least",
            host_nbytes=max(gathered, compared) + self._hosted() if is_known else None,
            host_bound=None if is_measured or not is_known else "at least",
        )

    def files_way(self) -> MoveWay:
        """Return the way of a restore, which reads the shards of its devices into host memory."""
        is_known = all(move.after.processes is not None for move in self.moves)
        read = self._by_process(lambda move: move.row.nbytes_of(move.after.layout.shard_shape) or 0)  # type: ignore[union-attr]
        return MoveWay(
            name="from files",
            device_nbytes=most(self.after),
            host_nbytes=read if is_known else None,
            host_bound="at most" if is_known else None,
        )

    def donated(self) -> tuple[_Bytes | None, str | None]:
        """Return the least memory of a jitted identity with donation, or why there can be none."""
        moving = [move for move in self.moves if move.path.kind != "kept"]
        if any(move.before.layout is None for move in moving):
            return None, "leaves are on no device"
        if not all(move.is_first for move in moving):
            return None, "an array at several paths cannot be donated for each of them"
        orders = [place.order for move in moving for place in (move.before, move.after)]
        if not all(np.array_equal(orders[0], order) for order in orders[1:]):
            return None, "leaves have other devices than their targets, or in another order"
        old, new = (Counter(getattr(move, name) for move in moving) for name in ("old_nbytes", "new_nbytes"))
        reused = sum(nbytes * count for nbytes, count in (old & new).items())
        needed = self._total(old) + self._total(new) - reused
        return self.around(moving) + needed * self.uses(moving), None

    def uses(self, moving: Sequence[Move]) -> _Bytes:
        """Return 1 for each device of leaves, which are all on the same, and 0 for others."""
        return np.isin(self.ids, moving[0].after.order).astype(self._dtype)

    def around(self, moving: Sequence[Move]) -> _Bytes:
        """Return the bytes of all leaves but some."""
        others = self.before.copy()
        for move in moving:
            if move.is_first:
                others = others - self._on(move.before, move.old_nbytes)
        return others

    def by_device(self, peaks: Sequence[_Bytes | None]) -> tuple[DevicePeaks, ...]:
        """Return the devices with these peaks, those that are alike together."""
        columns = [one for one in (self.before, self.after, *peaks) if one is not None]
        figures = list(zip(*(column.tolist() for column in columns), strict=True))
        alike = by_key((figure, place) for place, figure in enumerate(figures))
        return tuple(
            DevicePeaks(
                devices=format_device_ids(self.ids[places].tolist()),
                count=len(places),
                before_nbytes=before,
                after_nbytes=after,
                peaks=tuple(None if one is None else int(one[places[0]]) for one in peaks),
            )
            for (before, after, *_), places in alike.items()
        )

    def _compared(self, move: Move) -> _Bytes | int:
        """Return the copies of a leaf on each device while processes compare it."""
        if move.path.kind != "compared":
            return 0
        copies = compared_copies(move.after.process_count or 0)
        return self._on(move.after, copies * (move.row.nbytes or 0))

    def _hosted(self) -> int:
        """Return the bytes of the new leaves in host memory, in the process with the most."""
        return self._by_process(
            lambda move: (
                (move.row.nbytes_of(move.after.layout.shard_shape) or 0)  # type: ignore[union-attr]
                if move.after.memory_kind and move.path.kind != "kept"
                else 0
            )
        )

    def _by_process(self, nbytes_of: Callable[[Move], int]) -> int:
        """Return the bytes of the shards of the process with the most."""
        sums: Counter[int] = Counter()
        for move in self.moves:
            for owner, devices in move.after.processes or ():
                sums[owner] += len(devices) * nbytes_of(move)
        return max(sums.values(), default=0)

    def _places(self, place: Place) -> NDArray[np.int64]:
        """Return where the devices of a place are among all, by ascending id."""
        assert place.layout is not None
        return np.searchsorted(self.ids, np.sort(place.layout.device_ids, axis=None))

    def _on(self, place: Place, nbytes: int) -> _Bytes:
        """Return bytes on each device of a place."""
        found = np.zeros(len(self.ids), self._dtype)
        if place.layout is not None:
            found[self._places(place)] = nbytes
        return found

    def _sum(self, parts: Iterable[_Bytes]) -> _Bytes:
        return sum(parts, np.zeros(len(self.ids), self._dtype))

    @staticmethod
    def _total(counts: Counter[int]) -> int:
        return sum(nbytes * count for nbytes, count in counts.items())


def most(nbytes: _Bytes) -> int:
    """Return the bytes on the fullest device."""
    return int(nbytes.max()) if len(nbytes) else 0
