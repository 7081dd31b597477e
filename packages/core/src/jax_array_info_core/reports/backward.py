"""Values for the backward pass: those that JAX saves, and those that are live in the compiled program."""

from __future__ import annotations

from dataclasses import dataclass

from .. import quantities
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardLine:
    """Values of one line for the backward pass."""

    nbytes: quantities.Total | None
    """Bytes of all of them on a device; None if they are not known."""

    global_nbytes: quantities.Total | None = None
    """Bytes of all of them on all devices together, without copies; None for values of a compiled program."""

    count: quantities.Count = 1
    """Number of arrays. One that a loop stacks over its iterations is one."""

    origin: Origin | None = None
    """Line of the operations that compute them; of values that a loop stacks, the line inside the loop."""

    checkpoint_name: str | None = None
    """Name that ``checkpoint_name`` gives them; None for values of a compiled program."""

    is_in_loop: bool = False
    """Whether a loop stacks them over its iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedForBackward:
    """What JAX saves for the backward pass, before XLA: the same on all platforms, and for donated arguments.

    The values that equations of the forward pass compute and those of the backward pass read, at the place
    where they have the most bytes: the gradients of one program, one after another, do not add up. Arguments,
    constants and literals are not among them. What a loop saves and reads in the same iteration counts once.
    """

    nbytes: quantities.Total | None = None
    """Bytes on a device, in its own memory. None if the sharding of a value is not known: before JAX 0.10.1,
    and with ``explain=False``."""

    global_nbytes: quantities.Total | None = None
    """Bytes on all devices together, without copies, in their own memory."""

    lines: tuple[BackwardLine, ...] = ()
    """Lines of these values, the most bytes first."""

    offloaded: tuple[BackwardLine, ...] = ()
    """Lines of the values that a remat policy offloads to host memory, which are not in the sums."""

    reason: str | None = None
    """Why the values are not known: ``nested derivatives``; None if they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAtBackward:
    """Temporary values that are live when the backward pass begins, estimated from XLA's schedule.

    Those that the backward pass does not compute itself. XLA computes some values of the forward pass later,
    or once more, and holds others that JAX does not save, such as gathered arguments.
    """

    nbytes: quantities.Total | None = None
    """Bytes on a device, in its main memory; None if they are not known."""

    vmem_nbytes: quantities.Total = 0
    """Bytes of such values elsewhere, such as in a TPU's VMEM."""

    lines: tuple[BackwardLine, ...] = ()
    """Lines of the values in the main memory, the most bytes first."""

    reason: str | None = None
    """Why they are not known; None if they are."""
