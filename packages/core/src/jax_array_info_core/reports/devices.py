"""Reports on devices and their memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..notebooks import Displayed


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport(Displayed):
    """Memory statistics of one device from its allocator."""

    device: str
    """Name of the device, such as ``cuda:0``."""

    stats: tuple[tuple[str, int | float | str], ...] | None
    """``(name, value)`` pairs in the order of the backend, without ``num_allocs``; sizes are in bytes. None
    if the backend provides no statistics."""

    allocation_count: int | None = None
    """Number of allocations so far (``num_allocs``); None if the backend does not report it."""

    missing_reason: str | None = None
    """Reason why the statistics are missing; None if they are available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """Kind and memory statistics of one device."""

    id: int
    """Id of the device, as in ``jax.devices()``."""

    name: str
    """Name, such as ``cuda:0``."""

    platform: str
    """Platform, such as ``gpu``."""

    kind: str
    """Hardware model (JAX's ``device_kind``), such as ``NVIDIA H100 80GB HBM3``."""

    process: int
    """Index of the process that owns the device."""

    is_local: bool
    """Whether this process owns the device. The memory of other processes' devices is unknown."""

    memory_kinds: tuple[str, ...] = ()
    """Memory kinds that the device can address, such as ``device`` and ``pinned_host``."""

    default_memory_kind: str | None = None
    """Memory kind that the device uses by default."""

    bytes_in_use: int | None = None
    """Bytes allocated now; None if the backend does not report them."""

    peak_bytes_in_use: int | None = None
    """Largest number of bytes allocated at any time so far; None if the backend does not report it."""

    bytes_limit: int | None = None
    """Maximum number of bytes that can be allocated; None if the backend does not report it."""

    array_nbytes: int | None = None
    """Bytes of live arrays in the default memory of the device. Shared buffers are counted once. None for
    devices of other processes."""

    unexplained_nbytes: int | None = None
    """Bytes in use that belong to no live array: executables, temporaries and fragmentation. At least 0; None
    if ``bytes_in_use`` or ``array_nbytes`` is None."""

    missing_reason: str | None = None
    """Reason why the statistics are missing; None if they are available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport(Displayed):
    """Kind and memory statistics of several devices."""

    devices: tuple[DeviceReport, ...]
    """One report per device, in the order in which they were passed, or in the order of
    ``jax.devices()``."""

    @property
    def has_statistics(self) -> bool:
        """Whether at least one device reports its memory in use."""
        return any(device.bytes_in_use is not None for device in self.devices)
