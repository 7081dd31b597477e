"""Layouts to draw, with the frames, titles, captions, notes and tooltips of their pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jax_array_info_core import ShardingLayout, format_bytes
from jax_array_info_core.base.quantities import counted, format_device_ids, format_number
from jax_array_info_core.base.text import clipped, printable, shape_text, that_apply
from jax_array_info_core.facts.pages.words import copies_words, mesh_words, size_words
from jax_array_info_core.geometry.layouts.dtypes import packed_nbytes
from jax_array_info_core.geometry.layouts.layout import Processes
from jax_array_info_core.layouts import Grids, Spec, describe_pattern, flat_grids
from jax_array_info_core.reports import ArrayReport

from ..style import wrapped
from .fitting import LISTED_WIDTH, first_and_last, listed_devices
from .palette import DeviceGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jax_array_info_core.facts.reports.mesh import Placed
    from jax_array_info_core.geometry.layouts.links import AxisLinks, Neighbors
    from jax_array_info_core.reports import MeshReport

Weights: TypeAlias = "NDArray[np.int8]"
"""Weights of lines: 0 between devices of one host, 1 round a host, 2 round a slice."""


class Frames:
    """The weights of the lines between the cells of grids, and of their outlines."""

    def __init__(self, grids: Grids, hosts: Processes, slices: Processes = ()) -> None:
        ids = grids.device_ids
        owners = [_owners(ids, processes) for processes in (hosts, slices) if processes]
        self._most = (2 if slices else 1) if owners else 0
        self._across = self._weights(owners, axis=2, shape=ids.shape[:-1])
        self._down = self._weights(owners, axis=1, shape=ids.shape[:-1])

    def _weights(self, owners: Sequence[NDArray[Any]], axis: int, shape: tuple[int, ...]) -> Weights:
        """Return the weights of the lines before each cell along an axis, and of the line after the last."""
        long = list(shape)
        long[axis] += 1
        weights = np.full(long, self._most, np.int8)
        inner = np.moveaxis(weights, axis, -1)[..., 1:-1]
        inner[...] = 0
        for weight, numbers in enumerate(owners, 1 + self._most - len(owners)):
            inner[np.diff(np.moveaxis(numbers, axis, -1)) != 0] = weight
        return weights

    def across(self, facet: int, row: int) -> list[int]:
        """Return the weights of the vertical lines of a row: before each cell, and after the last."""
        weights: list[int] = self._across[facet, row].tolist()
        return weights

    def down(self, facet: int, line: int) -> list[int]:
        """Return the weights of the horizontal line above a row, or below the last, at each cell."""
        weights: list[int] = self._down[facet, line].tolist()
        return weights

    def is_framed(self, facets: Sequence[int], line: int) -> bool:
        """Return whether a horizontal line is part of a frame in any of some grids."""
        return bool(self._down[list(facets), line].any())


def _owners(ids: NDArray[Any], owners: Processes) -> NDArray[np.int64]:
    """Return a number for the set of owners of each cell's devices."""
    known = np.fromiter(chain.from_iterable(devices for _, devices in owners), np.int64)
    numbers = np.repeat(np.arange(len(owners)), [len(devices) for _, devices in owners])
    order = np.argsort(known, kind="stable")  # fast where they ascend, as most do
    at = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    owners_at = np.sort(numbers[order[at]], axis=-1)
    if ids.shape[-1] == 1:
        return owners_at[..., 0]
    # A set: repetitions are moved to the end.
    owners_at[..., 1:][np.diff(owners_at) == 0] = len(owners)
    sets = np.sort(owners_at, axis=-1).reshape(-1, ids.shape[-1])
    return np.unique(sets, axis=0, return_inverse=True)[1].reshape(ids.shape[:-1])


@dataclass(eq=False, repr=False)
class Subject:
    """A layout to draw, and facts about it that the layout itself does not have."""

    layout: ShardingLayout
    caption: tuple[str, ...]
    """Lines above the drawing, the most important first."""
    names: tuple[str, ...]
    """Names of the axes."""
    over: tuple[tuple[str, ...], ...] = ()
    """The mesh axes over which each array axis is sharded; empty if unknown."""
    bits: int | None = None
    """Bits per element; None if unknown."""
    is_mesh: bool = False
    """Whether this is a mesh, whose devices have positions instead of slices."""
    slices: Processes = ()
    """The devices of each slice of a mesh of TPUs; empty for one slice."""
    hosts: Processes = ()
    """The devices of each host of a mesh; empty for one host, and where hosts are not known."""
    links: tuple[str, ...] = ()
    """Lines below the drawing of a mesh: how the devices along each axis are connected."""

    @cached_property
    def grids(self) -> Grids:
        """The grids of cells."""
        return flat_grids(self.layout)

    @cached_property
    def frames(self) -> Frames:
        """The frames round hosts and slices; round processes of an array, and where hosts are not known."""
        return Frames(self.grids, self.hosts or self.layout.processes, self.slices)

    @cached_property
    def process_of(self) -> dict[int, int]:
        """The process of each device; empty if there is only one process."""
        return {device: process for process, ids in self.layout.processes for device in ids}

    def over_words(self, axis: int) -> str:
        """Return `` over x, y`` for an axis that is sharded over mesh axes x and y, else an empty string."""
        over = self.over[axis] if axis < len(self.over) else ()
        return f" over {', '.join(over)}" if over else ""

    def processes(self, group: DeviceGroup) -> list[int]:
        """Return the processes of the devices of a cell in ascending order; empty if there is only one."""
        return sorted({self.process_of[device] for device in group} if self.process_of else ())

    def cell_title(self, facet: int, row: int, column: int, group: DeviceGroup) -> str:
        """Return the tooltip of a cell: its devices, processes, slice and bytes per device, in lines."""
        devices = listed_devices(self.layout.platform, group, LISTED_WIDTH)
        if processes := self.processes(group):
            devices += f", process{'es' if len(processes) > 1 else ''} {format_device_ids(processes)}"
        shards = self.grids.position(facet, row, column)
        position = [shards.get(axis, 0) for axis in range(len(self.layout.shape))]
        if self.is_mesh:
            place = ", ".join(f"{name}={index}" for name, index in zip(self.names, position, strict=True))
            return f"{devices}\n{place}" if place else devices
        index = self.layout.shard_index(position)
        lines = [devices, f"[{', '.join(f'{piece.start}:{piece.stop}' for piece in index)}]"]
        nbytes = packed_nbytes([piece.stop - piece.start for piece in index], self.bits)
        if nbytes is not None:
            lines.append(format_bytes(nbytes) + (" per device" if len(group) > 1 else ""))
        if self.layout.partial_sums > 1:
            lines.append(held_words(self.layout))
        return "\n".join(lines)


def subject_of(report: Placed) -> Subject | None:
    """Return the subject of a report, None if the report has no device layout."""
    layout = report if isinstance(report, ShardingLayout) else report.layout
    if layout is None:
        return None
    from jax_array_info_core.reports import MeshReport, XlaReport

    match report:
        case MeshReport():
            return mesh_subject(report)
        case ArrayReport():
            sharding = report.sharding
            spec = sharding.spec if sharding else None
            return array_subject(layout, _array_caption(report, layout), spec, report.bits)
    return array_subject(
        layout, (_shards_words(layout),), report.spec if isinstance(report, XlaReport) else None
    )


def array_subject(
    layout: ShardingLayout, caption: tuple[str, ...] = (), spec: Spec | None = None, bits: int | None = None
) -> Subject:
    """Return the subject of an array."""
    names = tuple(f"axis {axis}" for axis in range(len(layout.shape)))
    over = tuple(tuple(map(printable, axes)) for axes in spec.axes) if spec else ()
    return Subject(layout, caption, names, over, bits)


def mesh_subject(report: MeshReport, encoding: str = "utf-8") -> Subject:
    """Return the subject of a mesh; its caption is like ``mesh data=4, model=2 (Explicit)``."""
    from jax_array_info_core.facts.reports.findings import findings_words  # arrays have none

    mesh = report.axes
    names = tuple(printable(clipped(name), encoding) for name in mesh.names)
    axes = [
        f"{name}={size}" + (f" ({printable(axis_type, encoding)})" if axis_type not in ("", "Auto") else "")
        for name, size, axis_type in zip(names, mesh.sizes, mesh.types or ("",) * len(names), strict=True)
    ]
    facts = that_apply(
        (True, f"mesh {', '.join(axes)}"),
        (report.topology is not None, f" on {printable(report.topology or '', encoding)}"),
        (report.order is not None, f", order: {printable(report.order or '', encoding)}"),
    )
    caption = "".join(facts)
    lines = [f"{printable(clipped(links.axis), encoding)}: {link_words(links)}" for links in report.links]
    lines += [printable(str(finding), encoding) for finding in report.findings]
    return Subject(
        report.layout,
        (findings_words(report.findings), caption) if report.findings else (caption,),
        names,
        is_mesh=True,
        slices=report.slices,
        hosts=report.hosts,
        links=tuple(lines),
    )


def _array_caption(report: ArrayReport, layout: ShardingLayout) -> tuple[str, ...]:
    """Return the lines with an array's name, its shape, dtype and bytes, and its sharding, where known."""
    facts = that_apply(
        (True, f"{shape_text(layout.shape)} {printable(clipped(report.dtype or ''))}".strip()),
        (report.nbytes is not None, size_words(report.nbytes)),
        (report.shard_nbytes is not None, f"{size_words(report.shard_nbytes)} per device"),
    )
    lines = [] if report.name is None else [printable(clipped(report.name))]
    lines.append(", ".join(facts))
    sharding = report.sharding
    if sharding and (sharding.spec or sharding.text):
        words = str(sharding.spec or sharding.text)
        if sharding.mesh:
            words += f" on mesh {mesh_words(sharding.mesh)}"
        lines.append(printable(clipped(words)))
    return tuple(lines)


def held_words(layout: ShardingLayout) -> str:
    """Return what the devices of each shard hold: ``4 partial sums over model``, ``2 replicas`` or both."""
    names = [printable(clipped(name)) for name in layout.unreduced]
    return copies_words(names, layout.partial_sums, layout.replicas)


def _shards_words(layout: ShardingLayout) -> str:
    """Return the shape of a layout, and the number, shape and replicas of its shards."""
    count = math.prod(layout.shard_counts)
    if count == 1:
        devices = layout.device_ids.size
        return f"{shape_text(layout.shape)} on {devices} device{'' if devices == 1 else 's'}"
    copies = held_words(layout)
    shape, shard_shape = shape_text(layout.shape), shape_text(layout.shard_shape)
    return f"{shape} in {count} shards of shape {shard_shape}{copies and f', {copies} each'}"


MAX_PATTERNS = 6
MAX_PROCESS_LINES = 8
PATTERN_FROM = 256


def facet_title(subject: Subject, facet: int, names: Sequence[str]) -> list[str]:
    """Return the title of a grid: the slices or positions of the leading sharded axes that it shows.

    For an array, a slice, such as ``axis 0 = 0:16 (1/2)``; for a mesh, a position, such as ``data = 0``.

    Args:
        subject: The layout that is drawn.
        facet: Index of the grid.
        names: Names of the axes.
    """
    grids = subject.grids
    pieces = []
    for axis, shard in zip(grids.facet_axes, grids.facet_position(facet), strict=True):
        piece = subject.layout.axis_slice(axis, shard)
        where = f"{piece.start}:{piece.stop} ({shard + 1}/{subject.layout.shard_counts[axis]})"
        pieces.append(f"{names[axis]} = {shard if subject.is_mesh else where}")
    return pieces


def left_out(subject: Subject, drawn: Sequence[int]) -> Iterator[str]:
    """Yield the note on how many facets, rows and columns a thinned picture shows.

    Args:
        subject: The layout that is drawn.
        drawn: Number of facets, rows and columns that are shown.
    """
    facets = f"slices of {', '.join(subject.names[axis] for axis in subject.grids.facet_axes)}"
    thinned = [
        f"{shown} of {count} {name}"
        for shown, count, name in zip(
            drawn, subject.grids.device_ids.shape, (facets, "rows", "columns"), strict=False
        )
        if shown < count
    ]
    if thinned:
        yield f"showing {', '.join(thinned)}"


def footer(
    subject: Subject, max_width: int, host_frame: str = "frames:", slice_frame: str = "wide frames:"
) -> list[str]:
    """Return the notes below a picture: links, the devices of each process, and the pattern of many shards.

    Args:
        subject: The layout that is drawn.
        max_width: Maximum line length in characters.
        host_frame: What the frame round a host looks like.
        slice_frame: What the frame round a slice looks like.
    """
    layout = subject.layout
    lines = [*subject.links, *_process_lines(layout, max_width)]
    processes = layout.processes if subject.is_mesh else ()
    frames = [
        f"{frame} {counted(len(groups), *nouns)}"
        for frame, groups, nouns in (
            (host_frame, subject.hosts, ("host", "hosts")),
            (host_frame, () if subject.hosts else processes, ("process", "processes")),
            (slice_frame, subject.slices, ("slice", "slices")),
        )
        if groups
    ]
    if frames:
        lines.insert(0, "  ".join(frames))
    if layout.partial_sums > 1:
        lines.insert(0, f"each cell: {held_words(layout)}")
    if math.prod(layout.shard_counts) > PATTERN_FROM:
        patterns = describe_pattern(layout, subject.names)
        axes = len(layout.sharded_axes)
        shown = min(axes, MAX_PATTERNS)
        lines += patterns[:shown]
        if axes > shown:
            lines.append(f"and {axes - shown} more {'axis' if axes == shown + 1 else 'axes'}")
        lines += patterns[axes:]
    return [piece for line in lines for piece in wrapped(line, max_width)]


def _process_lines(layout: ShardingLayout, width: int) -> list[str]:
    """Return the devices of each process, several processes per line, thinned to a few lines."""
    if not layout.processes:
        return []
    entries = [
        f"process {process}: {listed_devices(layout.platform, ids, width)}"
        for process, ids in layout.processes
    ]
    columns = max(1, (width + 2) // (max(map(len, entries)) + 2))
    chosen = [entries[number] for number in first_and_last(len(entries), columns * MAX_PROCESS_LINES)]
    size = max(map(len, chosen))
    lines = [
        "  ".join(entry.ljust(size) for entry in chosen[start : start + columns]).rstrip()
        for start in range(0, len(chosen), columns)
    ]
    if len(chosen) < len(entries):
        lines.insert(len(lines) // 2, "...")
        lines.append(f"showing {len(chosen)} of {len(entries)} processes")
    return lines


def link_words(links: AxisLinks) -> str:
    """Return how the devices along a mesh axis are connected, such as ``ICI, ring of 8 in z, 1 hop``.

    Several links are counted in pairs of neighbors, the slowest first.
    """
    from jax_array_info_core.geometry.layouts.links import LINK_WORDS  # arrays have no links

    kinds = {neighbors.link for neighbors in links.neighbors}
    if not kinds:
        return "one device"
    if len(links.neighbors) == 1:
        [only] = links.neighbors
        words = LINK_WORDS[only.link]
        if only.link == "ici":
            words += _form_words(links) + (f", {_hops(only)}" if only.hops else "")
    elif kinds == {"ici"}:
        words = f"ICI{_form_words(links)}: {_counted(links, '{hops}')}"
    else:
        words = _counted(links, "{link} {hops}")
    if crossing := _crossing(links):
        return f"{crossing}: {words}"
    if "dcn" in kinds:
        return f"{words}, {counted(links.slice_count, 'slice', 'slices')}"
    if kinds == {"same-host"}:
        return "inside a host"
    if links.leaves_host == "never" and kinds != {"same-chip"}:
        return f"inside a host: {words}"
    if kinds <= {"ici", "same-chip"}:
        return words
    if links.host_count is None:
        return f"{words}, {counted(links.process_count, 'process', 'processes')}"
    return f"{words}, {counted(links.host_count, 'host', 'hosts')}"


def _crossing(links: AxisLinks) -> str:
    """Return in how many groups slices, hosts or processes are crossed; empty if in all or none."""
    for noun, where, count in (
        ("slices", links.leaves_slice, links.groups_over_slices),
        ("hosts", links.leaves_host, links.groups_over_hosts),
        ("processes", links.leaves_process, links.groups_over_processes),
    ):
        if where == "partly" and count is not None:
            groups = counted(links.group_count, "group", "groups")
            return f"crosses {noun} in {format_number(count)} of {groups}"
    return ""


def _form_words(links: AxisLinks) -> str:
    """Return the form of the groups of an axis in the torus, such as ``, ring of 8 in z``."""
    *others, last = map(printable, links.sides or ("",))
    sides = f" in {', '.join(others)} and {last}" if others else last and f" in {last}"
    return sides if links.form is None else f", {links.form} of {links.chip_count}{sides}"


def _hops(neighbors: Neighbors) -> str:
    if neighbors.link != "ici":
        return ""
    return "hops unknown" if neighbors.hops is None else counted(neighbors.hops, "hop", "hops")


def _counted(links: AxisLinks, form: str) -> str:
    """Return the links of an axis with the number of pairs of neighbors of each."""
    from jax_array_info_core.geometry.layouts.links import LINK_WORDS

    pieces = (
        (
            format_number(neighbors.pair_count),
            form.format(link=LINK_WORDS[neighbors.link], hops=_hops(neighbors)).strip(),
        )
        for neighbors in links.neighbors
    )
    return ", ".join(f"{count} × {words}" for count, words in pieces)
