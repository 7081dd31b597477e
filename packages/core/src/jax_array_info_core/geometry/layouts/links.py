"""Links between the devices of a mesh: what a collective over one of its axes has to cross.

A link is known from where two devices are. TPUs: the same chip, another chip of the slice (ICI, the network
between the chips), or another slice (DCN, the network of the data center). Other devices: the same host,
another process, which may be on the same host, or another host, where the hosts are known.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...base import quantities
from ...base.errors import UnsupportedValueError
from ...base.quantities import parse_bandwidth
from ...base.text import plain_text

Link = Literal["same-chip", "same-host", "ici", "unknown", "other-process", "other-host", "dcn"]
"""What connects two devices, fastest first. ``MAY_BE`` has what ``unknown`` and ``other-process`` can be."""

LINKS: tuple[Link, ...] = get_args(Link)

LINK_WORDS: dict[Link, str] = {
    "same-chip": "same chip",
    "same-host": "same host",
    "ici": "ICI",
    "unknown": "unknown link",
    "other-process": "other process",
    "other-host": "other host",
    "dcn": "DCN",
}
"""How each link is printed."""

MAY_BE: dict[Link, tuple[Link, ...]] = {
    "unknown": ("same-chip", "same-host", "ici"),
    "other-process": ("same-host", "other-host"),
}
"""The links that a link which is not fully known can be."""

Share = Literal["never", "partly", "always"]
"""Whether the groups of a mesh axis leave a host or a slice: none, some, or all of them."""

Form = Literal["line", "ring"]
"""Form of the chips of a group along one side of the torus."""

Positions = NDArray[np.int64]
"""Positions in the devices of a mesh, in its order: in ``mesh.devices.flat``."""

_SIDES = "xyz"
_NOT_KNOWN = -1
_SURELY_SHORTEST = 2
"""Steps from chip to chip that no torus with sides of at least 4 shortens."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Where the devices of a mesh are. Each array has a row for each device, in the order of the mesh."""

    hosts: NDArray[np.int64]
    """Host of each device; of a GPU its NVLink domain, where it is known. A process if ``are_processes``."""

    are_processes: bool = False
    """Whether only the process of each device is known. Several processes may be on one host."""

    slices: NDArray[np.int64] | None = None
    """Slice of each TPU; None for other devices."""

    coords: NDArray[np.int64] | None = None
    """Chip of each TPU in the torus of its slice, of shape ``(devices, sides)``; None for other devices."""

    sides: tuple[int, ...] = ()
    """Chips along each side of a slice; empty if the mesh may have only a part of one."""

    wraps: tuple[bool | None, ...] = ()
    """For each side, whether its last chip is connected to its first; None if this is not known."""

    def links(self, some: Positions, others: Positions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the link between each device and another, and the hops of those in one slice.

        Args:
            some: The devices.
            others: The other devices, of a shape that broadcasts with the former.

        Returns:
            The index of each link in ``LINKS``, and the number of links from chip to chip on the shortest
            way; -1 for other links, and where it is not known whether the torus is closed.
        """
        number = LINKS.index
        is_near = self.hosts[some] == self.hosts[others]
        hops = np.full(is_near.shape, _NOT_KNOWN)
        if self.slices is None and self.coords is None:
            far = number("other-process" if self.are_processes else "other-host")
            return np.where(is_near, number("same-host"), far), hops
        numbers = np.where(is_near, number("same-host"), number("unknown"))
        is_one_slice = np.ones_like(is_near)
        if self.coords is not None:
            distance = self._hops(np.abs(self.coords[some] - self.coords[others]))
            numbers = np.where(distance == 0, number("same-chip"), number("ici"))
            hops = distance
        if self.slices is not None:
            is_one_slice = self.slices[some] == self.slices[others]
        is_hop = is_one_slice & (numbers == number("ici"))
        return np.where(is_one_slice, numbers, number("dcn")), np.where(is_hop, hops, _NOT_KNOWN)

    def _hops(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the hops between chips from their distances along each side."""
        hops = steps.copy()
        has_shortcut = np.zeros(steps.shape[:-1], bool)
        for side, (length, is_ring) in enumerate(zip(self.sides, self.wraps, strict=True)):
            around = length - steps[..., side]
            if is_ring:
                hops[..., side] = np.minimum(steps[..., side], around)
            elif is_ring is None:
                has_shortcut |= steps[..., side] > around
        # In a torus that may be twisted, a way over several sides can be shorter, too.
        if None in self.wraps or not self.sides:
            has_shortcut |= (np.count_nonzero(steps, axis=-1) > 1) | (not self.sides)
        is_known = ~has_shortcut | (steps.sum(-1) <= _SURELY_SHORTEST)
        return np.where(is_known, hops.sum(-1), _NOT_KNOWN)

    def slowest(self, groups: Positions) -> Link | None:
        """Return the slowest link between the devices of a group; None if no group has two devices.

        Args:
            groups: Groups of devices, of shape ``(groups, size)``; -1 in place of a device that is missing.
        """
        if groups.ndim != 2 or groups.shape[1] < 2:
            return None
        # Being on one chip, host or slice is transitive, so the first device stands for the others.
        is_pair = (groups[:, 1:] >= 0) & (groups[:, 1:] != groups[:, :1])
        numbers, _ = self.links(groups[:, :1], groups[:, 1:])
        return LINKS[int(numbers[is_pair].max())] if is_pair.any() else None

    def is_uniform(self, groups: Positions) -> bool:
        """Return whether each two devices of a group are connected by its slowest link.

        If not, a part of what a collective sends can take faster links.

        Args:
            groups: Groups of devices, of shape ``(groups, size)``; -1 in place of a device that is missing.
        """
        link = self.slowest(groups)
        owners = {"dcn": self.slices, "other-host": self.hosts, "other-process": self.hosts}.get(link or "")
        if owners is None:
            return True
        # Distinct numbers for missing devices.
        members = np.where(groups >= 0, owners[groups], np.max(owners) + 1 + np.arange(groups.shape[1]))
        return bool((_distinct(members) == groups.shape[1]).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbors:
    """Neighbors along a mesh axis that are connected in the same way."""

    link: Link
    """What connects them."""

    hops: quantities.Count | None = None
    """ICI: number of links from chip to chip on the shortest way; None if not known, and for other links."""

    pair_count: quantities.Count
    """Number of such pairs of neighbors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisLinks:
    """How the devices along a mesh axis are connected.

    The devices that differ only in this axis are a group: a collective over the axis is one of each group.
    """

    axis: str
    """Name of the mesh axis."""

    neighbors: tuple[Neighbors, ...]
    """Pairs of devices at consecutive positions of the axis, the slowest link first. The last and the first
    device are no pair: ``form`` tells whether a ring closes."""

    group_count: quantities.Count
    """Number of groups."""

    leaves_host: Share | None
    """Whether the groups are on more than one host: ``never``, ``partly`` or ``always``. None if that is not
    known: they are on several processes, which may be on one host."""

    leaves_slice: Share | None = None
    """Whether the groups are in more than one slice; None for devices without slices."""

    leaves_process: Share | None = None
    """Whether the groups are on more than one process; None where the hosts are known."""

    groups_over_hosts: quantities.Size | None
    """Number of groups on more than one host; None if ``leaves_host`` is."""

    groups_over_processes: quantities.Size = 0
    """Number of groups on more than one process; 0 where the hosts are known."""

    groups_over_slices: quantities.Size = 0
    """Number of groups in more than one slice."""

    host_count: quantities.Count | None
    """Largest number of hosts of a group; None if ``leaves_host`` is."""

    process_count: quantities.Count = 1
    """Largest number of processes of a group; 1 where the hosts are known."""

    slice_count: quantities.Count = 1
    """Largest number of slices of a group."""

    sides: tuple[str, ...] = ()
    """Sides of the torus along which the groups run, such as ``x``; empty without ICI."""

    form: Form | None = None
    """Form of the groups, if each runs from chip to chip along one side; None if not, or not known."""

    chip_count: quantities.Size = 0
    """Number of chips of a line or a ring; 0 without a form."""


def mesh_links(places: Places, mesh: Mapping[str, int]) -> tuple[AxisLinks, ...]:
    """Return how the devices along each axis of a mesh are connected.

    Args:
        places: Where the devices are.
        mesh: Size of each mesh axis by name.
    """
    grid = np.arange(len(places.hosts)).reshape(tuple(mesh.values()))
    return tuple(
        _axis_links(places, name, np.moveaxis(grid, axis, -1).reshape(-1, mesh[name]))
        for axis, name in enumerate(mesh)
    )


def _axis_links(places: Places, axis: str, groups: Positions) -> AxisLinks:
    """Return how the devices of each group of a mesh axis are connected."""
    links, hops = places.links(groups[:, :-1], groups[:, 1:])
    most = int(np.max(hops, initial=0)) + 2
    keys = np.bincount((links * most + hops + 1).ravel())
    counts = {(key // most, key % most - 1): int(keys[key]) for key in np.flatnonzero(keys).tolist()}
    hosts = _distinct(places.hosts[groups])
    slices = _distinct(np.zeros_like(groups) if places.slices is None else places.slices[groups])
    over_hosts, over_slices = int(np.count_nonzero(hosts > 1)), int(np.count_nonzero(slices > 1))
    sides, form, chips = _form(places, groups, is_one_slice=not over_slices)
    is_known = not (places.are_processes and over_hosts)
    return AxisLinks(
        axis=axis,
        neighbors=tuple(
            Neighbors(link=LINKS[link], hops=hop if hop > 0 else None, pair_count=count)
            for (link, hop), count in sorted(counts.items(), reverse=True)
        ),
        group_count=len(groups),
        leaves_host=_share(over_hosts, len(groups)) if is_known else None,
        leaves_process=_share(over_hosts, len(groups)) if places.are_processes else None,
        leaves_slice=None if places.slices is None else _share(over_slices, len(groups)),
        groups_over_hosts=over_hosts if is_known else None,
        groups_over_processes=over_hosts if places.are_processes else 0,
        groups_over_slices=over_slices,
        host_count=int(np.max(hosts)) if is_known else None,
        process_count=int(np.max(hosts)) if places.are_processes else 1,
        slice_count=int(np.max(slices)),
        sides=sides,
        form=form,
        chip_count=chips,
    )


def _distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of different values in each row."""
    ordered = rows if (np.diff(rows, axis=1) >= 0).all() else np.sort(rows, axis=1)
    return np.asarray(1 + (np.diff(ordered, axis=1) != 0).sum(1))


def _form(
    places: Places, groups: Positions, *, is_one_slice: bool
) -> tuple[tuple[str, ...], Form | None, int]:
    """Return the sides along which groups run, whether they are lines or rings, and their chips."""
    if places.coords is None or not is_one_slice:
        return (), None, 0
    at = places.coords[groups]
    moving = [side for side in range(at.shape[-1]) if (at[:, :, side] != at[:, :1, side]).any()]
    names = tuple(_SIDES[side] if side < len(_SIDES) else f"side {side}" for side in moving)
    if len(moving) != 1:
        return names, None, 0
    [side] = moving
    steps = np.diff(at[:, :, side], axis=1)
    chips = 1 + np.count_nonzero(steps, axis=1)
    length = int(chips[0])
    is_straight = bool((np.abs(steps) <= 1).all()) and bool(((steps >= 0).all(1) | (steps <= 0).all(1)).all())
    if not is_straight or (chips != length).any():
        return names, None, 0
    is_whole = bool(places.sides) and length == places.sides[side]
    is_ring = places.wraps[side] if is_whole else False if places.sides else None
    return (names, None, 0) if is_ring is None else (names, "ring" if is_ring else "line", length)


def _share(count: int, total: int) -> Share:
    return "never" if count == 0 else "always" if count == total else "partly"


Torus = Literal["cube", "pod"]
"""How the chips of a TPU are connected to a torus.

``cube`` (v4, v5p): optical switches connect cubes of 4x4x4 chips, so that a slice of whole cubes is closed
along each side, and a smaller slice along none. A slice with sides k, k, 2k or k, 2k, 2k may be twisted:
then only its long sides are closed. ``pod`` (v5e, v6e): a side is closed where it has the 16 chips of a pod.
"""
_CUBE_SIDE = 4
_POD_SIDE = 16


def wraps_of(torus: Torus | None, sides: Sequence[int]) -> tuple[bool | None, ...]:
    """Return for each side of a slice whether it is closed; None where it is not known.

    Sources: Google's documentation of the TPU versions (v4 and v5p, "3D torus" and "twisted torus"), and "How
    to Scale Your Model", part 2 (sides of 16 chips of v5e and v6e).

    Args:
        torus: How the chips are connected; None if it is not known.
        sides: Chips along each side.

    >>> wraps_of("cube", (2, 2, 4)), wraps_of("cube", (4, 4, 4)), wraps_of("pod", (8, 16))
    ((False, False, False), (True, True, True), (False, True))
    """
    if torus is None:
        return (None,) * len(sides)
    if torus == "pod":
        return tuple(side == _POD_SIDE for side in sides)
    if any(side % _CUBE_SIDE for side in sides):
        return (False,) * len(sides)
    short, long = min(sides), max(sides)
    may_be_twisted = long == 2 * short and set(sides) == {short, long}
    return tuple(None if may_be_twisted and side == short else True for side in sides)


def as_link(name: Any) -> Link:
    """Return a link between devices by its name.

    Raises:
        UnsupportedValueError: (a ValueError) If there is no such link.
    """
    link_found = next((link for link in LINKS if link == name), None)
    if link_found is None:
        known = ", ".join(map(repr, reversed(LINKS)))
        shown = plain_text(name, repr)
        raise UnsupportedValueError(f"{shown} is not a link between devices: there are {known}")
    return link_found


def as_bandwidths(value: Mapping[str, int | str] | None) -> dict[Link, int]:
    """Return the bytes per second of links that are given as integers or as text such as ``"6.25GB/s"``.

    Args:
        value: The bandwidth of each link by its name, such as ``{"dcn": "6.25GB/s"}``. None for none.

    Raises:
        UnsupportedValueError: (a ValueError) If a link or a bandwidth is not one.
    """
    bandwidths: dict[Link, int] = {}
    for name, given in (value or {}).items():
        link = as_link(name)
        try:
            bandwidths[link] = parse_bandwidth(given) if isinstance(given, str) else _whole(given)
        except ValueError as error:
            raise UnsupportedValueError(f"the bandwidth of {link} {error}") from error
    return bandwidths


def parse_bandwidths(texts: Sequence[str]) -> dict[str, str]:
    """Return the bandwidth of each link, such as ``dcn=6.25GB/s``.

    Raises:
        ValueError: If a text is not one, or a link has two bandwidths.
    """
    bandwidths: dict[str, str] = {}
    for text in texts:
        link, sign, bandwidth = text.partition("=")
        if not sign or link in bandwidths:
            problem = "has two bandwidths" if link in bandwidths else "has no bandwidth"
            raise ValueError(f"{link} {problem}: write each link once, such as dcn=6.25GB/s")
        bandwidths[link] = bandwidth
    as_bandwidths(bandwidths)
    return bandwidths


def _whole(value: Any) -> int:
    """Return a number of bytes per second that is not a text.

    Raises:
        ValueError: If it is not a positive integer.
    """
    try:
        number = 0 if isinstance(value, bool) else int(operator.index(value))
    except TypeError:
        number = 0
    if number < 1:
        shown = plain_text(value, repr)
        raise ValueError(f'must be bytes per second, an integer or a text such as "6.25GB/s", got {shown}')
    return number
