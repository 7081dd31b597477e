"""Samples of a run in columns, and the arrays that were alive in them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain, groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...arrays.live.trends import Site
from ...base.grouping import by_key
from ...facts.reports.origin import Origin
from ...facts.reports.record import RecordGroup

Numbers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]

IN_USE, PEAK, OTHER = range(3)
"""Numbers of a device."""
_OF_DEVICE = 3
"""How many these are."""
NO_STEP = -(2**63)
"""Step of a sample before the first one."""
MOST_OF_GROUP = 2**42
"""Upper bound of the bytes of a group on a device: sums of as many as a line can have fit into 64 bits."""
_SHARE_OF_BEGINS = 4
"""Part of the samples up to which the first samples of recorders all stay: one fourth."""
_SHARE_OF_DEVICES = 8
"""Part of the samples up to which the last one and those with most bytes of a device stay: one eighth."""


def device_key(kind: int, place: int) -> int:
    """Return the key of bytes of a device, below 0. Other arrays have the number of their set of devices."""
    return -1 - _OF_DEVICE * place - kind


class _Entries:
    """Numbers of samples with their keys, one sample after the other."""

    def __init__(self, code: str) -> None:
        """Begin without samples.

        Args:
            code: Type of the numbers, as in ``array``.
        """
        self.keys, self.values, self.stops = array("i"), array(code), array("q")

    def add(self, *numbers: tuple[Iterable[int], Sequence[int]]) -> int:
        """Add a sample, keys with as many numbers or with none, and return how many numbers it has."""
        all_keys, all_values = self.keys, self.values
        before = len(all_keys)
        for keys, values in numbers:
            if values:
                all_keys.extend(keys)
                all_values.extend(values)
        self.stops.append(len(all_keys))
        return len(all_keys) - before

    def of(self, samples: Numbers | None) -> _Entries:
        """Return those of some samples, or of all for None."""
        if samples is None:
            return self
        stops = np.frombuffer(self.stops, "q")
        starts = np.where(samples > 0, stops[samples - 1], 0)
        lengths = stops[samples] - starts
        ends = np.cumsum(lengths)
        places = np.arange(int(lengths.sum())) + np.repeat(starts - (ends - lengths), lengths)
        found = _Entries(self.values.typecode)
        keys, values = self.columns
        found.keys.frombytes(keys[places].tobytes())
        found.values.frombytes(values[places].tobytes())
        found.stops.frombytes(ends.tobytes())
        return found

    @property
    def columns(self) -> tuple[npt.NDArray[np.int32], Numbers]:
        """The keys, and the numbers."""
        return np.frombuffer(self.keys, "i"), np.frombuffer(self.values, self.values.typecode)

    @property
    def at(self) -> npt.NDArray[np.uint32]:
        """The sample of each number."""
        return np.repeat(np.arange(len(self.stops), dtype=np.uint32), np.diff(self.stops, prepend=0))


class Samples:
    """Samples in columns. A sample takes room for the numbers that it has: of its devices and groups."""

    def __init__(self) -> None:
        self._time = array("d")
        self._step, self._begins, self._fullest = array("q"), array("b"), array("q")
        self._bytes, self._counts = _Entries("q"), _Entries("I")

    def __len__(self) -> int:
        return len(self._time)

    @property
    def numbers(self) -> int:
        """How many numbers are held: one for a sample itself, and its own."""
        return len(self._time) + len(self._bytes.keys) + len(self._counts.keys)

    def add(
        self,
        time: float,
        step: int | None,
        is_begin: bool,
        fullest: int,
        nbytes: Iterable[tuple[Iterable[int], Sequence[int]]],
        counts: tuple[Iterable[int], Sequence[int]],
    ) -> int:
        """Add a sample, and return how many numbers it has.

        Args:
            time: Its time.
            step: Last step before it.
            is_begin: Whether it is the first one of its recorder.
            fullest: Bytes in use on its fullest device.
            nbytes: Keys with as many bytes, or with none.
            counts: Numbers of its groups, and how many arrays each has.
        """
        self._time.append(max(time, self._time[-1]) if self._time else time)
        self._step.append(NO_STEP if step is None else step)
        self._begins.append(is_begin)
        self._fullest.append(fullest)
        return 1 + self._bytes.add(*nbytes) + self._counts.add(counts)

    def keep_from(self, time: float) -> None:
        """Leave out the samples before a time."""
        if self._time and self._time[0] < time:
            self._keep(np.arange(bisect_left(self._time, time), len(self)))

    def thin(self) -> None:
        """Leave out every second sample: of two, the one with more bytes on its fullest device stays.

        The last one, which ends the parts of the program, and the fullest one of each device stay, too, if
        they are a few.
        """
        use = np.array(self._fullest)
        even = use[: len(use) // 2 * 2].reshape(-1, 2)
        kept = np.arange(0, even.size, 2) + (even[:, 1] > even[:, 0])
        # Without the first sample of a recorder, a peak after it has no begin.
        begins = self.begins if len(self.begins) * _SHARE_OF_BEGINS < len(use) else self.begins[:1]
        few = np.append(self._highest(), len(use) - 1)
        few = few if len(few) * _SHARE_OF_DEVICES < len(use) else few[len(few) - len(use) % 2 :]
        self._keep(np.unique(np.concatenate([kept, begins, few])))

    def _highest(self) -> Numbers:
        """Return the first sample with most bytes in use on each device."""
        keys, values = self._bytes.columns
        is_of = (keys < 0) & ((-1 - keys) % _OF_DEVICE == IN_USE)
        places, values, at = (-1 - keys[is_of]) // _OF_DEVICE, values[is_of], self._bytes.at[is_of]
        most = np.zeros(int(places.max(initial=-1)) + 1, np.int64)
        np.maximum.at(most, places, values)
        found = np.full(len(most), len(self), np.uint32)
        is_most = values == most[places]
        np.minimum.at(found, places[is_most], at[is_most])
        return found[found < len(self)].astype(np.int64)

    def _keep(self, kept: Numbers) -> None:
        """Leave out all samples but some."""
        self._bytes, self._counts = self._bytes.of(kept), self._counts.of(kept)
        begins = np.maximum.reduceat(np.array(self._begins), kept) if len(kept) else kept
        self._begins = array("b", begins.astype(np.int8).tobytes())
        self._time = array("d", self.times[kept].tobytes())
        self._step = array("q", self.steps[kept].tobytes())
        self._fullest = array("q", np.array(self._fullest)[kept].tobytes())

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
        (keys, values), found = self._bytes.columns, np.zeros(len(self), np.int64)
        is_of = keys == device_key(kind, place)
        found[self._bytes.at[is_of]] = values[is_of]
        return found

    def peaks(self, count: int) -> Numbers:
        """Return the most bytes of each device, in use or as its peak.

        Args:
            count: Number of devices.
        """
        keys, values = self._bytes.columns
        is_of, found = keys < 0, np.zeros(_OF_DEVICE * count, np.int64)
        np.maximum.at(found, -1 - keys[is_of], values[is_of])
        by_kind = found.reshape(count, _OF_DEVICE)
        return np.maximum(by_kind[:, IN_USE], by_kind[:, PEAK])

    def arrays(self, sites: Sites, samples: Numbers | None = None) -> ArraysOfDevice:
        """Return the live arrays on a device.

        Args:
            sites: Allocation sites of the device.
            samples: Indices of the samples; None for all.
        """
        entries = self._bytes.of(samples)
        (keys, values), others = entries.columns, np.zeros(len(entries.stops), np.int64)
        is_other = np.isin(keys, sites.others)
        np.add.at(others, entries.at[is_other], values[is_other])
        entries = self._counts.of(samples)
        (groups, counts), at = entries.columns, entries.at
        ranks = sites.ranks[groups]
        order = np.argsort(ranks, kind="stable")[np.count_nonzero(ranks < 0) :]
        return ArraysOfDevice(
            sites=sites,
            bounds=np.searchsorted(ranks[order], np.arange(len(sites.nbytes) + 1)).tolist(),
            counts=counts[order],
            at=at[order],
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
        self.others = [device_key(OTHER, place), *sets]
        """Keys of the bytes of arrays without a group."""
        lines = by_key(
            (group.origin, (group.type, number))
            for number, group in enumerate(groups)
            if not sets.isdisjoint(group.devices)
        )
        members = {
            Site(origin, content): numbers
            for origin, of_line in lines.items()
            for content, numbers in by_key(of_line).items()
        }
        self.sites = [*members]
        self.stops = [0, *accumulate(map(len, members.values()))]
        """Ranks at which the sites begin, and the end."""
        ordered = [*chain.from_iterable(members.values())]
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

    counts: Numbers | npt.NDArray[np.uint32]
    """Number of arrays of each entry."""

    at: npt.NDArray[np.uint32]
    """Sample of each entry."""

    other_nbytes: Numbers
    """Bytes of the arrays without a group in each sample."""

    def entry_count(self, sites: range) -> int:
        """Return the number of entries of sites that follow each other."""
        return self.bounds[self.sites.stops[sites.stop]] - self.bounds[self.sites.stops[sites.start]]

    def numbers(self, sites: range) -> tuple[Numbers, Numbers]:
        """Return the number of arrays of sites that follow each other, and their bytes, in each sample."""
        counts, nbytes = (
            np.zeros(len(self.other_nbytes), np.int64),
            np.zeros(len(self.other_nbytes), np.int64),
        )
        for rank in range(self.sites.stops[sites.start], self.sites.stops[sites.stop]):
            entries = slice(self.bounds[rank], self.bounds[rank + 1])
            if entries.start < entries.stop:
                number, size = self.counts[entries].astype(np.int64), int(self.sites.nbytes[rank])
                # A damaged sample may name a group twice.
                np.add.at(counts, self.at[entries], number)
                np.add.at(nbytes, self.at[entries], np.minimum(number, MOST_OF_GROUP // max(size, 1)) * size)
        return counts, nbytes

    def by_site(self) -> Iterator[tuple[Site, Numbers, Numbers]]:
        """Yield each site with the number of its arrays and their bytes in each of a few samples."""
        sizes = np.repeat(self.sites.nbytes, np.diff(self.bounds))
        site = np.repeat(np.arange(len(self.sites.sites)), np.diff(np.array(self.bounds)[self.sites.stops]))
        number = self.counts.astype(np.int64)
        shape = len(self.sites.sites), len(self.other_nbytes)
        counts, nbytes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        np.add.at(counts, (site, self.at), number)
        np.add.at(nbytes, (site, self.at), np.minimum(number, MOST_OF_GROUP // np.maximum(sizes, 1)) * sizes)
        for place in np.unique(site).tolist():
            yield self.sites.sites[place], counts[place], nbytes[place]

    def total_nbytes(self) -> Numbers:
        """Return the bytes of all arrays in each sample."""
        return self.other_nbytes + self.numbers(range(len(self.sites.sites)))[1]
