"""The processes of a timeline, and their devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from .record import RecordStall

_LONGEST_MESSAGE = 120
"""Length of an error at which its rest is left out."""

ProcessState = Literal["running", "not heard from", "gone", "stopped", "exited", "raised"]
"""``running``: it wrote a line lately; ``not heard from``: it did not, and may run on another machine;
``gone``: it runs no longer and wrote no end, such as after a kill; the others as in ``RecordEnd``."""

_STATES: dict[ProcessState, str] = {
    "running": "is running",
    "not heard from": "has written nothing for a while",
    "gone": "was killed or crashed",
    "stopped": "stopped the record",
    "exited": "ended",
    "raised": "ended with an exception",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDevice:
    """Memory of a device at the end of its record."""

    id: quantities.Difference
    """Id of the device."""

    name: str
    """Name, such as ``cuda:0``."""

    bytes_in_use: quantities.Size
    """Bytes in use in the last sample."""

    peak_nbytes: quantities.Size
    """Largest bytes in use: as the backend reports it, else in any sample."""

    bytes_limit: quantities.Size | None = None
    """Maximum number of bytes that can be allocated; None if the backend does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineProcess:
    """Record of one run of a process. The segments of a process that was restarted are joined."""

    process: quantities.Size
    """Index of the process."""

    run: quantities.Size = 0
    """Number of the run, from 0: programs that had the same index at the same time are several runs."""

    run_count: quantities.Count = 1
    """Number of runs of processes with this index."""

    host_name: str
    """Name of its machine, of the last recorder."""

    pid: quantities.Size
    """Id of the process in its operating system."""

    job: str | None = None
    """Id of its job, as the scheduler names it; None without one."""

    platform: str
    """Platform of its devices."""

    start: quantities.Time
    """Time of the first sample, in seconds since 1970-01-01 UTC."""

    end: quantities.Time
    """Time of the last line."""

    every: float
    """Seconds between samples, as asked for."""

    state: ProcessState
    """Whether it runs or how it ended."""

    message: str = ""
    """First line of the exception that ended it; empty without one."""

    restarts: quantities.Size = 0
    """Number of recorders after the first."""

    sample_count: quantities.Size = 0
    """Number of samples."""

    step: quantities.Difference | None = None
    """Last step that the program named; None if it named none."""

    mark: str | None = None
    """Mark that was last; None if there is none or it ended."""

    stall: RecordStall | None = None
    """Its last step, if that did not end for so long that it was recorded as a stall; None if it ended, or
    the process ended its record."""

    in_use_source: Literal["allocator", "arrays"] = "arrays"
    """Source of the bytes in use, as in ``RecordStart``."""

    devices: tuple[TimelineDevice, ...] = ()
    """Its devices."""

    @property
    def name(self) -> str:
        """The process: ``process 0``, with its run if there are several.

        An example is ``process 0 (run 2: host gpu7, pid 4711, job 123_4)``.
        """
        if self.run_count == 1:
            return f"process {self.process}"
        job = "" if self.job is None else f", job {self.job}"
        return f"process {self.process} (run {self.run}: host {self.host_name}, pid {self.pid}{job})"

    @property
    def fullest(self) -> TimelineDevice | None:
        """The device with the highest peak; None without devices."""
        return max(self.devices, key=lambda device: device.peak_nbytes, default=None)

    @property
    def state_words(self) -> str:
        """The state, with how it ended: ``is running``, ``was killed or crashed``."""
        return _STATES[self.state]

    @property
    def ending(self) -> str:
        """The state, with the start of the exception that ended it."""
        if self.state != "raised" or not self.message:
            return self.state_words
        rest = "…" if len(self.message) > _LONGEST_MESSAGE else ""
        return f"ended with {self.message[:_LONGEST_MESSAGE]}{rest}"
