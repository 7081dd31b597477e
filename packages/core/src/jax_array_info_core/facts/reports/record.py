"""Lines of a memory record, as a recorder writes them: each is one line of JSON in a file.

A file is a segment: it begins with a ``RecordStart``, and each group of arrays has its ``RecordGroup`` before
the first sample that refers to it. Times are in seconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...base import quantities
from .array import ArrayType
from .origin import Origin, SourceLine

EndReason = Literal["stopped", "exited", "raised"]

MOST_THREADS, MOST_FRAMES = 16, 12
"""Maximum number of stacks of a stall, and of the frames of each."""
JITTED = "the jitted function "
"""Begin of the name of a call that XLA runs."""
_OF_DEVICES = (
    JITTED,
    "jax.Array.",
    "jax.block_until_ready",
    "jax.device_get",
    "jax.distributed.",
    "jax.effects_barrier",
    "multihost_utils.",
)
"""Begins of the names of calls that wait for devices or for other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDevice:
    """A device of the process that is recorded."""

    id: quantities.Difference
    """Id of the device."""

    name: str
    """Name, such as ``cuda:0``."""

    bytes_limit: quantities.Size | None = None
    """Maximum number of bytes that can be allocated; None if the backend does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStart:
    """First line of a segment."""

    time: quantities.Time
    """Time at which the segment begins."""

    started: quantities.Time
    """Time at which the recorder started: the same in all its segments."""

    segment: quantities.Size
    """Number of the segment, from 0."""

    process: quantities.Size
    """Index of the process."""

    process_count: quantities.Count
    """Number of processes of the job."""

    host_name: str
    """Name of the machine."""

    pid: quantities.Size
    """Id of the process in its operating system."""

    pid_started: quantities.Size | None = None
    """When the process began, in clock ticks since the machine started; None if it is not known. With the id,
    it tells whether the process still runs."""

    pid_namespace: str | None = None
    """Name of the namespace of process ids, such as that of a container; None if it is not known."""

    platform: str
    """Platform of the devices, such as ``gpu``."""

    devices: tuple[RecordDevice, ...]
    """Devices of the process. Numbers per device in other lines are in this order."""

    in_use_source: Literal["allocator", "arrays"]
    """Source of the bytes in use. ``allocator``: ``device.memory_stats()``; ``arrays``: the sum over the live
    arrays, for a backend that reports no statistics."""

    every: float
    """Seconds between samples."""

    job: str | None = None
    """Id of the job, as the scheduler names it, such as ``123_4`` for a task of a SLURM array. None without
    one."""

    rank: quantities.Size | None = None
    """Rank that the launcher gave the process, as in ``SLURM_PROCID``; None without one. Without
    ``jax.distributed.initialize()``, the processes of a launch all have index 0."""

    @property
    def recorder(self) -> tuple[float, str, int]:
        """Start, machine and process id of the recorder: the same in all its segments."""
        return self.started, self.host_name, self.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGroup(ArrayType):
    """Arrays that agree in allocation site, shape, dtype and sharding."""

    id: quantities.Size
    """Number of the group in its segment."""

    sharding: str
    """Spec and mesh, or the name of a sharding without a spec."""

    memory_kind: str | None = None
    """Memory kind; None if it is not known."""

    origin: Origin | None = None
    """Allocation site; None if it is not known."""

    shard_nbytes: quantities.Size
    """Bytes of one array on each of its devices."""

    devices: tuple[quantities.Size, ...]
    """Places of the devices that hold a shard, in the devices of the ``RecordStart``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSample:
    """Memory of the devices at one moment."""

    time: quantities.Time
    """Time of the sample."""

    step: quantities.Difference | None = None
    """Last step that the program named; None before the first."""

    in_use: tuple[quantities.Size, ...]
    """Bytes in use on each device."""

    peak: tuple[quantities.Size, ...] = ()
    """Largest bytes in use of each device since the process began; empty if it is not reported."""

    groups: tuple[quantities.Size, ...] = ()
    """Ids of the groups with the most bytes, and of those that increased the most."""

    counts: tuple[quantities.Size, ...] = ()
    """Number of live arrays of each of these groups."""

    other_nbytes: tuple[quantities.Size, ...] = ()
    """Bytes of all other live arrays on each device; empty if they take none."""

    process_nbytes: quantities.Size | None = None
    """Bytes of the process in the memory of the host (resident); None where it is not known."""

    own_nbytes: quantities.Size | None = None
    """Bytes of the recorder's table of live arrays, which are part of them; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMark:
    """A moment that the program named."""

    time: quantities.Time
    """Time of the mark."""

    name: str
    """Name."""

    step: quantities.Difference | None = None
    """Last step that the program named."""

    is_end: bool = False
    """Whether the part of the program with this name ends here."""

    begin: quantities.Time | None = None
    """Time of the line at which the part began that ends here; None for a begin."""

    in_use: tuple[quantities.Size, ...] = ()
    """Bytes in use on each device at this moment; empty if they are unknown."""

    peak: tuple[quantities.Size, ...] = ()
    """Largest bytes in use of each device since the process began; empty if it is not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOutOfMemory:
    """An allocation that failed. The next sample has all groups of arrays that were live."""

    time: quantities.Time
    """Time at which the error was seen."""

    message: str
    """First line of the error."""

    requested_nbytes: quantities.Size | None = None
    """Bytes that could not be allocated; None if the error does not name them."""

    step: quantities.Difference | None = None
    """Last step that the program named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordThread:
    """A thread of Python, while the step of its process did not move."""

    name: str
    """Name of the thread."""

    frames: tuple[SourceLine, ...] = ()
    """Its stack, innermost first: at most 12 frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStall:
    """A step that lasts long: 60 seconds or more, and ten times the median step. Written once for each.

    Before the third step, and without steps, it is the main thread that has not run for 60 seconds. It has
    ended if a later line has another step.
    """

    time: quantities.Time
    """Time at which the stacks were read."""

    since: quantities.Time
    """Time at which the step began, or from which on the main thread has not run."""

    step: quantities.Difference | None = None
    """The step: the last that the program named; None before the first."""

    is_over: bool = False
    """Whether the main thread runs again. Then the line has no stacks."""

    mark: str | None = None
    """Mark in which the process was; None if it was in none."""

    origin: SourceLine | None = None
    """Innermost line of the user in the thread that named the step, or in the main thread if that one has
    ended; None if it has none."""

    waits_in: str | None = None
    """Call in this line that does not return, such as ``jax.block_until_ready``, as far as the stack of
    Python tells; None if it does not."""

    threads: tuple[RecordThread, ...] = ()
    """Stacks of the threads, that of ``origin`` first: at most 16."""

    def __post_init__(self) -> None:
        if len(self.threads) > MOST_THREADS or any(
            len(thread.frames) > MOST_FRAMES for thread in self.threads
        ):
            raise ValueError(f"more than {MOST_THREADS} stacks, or {MOST_FRAMES} frames of one")

    @property
    def place(self) -> str:
        """Function and line of the user: ``make_array at data.py:41``."""
        return "an unknown line" if self.origin is None else f"{self.origin.function} at {self.origin.place}"

    @property
    def waits_for_devices(self) -> bool:
        """Whether the call waits for devices or other processes, as far as it is known."""
        return (self.waits_in or "").startswith(_OF_DEVICES)

    @property
    def words(self) -> str:
        """The step, the mark and the call: ``step 1,200, in eval, waiting in jax.device_get``."""
        step = None if self.step is None else f"step {quantities.grouped(self.step)}"
        mark, call = self.mark and f"in {self.mark}", self.waits_in and f"waiting in {self.waits_in}"
        return ", ".join(filter(None, (step, mark, call)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCompilation:
    """A recompilation, in a program that ``jai-cli run --recompiles`` watches."""

    time: quantities.Time
    """Time of its end."""

    function: str
    """Qualified name of the function."""

    origin: Origin | None = None
    """Line of the call; None if it is not in the user's code."""

    seconds: float
    """Duration of the compilation by XLA."""

    reason: str
    """What differs from the nearest earlier call of the function."""

    step: quantities.Difference | None = None
    """Last step that the program named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEnd:
    """Last line of a recorder. A process that was killed has none."""

    time: quantities.Time
    """Time of the end."""

    reason: EndReason
    """``stopped``: by the program; ``exited``: the program ended; ``raised``: by an exception."""

    message: str = ""
    """First line of the exception; empty without one."""


RecordLine: TypeAlias = (
    RecordStart
    | RecordGroup
    | RecordSample
    | RecordMark
    | RecordOutOfMemory
    | RecordStall
    | RecordCompilation
    | RecordEnd
)
"""Line of a record."""

LINES: dict[str, type[RecordLine]] = {
    "start": RecordStart,
    "group": RecordGroup,
    "sample": RecordSample,
    "mark": RecordMark,
    "out of memory": RecordOutOfMemory,
    "stall": RecordStall,
    "compilation": RecordCompilation,
    "end": RecordEnd,
}
"""The class of a line by its first field, ``line``."""
