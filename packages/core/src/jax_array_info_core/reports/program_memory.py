"""The memory of a compiled program, and of one that does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from .. import quantities
from ..quantities import bytes_apart, format_bytes
from .array import ArrayType
from .backward import LiveAtBackward, SavedForBackward
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporary(ArrayType):
    """Equal temporary values at the highest point of the schedule."""

    shape: tuple[quantities.Size, ...]
    """Shape on a device."""

    nbytes: quantities.Size
    """Bytes of one of them."""

    count: quantities.Count = 1
    """Number of equal values."""

    origin: Origin | None = None
    """Line of the operation that computes it. For a value that a scan keeps, the line inside the scan."""

    scopes: tuple[str, ...] = ()
    """Different ``jax.named_scope`` names around the operation, as in ``Collective``."""

    checkpoint_name: str | None = None
    """Name that ``checkpoint_name`` gives the value, where ``jax.checkpoint`` keeps it by a policy."""

    is_kept: bool = False
    """Whether a loop stacks the value over its iterations, as a scan does for the backward pass."""

    is_for_backward: bool = False
    """Whether the value is among those of ``live_at_backward``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramMemory:
    """Memory of a compiled program per device, in bytes. None where the compiler does not report it.

    Figures without ``host`` are those of the device's own memory. Those of host memory are apart: arguments
    and outputs with the memory kind ``pinned_host``, and activations that a remat policy offloads.
    """

    argument_nbytes: quantities.Size | None = None
    """Bytes of the arguments."""

    output_nbytes: quantities.Size | None = None
    """Bytes of the outputs, including those that reuse an argument's memory."""

    alias_nbytes: quantities.Size | None = None
    """Bytes of the outputs that reuse an argument's memory."""

    temporary_nbytes: quantities.Size | None = None
    """Bytes that XLA allocates for temporary values, apart from the memory of outputs."""

    code_nbytes: quantities.Size | None = None
    """Bytes of the program's code."""

    peak_nbytes: quantities.Size | None = None
    """Largest memory use at one time. None on CPU, where XLA's figure leaves out temporary values."""

    required_nbytes: quantities.Size | None = None
    """Bytes that the program allocates, to compare with ``available_nbytes``: those of the arguments, of the
    outputs that reuse none of them, and of the temporary values. The peak of a TPU counts the temporary
    values of one of its memories. None without a topology."""

    available_nbytes: quantities.Size | None = None
    """Bytes of a device that a program can use, from a table: of a TPU, libtpu's limit, rounded to 10 MiB; of
    a GPU, the memory that its driver reports. None without a topology."""

    host_argument_nbytes: quantities.Size | None = None
    """Bytes of the arguments in host memory."""

    host_output_nbytes: quantities.Size | None = None
    """Bytes of the outputs in host memory, including those that reuse an argument's memory."""

    host_alias_nbytes: quantities.Size | None = None
    """Bytes of the outputs in host memory that reuse an argument's memory."""

    host_temporary_nbytes: quantities.Size | None = None
    """Bytes that XLA allocates for temporary values in host memory."""

    temporaries: tuple[Temporary, ...] = ()
    """Largest values that are live at the highest point of the schedule, the most bytes first: without
    arguments, outputs and constants, and without values outside of the main memory, such as in a TPU's
    VMEM."""

    live_nbytes: quantities.Total = 0
    """Bytes of all such values at that point, estimated from the schedule. More than ``temporary_nbytes``
    where XLA places some of them in the memory of outputs; less where ``temporary_nbytes`` includes gaps, or
    values outside of the main memory."""

    saved: SavedForBackward | None = None
    """What JAX saves for the backward pass; None without one, or if the program was not traced for the
    report, as a Lowered or a Compiled."""

    live_at_backward: LiveAtBackward | None = None
    """Temporary values that are live when the backward pass begins; None if there is none."""

    elsewhere: tuple[Temporary, ...] = ()
    """Largest temporary values that are not live at the highest point, the most bytes first."""

    @property
    def needed_nbytes(self) -> int | None:
        """Bytes that the program needs at one time: the peak; where it is unknown, the sum of the parts."""
        return self.allocated_nbytes if self.peak_nbytes is None else self.peak_nbytes

    @property
    def allocated_nbytes(self) -> int | None:
        """Bytes of the arguments, of the outputs that reuse none of them, and of the temporary values."""
        parts = (self.argument_nbytes, self.output_nbytes, self.temporary_nbytes)
        known = [nbytes for nbytes in parts if nbytes is not None]
        return max(sum(known) - (self.alias_nbytes or 0), 0) if known else None

    @property
    def answer(self) -> str:
        """Bytes that the program needs and a device has, in words. Empty without a topology."""
        if self.required_nbytes is None or self.available_nbytes is None:
            return ""
        needs, has = bytes_apart(self.required_nbytes, self.available_nbytes)
        return f"fits: needs {needs} of {has} per device"

    @property
    def host_nbytes(self) -> int:
        """Bytes in host memory, as far as they are known; memory that an output reuses counts once."""
        parts = (self.host_argument_nbytes, self.host_output_nbytes, self.host_temporary_nbytes)
        return sum(nbytes or 0 for nbytes in parts) - (self.host_alias_nbytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBuffer(ArrayType):
    """A buffer of a program that does not fit, live at the peak of its memory."""

    nbytes: quantities.Size
    """Bytes."""

    shape: tuple[quantities.Size, ...]
    """Shape on a device."""

    op: str | None = None
    """Name of the operation."""

    origin: Origin | None = None
    """Line of the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The compiler's refusal of a program that does not fit the memory of a device.

    In a log, also an allocation that failed while a program ran.
    """

    message: str
    """First line of the message."""

    required_nbytes: quantities.Size | None = None
    """Bytes that the program needs."""

    available_nbytes: quantities.Size | None = None
    """Bytes that a device has."""

    buffers: tuple[LargeBuffer, ...] = ()
    """Buffers that are live at the peak, the most bytes first: all that the compiler assigned in the memory
    of the device. Of a GPU topology, the largest temporary values; in a log, the rows of the compiler's
    table, in its order."""

    is_program_known: bool = False
    """Whether the program that does not fit is known, with its collectives and flops."""

    requested_nbytes: quantities.Size | None = None
    """Bytes of the allocation that failed; None for a program that was refused before it ran."""

    free_nbytes: quantities.Size | None = None
    """Bytes that were free on the device when the allocation failed, if the message has them."""

    count: quantities.Count = 1
    """Number of equal errors in a log."""

    @property
    def answer(self) -> str:
        """The bytes that are missing: ``does not fit: needs 36.0 GiB, has 15.8 GiB per device``."""
        needs, has = _apart(self.required_nbytes, self.available_nbytes)
        if self.requested_nbytes is None:
            return f"does not fit: needs {needs}, has {has} per device"
        requested, free = _apart(self.requested_nbytes, self.free_nbytes)
        words = f"allocation failed: {requested} requested"
        words += "" if self.free_nbytes is None else f", {free} free"
        words += "" if self.required_nbytes is None else f", the program needs {needs}"
        return f"{words} per device"


def _apart(nbytes: int | None, limit: int | None) -> tuple[str, str]:
    """Return two numbers of bytes with as many decimals as tell them apart; words where one is unknown."""
    if nbytes is not None and limit is not None:
        return bytes_apart(nbytes, limit)
    first, second = ("an unknown size" if one is None else format_bytes(one) for one in (nbytes, limit))
    return first, second
