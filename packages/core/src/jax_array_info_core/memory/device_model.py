"""The reports about devices: frozen facts about their memory, and what compiled programs they keep.

They hold plain values: nothing that keeps an array or a function alive, nothing that draws.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Origin


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class DevicesReport:
    """Several devices, in the order of ``jax.devices()``."""

    devices: tuple[DeviceReport, ...]
    """The devices."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What one line of source holds on one device."""

    device: str | None
    """Name of the device, such as ``cuda:0``; None where the profile does not tell, as of executables."""

    kind: str
    """``buffer`` or ``executable``; ``unknown`` where the profile does not tell."""

    origin: Origin | None
    """The innermost line of the user's code; of JAX's or another library's where none is the user's,
    None where no line is known."""

    nbytes: int
    """Bytes that are held; 0 for executables where the backend does not tell their size, as that of CPU."""

    count: int
    """How many buffers or executables these are."""


@dataclass(frozen=True, slots=True)
class MemoryProfileReport:
    """What each line of source holds on each device."""

    rows: tuple[ProfileRow, ...]
    """The most bytes first."""

    device_nbytes: tuple[tuple[str, int], ...]
    """``(device, bytes)``: the buffers on each device, together."""


@dataclass(frozen=True, slots=True)
class CompileCache:
    """What JAX keeps for one jitted function."""

    name: str
    """Name of the function, with what it is in: ``Model.step``, ``partial(step)``, ``pmap(step)``."""

    origin: Origin | None
    """Where it is defined; None for what is not written in Python."""

    entries: int | None
    """Entries of its call cache, one for each kind of arguments that it was called with; None where
    this jax does not tell. Several entries may lead to the same compiled program."""

    compilations: int | None
    """How many different compiled programs of the function are alive, whatever jit had them compiled;
    None where this jax does not tell."""


@dataclass(frozen=True, slots=True)
class CompileCachesReport:
    """What JAX keeps for all jitted functions that are alive."""

    functions: tuple[CompileCache, ...]
    """The user's and those of other libraries than JAX, the most entries first."""

    jax_function_count: int
    """How many jitted functions are JAX's own."""

    jax_entries: int
    """Entries of the call caches of these, together."""

    jax_compilations: int | None
    """How many compiled programs of these are alive; None where this jax does not tell."""

    unowned_executables: int | None
    """Compiled programs that are alive though no jitted function has them: those of functions that are
    gone, of transformed ones such as ``grad(jitted)``, and what a program has compiled by hand. None
    where this jax does not tell."""
