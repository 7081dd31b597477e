"""Totals of a tree: elements, bytes per device, and the causes of an uneven distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.grouping import by_key, sums_by_key
from ..base.quantities import LARGEST
from ..facts.reports.tree import (
    MOST_OTHER_PATHS,
    ExcessBytes,
    ExcessCause,
    TreeReport,
    TreeRow,
    UnmatchedAxes,
    elsewhere_bytes,
)
from .further import replicated_axes
from .rows import DeviceSet

_LARGEST_SUM = 2**62


def tree_of_rows(
    rows: Sequence[TreeRow],
    devices: Sequence[DeviceSet],
    *,
    name: str | None = None,
    type_name: str = "dict",
    others: int = 0,
    other_paths: Sequence[str] = (),
    unmatched_axes: UnmatchedAxes | None = None,
    shorter_count: int = 0,
) -> TreeReport:
    """Return the report of a tree with its totals.

    Args:
        rows: The leaves.
        devices: The device sets to which ``TreeRow.mesh`` refers.
        name: Name of the tree.
        type_name: Name of the tree's class.
        others: Number of leaves that are not arrays.
        other_paths: Their paths, if they are known.
        unmatched_axes: Logical axes and rules of a plan that did not match.
        shorter_count: Number of leaves that are planned as replicated since they are shorter than the spec.
    """
    once = [row for row in rows if row.same_as is None]
    on_devices = [row for row in once if row.is_on_devices]
    universe = _universe(once, devices)
    per_device = _per_device(on_devices, devices, universe)
    fullest = int(np.argmax(per_device)) if len(per_device) else 0
    nbytes = sum(row.nbytes or 0 for row in on_devices if row.shard_nbytes is not None)
    count = max(1, len(universe))
    most = int(per_device[fullest]) if len(per_device) else 0
    least = int(per_device.min()) if len(per_device) else 0
    ideal = -(-nbytes // count)
    is_full = [_holds(device_set, universe, fullest) for device_set in devices]
    params = [row for row in once if row.variable == "parameter" or f"{row.path}/".startswith("params/")]
    # Of several meshes in a file, each may have the fullest device.
    avoidable = sum(row.avoidable_nbytes for row in on_devices if row.mesh is not None and is_full[row.mesh])
    return TreeReport(
        name=name,
        type_name=type_name,
        rows=tuple(rows),
        meshes=tuple(device_set.mesh for device_set in devices),
        others=others,
        other_paths=tuple(other_paths[:MOST_OTHER_PATHS]),
        elements=_elements(once),
        parameters=_elements(params) if params else None,
        nbytes=nbytes,
        device_count=count,
        fullest_device_nbytes=most,
        emptiest_device_nbytes=least,
        ideal_nbytes=ideal,
        excess=_excess(on_devices, devices, is_full, count, most - ideal),
        avoidable_nbytes=min(most, avoidable),
        numpy_nbytes=sum(row.nbytes or 0 for row in once if row.kind == "numpy"),
        elsewhere=elsewhere_bytes(rows),
        host_nbytes=int(max(hosted_per_device(rows, devices)[1], default=0)),
        host_global_nbytes=sum(row.nbytes or 0 for row in _hosted(once)),
        unknown_count=sum(
            row.shard_nbytes is None and not row.is_deleted and row.elsewhere is None for row in once
        ),
        unmatched_axes=unmatched_axes,
        shorter_count=shorter_count,
    )


def _hosted(rows: Iterable[TreeRow]) -> list[TreeRow]:
    """Return the rows in host memory of known size."""
    return [row for row in rows if row.is_in_host_memory and row.shard_nbytes is not None]


def hosted_per_device(
    rows: Iterable[TreeRow], devices: Sequence[DeviceSet]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the ids of all devices of a tree, ascending, and the bytes in host memory of each.

    Without device sets, there are no ids, and one device.
    """
    once = [row for row in rows if row.same_as is None]
    universe = _universe(once, devices)
    return universe, _per_device(_hosted(once), devices, universe)


def holds_fullest(rows: Iterable[TreeRow], devices: Sequence[DeviceSet]) -> list[bool]:
    """Return whether each device set contains the device with the most bytes."""
    once = [row for row in rows if row.same_as is None]
    counted = [row for row in once if row.is_on_devices]
    universe = _universe(once, devices)
    fullest = int(np.argmax(_per_device(counted, devices, universe)))
    return [_holds(device_set, universe, fullest) for device_set in devices]


def _elements(rows: Iterable[TreeRow]) -> int | None:
    """Return the number of elements, none for symbolic shapes; None above 2^63 - 1."""
    count = 0
    for row in rows:
        lengths = [dim for dim in row.shape if isinstance(dim, int)]
        count += math.prod(lengths) if len(lengths) == len(row.shape) else 0
    return count if count <= LARGEST else None


def _ids(devices: DeviceSet) -> np.ndarray[Any, Any]:
    return np.arange(devices.mesh.device_count) if devices.ids is None else devices.ids


def _universe(rows: Iterable[TreeRow], devices: Sequence[DeviceSet]) -> np.ndarray[Any, Any]:
    """Return the ids of all devices that hold some of the leaves, ascending."""
    used = {row.mesh for row in rows if row.mesh is not None}
    if not used:
        return np.zeros(0, np.int64)
    ids = [_ids(devices[index]).ravel() for index in used]
    # The first np.unique imports numpy.ma, which takes a third of the time of numpy itself.
    return ids[0] if len(ids) == 1 else np.unique(np.concatenate(ids))


def _per_device(
    rows: Sequence[TreeRow], devices: Sequence[DeviceSet], universe: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the bytes on each device of ``universe``; on one device if it is empty.

    XLA pads the last shards of an uneven axis, so every device of a set holds as many bytes.
    """
    sums = sums_by_key((row.mesh, row.shard_nbytes or 0) for row in rows)
    is_small = sum(map(abs, sums.values())) < _LARGEST_SUM
    totals = np.zeros(max(1, len(universe)), np.int64 if is_small else object)
    totals += sums.pop(None, 0)
    for index, nbytes in sums.items():
        assert index is not None
        totals[np.searchsorted(universe, _ids(devices[index]))] += nbytes
    return totals


def _holds(devices: DeviceSet, universe: np.ndarray[Any, Any], position: int) -> bool:
    """Return whether a device set contains the device at a position of ``universe``."""
    return bool(len(universe)) and bool((_ids(devices) == universe[position]).any())


class _Cause(NamedTuple):
    cause: ExcessCause
    axes: tuple[str, ...] = ()


def _excess(
    rows: Sequence[TreeRow],
    devices: Sequence[DeviceSet],
    is_full: Sequence[bool],
    device_count: int,
    difference: int,
) -> tuple[ExcessBytes, ...]:
    """Return the bytes of the fullest device beyond an even distribution, by cause.

    A leaf of ``n`` bytes, sharded into ``s`` shards on ``d`` of all ``D`` devices, would take ``n / D`` bytes
    per device if it were evenly distributed. It takes ``n / d - n / D`` more since it is on ``d`` devices
    only, ``n / s - n / d`` more since it is replicated or consists of partial sums, and the rest of its shard
    is padding.
    """
    # Every term is a multiple of 1 / scale bytes.
    scale = math.lcm(device_count, *(device_set.mesh.device_count for device_set in devices))
    terms = (term for row in rows for term in _terms(row, devices, is_full, device_count, scale))
    return _rounded(by_key((cause, amount) for cause, amount in terms if amount), scale, difference)


def _terms(
    row: TreeRow, devices: Sequence[DeviceSet], is_full: Sequence[bool], device_count: int, scale: int
) -> Iterator[tuple[_Cause, int]]:
    """Yield the bytes of a leaf beyond an even distribution, by cause, as multiples of 1 / scale."""
    if row.shard_nbytes is None:
        return
    nbytes, held = row.nbytes or 0, row.shard_nbytes * scale
    even = nbytes * (scale // device_count)
    if row.mesh is None:
        yield _Cause("no sharding"), held - even
    elif not is_full[row.mesh]:
        yield _Cause("device set"), -even
    else:
        count = devices[row.mesh].mesh.device_count
        on_its_devices = nbytes * (scale // count)
        yield _Cause("device set"), on_its_devices - even
        if held != on_its_devices:
            summands = max(1, count // max(1, row.replicas))
            unpadded = nbytes * scale // max(1, summands // max(1, row.partial_sums))
            unreplicated = unpadded // max(1, row.replicas)
            yield _Cause("partial sums", row.unreduced), unreplicated - on_its_devices
            yield _replication(row, devices[row.mesh], summands), unpadded - unreplicated
            yield _Cause("padding"), held - unpadded


def _replication(row: TreeRow, devices: DeviceSet, parts: int) -> _Cause:
    """Return the cause of the replicas of a leaf with a number of shards or partial sums."""
    axes = () if parts == 1 else tuple(name for name, _ in replicated_axes(row, devices.mesh))
    return _Cause("fully replicated" if parts == 1 else "replicated over", axes)


def _rounded(terms: Mapping[_Cause, Sequence[int]], scale: int, difference: int) -> tuple[ExcessBytes, ...]:
    """Return the causes in whole bytes that add up to the difference, by the largest remainders."""
    exact = {cause: sum(amounts) for cause, amounts in terms.items()}
    whole = {cause: amount // scale for cause, amount in exact.items()}
    by_remainder = sorted(exact, key=lambda cause: exact[cause] % scale, reverse=True)
    for cause in by_remainder[: difference - sum(whole.values())]:
        whole[cause] += 1
    parts = [
        ExcessBytes(cause=cause.cause, axes=cause.axes, nbytes=nbytes, leaf_count=len(terms[cause]))
        for cause, nbytes in whole.items()
        if nbytes
    ]
    return tuple(sorted(parts, key=lambda part: -part.nbytes))
