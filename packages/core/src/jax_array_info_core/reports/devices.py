"""Reports on devices and their memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Memory statistics of one device, as its allocator reports them."""

    device: str
    """Name of the device, such as ``cuda:0``."""

    stats: tuple[tuple[str, int | float | str], ...] | None
    """``(name, value)`` pairs in the order of the backend, without ``num_allocs``; sizes are in bytes. None
    where the backend has no statistics."""

    allocation_count: int | None = None
    """Number of allocations so far (``num_allocs``); None where it is not reported."""

    missing_reason: str | None = None
    """Reason why there are no statistics; None where there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One device and its memory, as far as it is known."""

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
    """Whether this process owns the device. The memory of other processes' devices is not known."""

    memory_kinds: tuple[str, ...] = ()
    """Memory kinds that the device can address, such as ``device`` and ``pinned_host``."""

    default_memory_kind: str | None = None
    """Memory kind that the device uses by default."""

    bytes_in_use: int | None = None
    """Allocated bytes; None where the backend does not report them."""

    peak_bytes_in_use: int | None = None
    """Highest number of allocated bytes so far; None where the backend does not report it."""

    bytes_limit: int | None = None
    """Number of bytes that can be allocated; None where the backend does not report it."""

    array_nbytes: int | None = None
    """Bytes of live arrays in the memory of the device. Shared buffers are counted once, and arrays in host
    memory are not counted unless that is the default memory. None for devices of other processes."""

    unexplained_nbytes: int | None = None
    """Bytes in use that belong to no live array: executables, temporaries, fragmentation. At least 0;
    None where ``bytes_in_use`` or ``array_nbytes`` is None."""

    missing_reason: str | None = None
    """Reason why there are no statistics; None where there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport:
    """Several devices, in the order of ``jax.devices()``."""

    devices: tuple[DeviceReport, ...]
    """One report for each device."""

    @property
    def has_statistics(self) -> bool:
        """Whether any of the devices reports its memory in use."""
        return any(device.bytes_in_use is not None for device in self.devices)
