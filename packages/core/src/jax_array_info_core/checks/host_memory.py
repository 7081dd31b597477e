"""The leaves of a tree in host memory, compared with the memory of a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.meshes import devices_per_host
from ..quantities import counted, format_bytes
from ..reports.checks import HostUnit
from ..reports.findings import Finding, Option, remedies
from ..reports.tree import TreeReport, TreeRow
from ..trees.rows import DeviceSet
from ..trees.totals import hosted_per_device
from .moments import uncounted_memory


class HostBytes(NamedTuple):
    """Bytes in host memory of the devices of one host, process or of all."""

    nbytes: int
    """Their sum, of the host with the most."""

    ideal_nbytes: int
    """Bytes of a host if each leaf in host memory were on one device only, and the hosts had equal parts."""

    device_count: int
    """Number of devices of that host."""

    unit: HostUnit
    """What the devices are those of."""


def host_bytes(report: TreeReport, devices: Sequence[DeviceSet], hosts: int | None) -> HostBytes:
    """Return the bytes of a tree in host memory, summed over the devices of a host.

    The devices of a host are those of a process. Unless they are TPUs, several processes may be on a host.
    Where the processes are not known, all devices count as one.

    Args:
        report: The tree.
        devices: The device sets to which ``TreeRow.mesh`` refers.
        hosts: Number of hosts, each with the same number of consecutive devices. None for the processes.

    Raises:
        SpecError: (a ValueError) If the devices cannot be divided among the hosts.
        UnsupportedValueError: (a ValueError) If ``hosts`` is not an integer.
    """
    ids, nbytes = hosted_per_device(report.rows, devices)
    owners, unit = _owners(ids, devices, hosts, len(nbytes))
    sums = {owner: sum(nbytes[owners == owner].tolist()) for owner in np.unique(owners).tolist()}
    fullest = max(sums, key=lambda owner: sums[owner])
    return HostBytes(
        nbytes=sums[fullest],
        ideal_nbytes=-(-report.host_global_nbytes // len(sums)),
        device_count=int(np.count_nonzero(owners == fullest)),
        unit=unit,
    )


def _owners(
    ids: np.ndarray[Any, Any], devices: Sequence[DeviceSet], hosts: int | None, count: int
) -> tuple[np.ndarray[Any, Any], HostUnit]:
    """Return the number of the host or the process of each device, and what it is."""
    if count == 1:
        return np.zeros(1, np.int64), "host"
    if hosts is not None:
        return np.arange(count) // devices_per_host(count, hosts), "host"
    owners = np.zeros(count, np.int64)
    if any(found.ids is None and found.mesh.platform is None for found in devices):
        return owners, "all devices"
    if any(found.mesh.process_count > 1 and not found.processes for found in devices):
        return owners, "all devices"
    for found in devices:
        for process, of_process in found.processes:
            owners[np.isin(ids, of_process)] = process
    is_one = all(found.mesh.process_count == 1 or found.mesh.platform == "tpu" for found in devices)
    return owners, "host" if is_one else "process"


def exceeded_host_memory(
    required: HostBytes, limit: int, optimizer_words: str, uncounted: Sequence[TreeRow]
) -> Finding | None:
    """Return the finding on a tree that does not fit the memory of a host, or may not fit.

    Args:
        required: The bytes in host memory, with those of the optimizer state that will be added.
        limit: Memory of a host.
        optimizer_words: That state in words; empty if it takes no host memory.
        uncounted: Leaves of unknown size, unless another finding is about them.
    """
    if required.nbytes <= limit:
        return uncounted_memory(uncounted) if uncounted else None
    devices = counted(required.device_count, "device", "devices")
    place = f"all {devices}" if required.unit == "all devices" else f"a {required.unit} of {devices}"
    added = f", with {optimizer_words}" if optimizer_words else ""
    if required.unit == "all devices":
        fix = remedies("If the devices are on several hosts, pass {hosts}.", hosts=Option("hosts"))
    elif required.ideal_nbytes <= limit:
        even = format_bytes(required.ideal_nbytes)
        fix = remedies(f"Evenly sharded, without replicas, it would take {even} per {required.unit}.")
    else:
        fix = remedies("Leave fewer leaves in host memory, or shard them over more hosts.")
    return Finding(
        kind="memory",
        problem=f"The tree takes {format_bytes(required.nbytes)} of host memory for {place}{added}, "
        f"{format_bytes(required.nbytes - limit)} more than the {format_bytes(limit)} of a host.",
        **fix,
    )
