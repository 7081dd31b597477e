"""Reports on devices and their memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """What the allocator of one device says about its memory."""

    device: str
    """Name of the device, such as ``cuda:0``."""

    stats: tuple[tuple[str, int | float | str], ...] | None
    """Names and values as the backend gives them, in its order, without ``num_allocs``; sizes are in
    bytes. None where there are none."""

    allocation_count: int | None = None
    """How many allocations there were since the start (``num_allocs``)."""

    missing_reason: str | None = None
    """Why there are no statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One device, and its memory as far as it is known."""

    id: int
    """Its id, as in ``jax.devices()``."""

    name: str
    """Its name, such as ``cuda:0``."""

    platform: str
    """Its platform, such as ``gpu``."""

    kind: str
    """What it is, such as ``NVIDIA H100 80GB HBM3``."""

    process: int
    """Index of the process whose device it is."""

    is_local: bool
    """Whether that is this process; nothing is known of the memory of others."""

    memory_kinds: tuple[str, ...] = ()
    """Names of the memories that it reaches, such as ``device`` and ``pinned_host``."""

    default_memory_kind: str | None = None
    """The one of these that it uses when none is asked for."""

    bytes_in_use: int | None = None
    """Bytes that are allocated; None where the backend does not report it."""

    peak_bytes_in_use: int | None = None
    """The most bytes that ever were; None where it is not reported."""

    bytes_limit: int | None = None
    """Bytes that may be allocated; None where it is not reported."""

    array_nbytes: int | None = None
    """Bytes of the live arrays in its memory, buffers that arrays share counted once; without those in
    host memory, where that is not its default. None for what is no device of this process."""

    unexplained_nbytes: int | None = None
    """Bytes in use that no live array explains: executables, temporaries, fragments. Never negative;
    None where ``bytes_in_use`` or ``array_nbytes`` is."""

    missing_reason: str | None = None
    """Why there are no statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport:
    """Several devices, in the order of ``jax.devices()``."""

    devices: tuple[DeviceReport, ...]
    """The devices."""

    @property
    def has_statistics(self) -> bool:
        """Whether any of them reports its memory."""
        return any(device.bytes_in_use is not None for device in self.devices)
