"""Samples of a run in columns, and the arrays that were alive in them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..live.census import Site
from ..reports.origin import Origin
from ..reports.record import RecordGroup

Numbers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
"""Places of the devices of a segment among those of its run."""

Rows: TypeAlias = tuple[Sequence[int], Sequence[int], Sequence[int]]

IN_USE, PEAK, OTHER = range(3)
"""Columns of a device."""
NO_STEP = -(2**63)
"""Step of a sample before the first one."""
_MOST_OF_GROUP = 2**46
"""Upper bound of the bytes of a group on a device: sums of them fit into 64 bits."""
_SHARE_OF_BEGINS = 4
"""Part of the samples up to which the first samples of recorders all stay: one fourth."""


class _Block:
    """Consecutive samples of the same devices: their bytes row by row. Other devices take no room."""

    __slots__ = ("columns", "count", "places")

    def __init__(self, places: Places) -> None:
        self.places = places
        self.columns = (array("q"), array("q"), array("q"))
        """Bytes in use, peak and bytes of other arrays. Those that no sample has are empty."""
        self.count = 0

    def add(self, rows: Rows) -> None:
        """Add a sample with its row of each column, which may be empty."""
        for column, row in zip(self.columns, rows, strict=True):
            if row:
                if not column and self.count:
                    column.frombytes(bytes(8 * len(row) * self.count))
                column.extend(row)
            elif column:
                column.frombytes(bytes(8 * len(self.places)))
        self.count += 1

    def rows(self, kind: int) -> Numbers:
        """Return a column: a row for each sample, or none."""
        return np.frombuffer(self.columns[kind], np.int64).reshape(-1, max(len(self.places), 1))

    def kept(self, kept: Numbers) -> _Block:
        """Return some of the samples."""
        found = _Block(self.places)
        found.count = len(kept)
        for kind, column in enumerate(found.columns):
            if self.columns[kind]:
                column.frombytes(self.rows(kind)[kept].tobytes())
        return found


class _Entries(NamedTuple):
    entries: Numbers
    stops: Numbers


class Samples:
    """Samples in columns. A sample takes room for its own devices and groups alone."""

    def __init__(self) -> None:
        self.numbers = 0
        """How many numbers are held, but for a few of each sample."""
        self._blocks: list[_Block] = []
        self._time = array("d")
        self._step = array("q")
        self._begins = array("b")
        self._fullest = array("q")
        self._stop = array("q")
        self._ids = array("I")
        self._counts = array("I")

    def __len__(self) -> int:
        return len(self._time)

    def add(
        self,
        time: float,
        step: int | None,
        is_begin: bool,
        places: Places,
        rows: Rows,
        groups: Iterable[int],
        counts: Sequence[int],
    ) -> int:
        """Add a sample, and return how many numbers it has.

        Args:
            time: Its time.
            step: Last step before it.
            is_begin: Whether it is the first one of its recorder.
            places: Places of its devices: one object for all samples of the same devices.
            rows: Bytes in use, peaks and bytes of other arrays of its devices. Each may be empty.
            groups: Numbers of its groups.
            counts: Number of arrays of each of them.
        """
        if not self._blocks or self._blocks[-1].places is not places:
            self._blocks.append(_Block(places))
        self._blocks[-1].add(rows)
        self._time.append(max(time, self._time[-1]) if self._time else time)
        self._step.append(NO_STEP if step is None else step)
        self._begins.append(is_begin)
        self._fullest.append(max(rows[IN_USE], default=0))
        self._ids.extend(groups)
        self._counts.extend(counts)
        self._stop.append(len(self._ids))
        numbers = 1 + len(places) * sum(map(bool, rows)) + len(counts)
        self.numbers += numbers
        return numbers

    def keep_from(self, time: float) -> None:
        """Leave out the samples before a time."""
        if self._time and self._time[0] < time:
            self._keep(np.flatnonzero(self.times >= time))

    def thin(self) -> None:
        """Leave out every second sample: of two, the one with more bytes on its fullest device stays."""
        use = np.frombuffer(self._fullest, np.int64)
        even = use[: len(use) // 2 * 2].reshape(-1, 2)
        kept = np.arange(0, even.size, 2) + (even[:, 1] > even[:, 0])
        kept = np.append(kept, len(use) - 1) if len(use) % 2 else kept
        # Without the first sample of a recorder, a peak after it has no begin.
        few = self.begins if len(self.begins) * _SHARE_OF_BEGINS < len(use) else self.begins[:1]
        self._keep(np.union1d(kept, few))

    def _keep(self, kept: Numbers) -> None:
        """Leave out all samples but some."""
        rows = self._rows(kept)
        starts = np.cumsum([0, *(block.count for block in self._blocks)])
        bounds = np.searchsorted(kept, starts).tolist()
        self._blocks = [
            block.kept(kept[begin:stop] - first)
            for block, first, (begin, stop) in zip(self._blocks, starts, pairwise(bounds), strict=False)
            if begin < stop
        ]
        begins = np.maximum.reduceat(np.frombuffer(self._begins, np.int8), kept) if len(kept) else kept
        self._begins = array("b", begins.tolist())
        self._ids = array("I", np.frombuffer(self._ids, np.uint32)[rows.entries].tobytes())
        self._counts = array("I", np.frombuffer(self._counts, np.uint32)[rows.entries].tobytes())
        self._stop = array("q", rows.stops.tobytes())
        self._time = array("d", np.frombuffer(self._time)[kept].tobytes())
        self._step = array("q", np.frombuffer(self._step, np.int64)[kept].tobytes())
        self._fullest = array("q", np.frombuffer(self._fullest, np.int64)[kept].tobytes())
        held = sum(len(column) for block in self._blocks for column in block.columns)
        self.numbers = len(self) + held + len(self._ids)

    def _rows(self, kept: Numbers) -> _Entries:
        stops = np.frombuffer(self._stop, np.int64)
        starts = np.concatenate([[0], stops[:-1]]).astype(np.int64) if len(stops) else stops
        lengths = (stops - starts)[kept]
        ends = np.cumsum(lengths, dtype=np.int64)
        entries = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            starts[kept] - (ends - lengths), lengths
        )
        return _Entries(entries, ends)

    @property
    def times(self) -> Times:
        """Times of the samples, ascending."""
        return np.array(self._time)

    @property
    def steps(self) -> Numbers:
        """Last step before each sample; ``NO_STEP`` before the first."""
        return np.array(self._step, np.int64)

    @property
    def begins(self) -> Numbers:
        """Indices of the first samples of recorders."""
        return np.flatnonzero(np.array(self._begins, bool))

    def column(self, kind: int, place: int) -> Numbers:
        """Return the bytes of a device in each sample; 0 where the sample has none."""
        found, first = np.zeros(len(self), np.int64), 0
        for block in self._blocks:
            columns = np.flatnonzero(block.places == place)
            if block.columns[kind] and len(columns):
                found[first : first + block.count] = block.rows(kind)[:, int(columns[-1])]
            first += block.count
        return found

    def raise_peaks(self, peaks: Numbers) -> None:
        """Raise the peak of each device to the most bytes in use, or the peak if that is more."""
        for block in self._blocks:
            for kind in (IN_USE, PEAK):
                if block.columns[kind]:
                    np.maximum.at(peaks, block.places, block.rows(kind).max(axis=0))

    def arrays(self, sites: Sites, samples: Numbers | None = None) -> ArraysOfDevice:
        """Return the live arrays on a device.

        Args:
            sites: Allocation sites of the device.
            samples: Indices of the samples; None for all.
        """
        ids, counts = np.frombuffer(self._ids, np.uint32), np.frombuffer(self._counts, np.uint32)
        stops, others = np.frombuffer(self._stop, np.int64), self.column(OTHER, sites.place)
        if samples is not None:
            rows = self._rows(samples)
            ids, counts, stops, others = ids[rows.entries], counts[rows.entries], rows.stops, others[samples]
        ranks = sites.ranks[ids]
        order = np.argsort(ranks, kind="stable")[np.count_nonzero(ranks < 0) :]
        at = np.repeat(np.arange(len(stops), dtype=np.uint32), np.diff(stops, prepend=0))
        return ArraysOfDevice(
            sites=sites,
            bounds=np.searchsorted(ranks[order], np.arange(len(sites.nbytes) + 1)).tolist(),
            counts=counts[order],
            at=at[order],
            length=len(stops),
            other_nbytes=others,
        )


class Sites:
    """Allocation sites with arrays on a device.

    The groups on the device have ranks, in which those of a site, and the sites of a line, follow each other.
    """

    def __init__(self, groups: Sequence[RecordGroup], place: int, sets: Set[int]) -> None:
        """Order the groups.

        Args:
            groups: All groups, each with the number of its set of devices.
            place: Place of the device.
            sets: Numbers of the sets that have the device.
        """
        self.place = place
        lines: dict[Origin | None, dict[str, list[int]]] = {}
        for number, group in enumerate(groups):
            if not sets.isdisjoint(group.devices):
                lines.setdefault(group.origin, {}).setdefault(group.type, []).append(number)
        self.sites: list[Site] = []
        self.stops = [0]
        """Ranks at which the sites begin, and the end."""
        ordered: list[int] = []
        for origin, types in lines.items():
            for content, members in types.items():
                self.sites.append(Site(origin, content))
                ordered += members
                self.stops.append(len(ordered))
        self.ranks = np.full(len(groups), -1, np.int16)
        """Rank of each group; -1 for one that is not on the device."""
        self.ranks[ordered] = np.arange(len(ordered))
        self.nbytes = np.array([groups[number].shard_nbytes for number in ordered], np.int64)
        """Bytes of an array of each rank on the device."""

    def lines(self) -> Iterator[tuple[Origin | None, range]]:
        """Yield each line with its sites."""
        for origin, places in groupby(range(len(self.sites)), key=lambda place: self.sites[place].origin):
            found = list(places)
            yield origin, range(found[0], found[-1] + 1)


class ArraysOfDevice(NamedTuple):
    """Live arrays on one device in some samples: one entry for each group in each sample, by rank."""

    sites: Sites
    bounds: list[int]
    """First entry of each rank, and the end."""

    counts: npt.NDArray[np.uint32]
    """Number of arrays of each entry."""

    at: npt.NDArray[np.uint32]
    """Sample of each entry."""

    length: int
    """Number of samples."""

    other_nbytes: Numbers
    """Bytes of the arrays without a group in each sample."""

    def entry_count(self, sites: range) -> int:
        """Return the number of entries of sites that follow each other."""
        return self.bounds[self.sites.stops[sites.stop]] - self.bounds[self.sites.stops[sites.start]]

    def numbers(self, sites: range) -> tuple[Numbers, Numbers]:
        """Return the number of arrays of sites that follow each other, and their bytes, in each sample."""
        counts, nbytes = np.zeros(self.length, np.int64), np.zeros(self.length, np.int64)
        for rank in range(self.sites.stops[sites.start], self.sites.stops[sites.stop]):
            entries = slice(self.bounds[rank], self.bounds[rank + 1])
            if entries.start < entries.stop:
                number, size = self.counts[entries].astype(np.int64), int(self.sites.nbytes[rank])
                counts[self.at[entries]] += number
                nbytes[self.at[entries]] += np.minimum(number, _MOST_OF_GROUP // max(size, 1)) * size
        return counts, nbytes

    def by_site(self) -> Iterator[tuple[Site, Numbers, Numbers]]:
        """Yield each site with the number of its arrays and their bytes in each of a few samples."""
        sizes = np.repeat(self.sites.nbytes, np.diff(self.bounds))
        site = np.repeat(np.arange(len(self.sites.sites)), np.diff(np.array(self.bounds)[self.sites.stops]))
        number = self.counts.astype(np.int64)
        shape = len(self.sites.sites), self.length
        counts, nbytes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        np.add.at(counts, (site, self.at), number)
        np.add.at(nbytes, (site, self.at), np.minimum(number, _MOST_OF_GROUP // np.maximum(sizes, 1)) * sizes)
        for place in np.unique(site).tolist():
            yield self.sites.sites[place], counts[place], nbytes[place]

    def total_nbytes(self) -> Numbers:
        """Return the bytes of all arrays in each sample."""
        return self.other_nbytes + self.numbers(range(len(self.sites.sites)))[1]
