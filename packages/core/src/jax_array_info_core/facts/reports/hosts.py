"""The report on the processes of a job, and the summary of one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import counted, format_bytes, format_device_ids
from ...base.text import printable
from .array import ArrayType
from .findings import Finding, Syntax

SummaryOf = Literal["LiveArrayReport", "TreeReport", "DevicesReport"]
"""Class of the report that a summary is of."""

MAX_PROCESSES = 2**20
"""Maximum number of processes of a job."""
MAX_DEVICES = 8
"""Maximum number of devices in a summary, those with the most bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """Memory of one device of a process."""

    id: quantities.Difference
    """Id of the device."""

    nbytes: quantities.Size | None = None
    """Bytes of live arrays; None for a report that does not have them, such as one of a tree."""

    bytes_in_use: quantities.Size | None = None
    """Bytes allocated; None if the backend does not report them."""

    peak_bytes_in_use: quantities.Size | None = None
    """Largest number of bytes allocated at any time so far; None if the backend does not report it."""

    bytes_limit: quantities.Size | None = None
    """Maximum number of bytes that can be allocated; None if the backend does not report it."""

    @property
    def held_nbytes(self) -> int:
        """Bytes in use, else those of live arrays; 0 if neither is known."""
        return (self.nbytes or 0) if self.bytes_in_use is None else self.bytes_in_use


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSummary:
    """Summary of a report of one process, at most 4 KiB as JSON."""

    process: quantities.Size
    """Index of the process."""

    process_count: quantities.Count
    """Number of processes of the job."""

    host_name: str
    """Name of the machine, its first 64 characters."""

    boot_id: str | None = None
    """Identifier of the machine since it was started; None where the system has none, as outside of Linux."""

    of: SummaryOf
    """Class of the report."""

    platform: str = ""
    """Platform of the devices; empty if it is not known."""

    nbytes: quantities.Total = 0
    """Bytes by which processes are compared. Of live arrays: on all devices of the process. Of a tree: per
    device, on the fullest. Of devices: in use on all devices of the process, or in live arrays where the
    backend does not report the bytes in use."""

    device_count: quantities.Size = 0
    """Number of devices of the process; 0 if JAX has not started."""

    devices: tuple[HostDevice, ...] = ()
    """Devices of the process, at most 8, those with the most bytes first."""

    array_count: quantities.Total | None = None
    """Number of arrays without views, or of leaves; None for a report of devices."""

    digest: str = ""
    """Hash of the set of arrays: shape, dtype, sharding, label or path, and number of each. Equal for equal
    sets; empty for a report of devices."""

    @property
    def device(self) -> HostDevice | None:
        """The device with the most bytes; None if no device is known."""
        return self.devices[0] if self.devices else None

    @property
    def peak_nbytes(self) -> int | None:
        """Largest peak of the devices; None if it is not known."""
        return max(
            (device.peak_bytes_in_use for device in self.devices if device.peak_bytes_in_use), default=None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostArray(ArrayType):
    """Arrays that agree in shape, dtype, sharding and label."""

    sharding: str
    """Spec and mesh, or the name of a sharding without a spec."""

    label: str | None = None
    """Label of a live array, or path of a leaf; None without one."""

    count: quantities.Total = 1
    """Number of these arrays that one process has and the other lacks."""

    nbytes: quantities.Size | None = None
    """Bytes per device of one array; None if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDifference:
    """Difference of the set of arrays of one process from that of most processes."""

    process: quantities.Size
    """Index of the process."""

    unread_because: str | None = None
    """Reason why the arrays themselves were not compared; None if they were."""

    extra_count: quantities.Total = 0
    """Number of arrays that only this process has."""

    lacking_count: quantities.Total = 0
    """Number of arrays that this process lacks."""

    extra: tuple[HostArray, ...] = ()
    """Arrays that only this process has, the most bytes first, at most 20."""

    lacking: tuple[HostArray, ...] = ()
    """Arrays that this process lacks, the most bytes first, at most 20."""

    @property
    def words(self) -> str:
        """The numbers of arrays: ``2 arrays more, 1 fewer``; empty if they are not known."""
        if self.unread_because is not None:
            return ""
        more = f"{counted(self.extra_count, 'array', 'arrays')} more" if self.extra_count else ""
        noun = "" if more else " array" if self.lacking_count == 1 else " arrays"
        fewer = f"{self.lacking_count}{noun} fewer" if self.lacking_count else ""
        return ", ".join(filter(None, (more, fewer)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadHost:
    """A file, or the answer of a process, that is not part of a report on hosts."""

    name: str
    """Name of the file, or of the process."""

    reason: str
    """Reason, in one line."""

    process: quantities.Size | None = None
    """Index of the process in the name of the file; None if the name has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsReport(Displayed):
    """Bytes and arrays of the processes of a job. Returned by ``hosts_report``.

    Differences are those from the set of arrays that most processes have, or if several sets are as frequent,
    the one of the lowest process index.
    """

    process_count: quantities.Size
    """Number of processes of the job; 0 if no process is known."""

    hosts: tuple[HostSummary, ...] = ()
    """Summaries of the processes, by process index."""

    missing: tuple[quantities.Size, ...] = ()
    """Indices of the processes that did not answer or left no file."""

    unread: tuple[UnreadHost, ...] = ()
    """Files or answers that could not be read. Their processes are not ``missing``."""

    differences: tuple[HostDifference, ...] = ()
    """Processes whose set of arrays differs, by process index."""

    findings: tuple[Finding, ...] = ()
    """Missing processes, different arrays and files that could not be read."""

    ignored_codes: tuple[str, ...] = ()
    """Codes in ``ignore_codes``: no finding has one of them."""

    syntax: Syntax = "python"
    """Language in which the printed report names arguments."""

    fullest_nbytes: quantities.Total = field(init=False, default=0, compare=False)
    """Bytes of the fullest process."""

    emptiest_nbytes: quantities.Total = field(init=False, default=0, compare=False)
    """Bytes of the emptiest process."""

    machine_count: quantities.Size = field(init=False, default=0, compare=False)
    """Number of different machines: of boot ids where each process has one, else of host names."""

    def __post_init__(self) -> None:
        machines = {host.boot_id for host in self.hosts}
        if None in machines:
            machines = {host.host_name for host in self.hosts}
        nbytes = [host.nbytes for host in self.hosts]
        object.__setattr__(self, "machine_count", len(machines))
        object.__setattr__(self, "fullest_nbytes", max(nbytes, default=0))
        object.__setattr__(self, "emptiest_nbytes", min(nbytes, default=0))

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def unit(self) -> str:
        """``host`` if each process has a machine of its own, else ``process``."""
        return "host" if self.machine_count == len(self.hosts) else "process"

    @property
    def bytes_words(self) -> str:
        """Meaning of the bytes of a process, in words."""
        kind = self.hosts[0].of if self.hosts else None
        if kind == "DevicesReport":
            is_in_use = any(device.bytes_in_use is not None for host in self.hosts for device in host.devices)
            return "in use" if is_in_use else "in live arrays"
        return "of the tree per device" if kind == "TreeReport" else "of live arrays"

    @property
    def ranked(self) -> tuple[HostSummary, ...]:
        """The processes, the most bytes first."""
        return tuple(sorted(self.hosts, key=lambda host: (-host.nbytes, host.process)))

    @property
    def is_even(self) -> bool:
        """Whether all processes have the same number of bytes."""
        return self.fullest_nbytes == self.emptiest_nbytes

    @property
    def answer(self) -> str:
        """The range of bytes, then what differs, what is missing and what could not be read."""
        parts = [self._range, self._different]
        if self.missing:
            verb = "are" if len(self.missing) > 1 else "is"
            parts.append(f"{processes_words(self.missing)} {verb} missing")
        if self.unread:
            parts.append(f"{counted(len(self.unread), 'report', 'reports')} not read")
        return "; ".join(filter(None, parts))

    @property
    def _range(self) -> str:
        count = len(self.hosts)
        if not count:
            return "no hosts"
        processes = counted(count, "process", "processes")
        machines = counted(self.machine_count, "host", "hosts")
        who = machines if self.unit == "host" else f"{processes} on {machines}"
        least, most = format_bytes(self.emptiest_nbytes), format_bytes(self.fullest_nbytes)
        if count == 1:
            return f"{who}: {most} {self.bytes_words}"
        if self.is_even:
            return f"{who}: {most} {self.bytes_words} on each {self.unit}"
        return f"{who}: {least} to {most} {self.bytes_words} on each {self.unit}"

    @property
    def _different(self) -> str:
        if not self.differences:
            return ""
        who = processes_words([row.process for row in self.differences])
        if len(self.differences) > 1:
            return f"{who} differ in their arrays"
        words = self.differences[0].words
        return f"{who} differs in its arrays{f': {words}' if words else ''}"

    def __str__(self) -> str:
        texts = (finding.text(self.syntax) for finding in self.findings)
        return "\n".join([printable(self.answer), *texts])


_MOST_RANGES = 12


def processes_words(processes: Sequence[int]) -> str:
    """Return some processes as ``process 3`` or ``processes 3, 7-12``, and at most 12 ranges."""
    if len(processes) == 1:
        return f"process {processes[0]}"
    ranges = format_device_ids(processes).split(",")
    if len(ranges) > _MOST_RANGES:
        return f"{len(processes)} processes ({', '.join(ranges[:_MOST_RANGES])}, …)"
    return f"processes {', '.join(ranges)}"
