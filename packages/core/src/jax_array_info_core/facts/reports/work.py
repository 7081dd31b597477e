"""The division of a program's heavy work over its devices."""

from __future__ import annotations

from dataclasses import dataclass

from ...base import quantities
from ...base.quantities import decimal_words, grouped
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLine:
    """The heavy work of a line of the user's source."""

    origin: Origin | None = None
    """The line; None if XLA does not know it."""

    op: str
    """Operation with the most work that is repeated, such as ``dot_general`` or ``cholesky``."""

    phases: tuple[str, ...] = ()
    """Passes of a training step in which work is repeated: ``forward``, ``backward``."""

    flops: quantities.Total
    """Operations of a device in one call."""

    repeated_flops: quantities.Total = 0
    """Those of ``flops`` beyond the share of the device."""

    share: float | None = None
    """Number of devices times the operations of a device to those of the whole program, of what is repeated
    if some is: 8 if each of 8 devices computes all of it. None if it is not known."""

    mesh_axes: tuple[str, ...] = ()
    """Mesh axis over which the work is repeated, if ``share`` is the size of exactly one."""

    @property
    def words(self) -> str:
        """The share and the line: ``4.00 times over fsdp, repeats 1,000 FLOPs, m1.py:36 (backward)``."""
        times = "unknown share" if self.share is None else f"{decimal_words(self.share, decimals=2)} times"
        over = f" over {' and '.join(self.mesh_axes)}" if self.mesh_axes else ""
        phases = f" ({' and '.join(self.phases)})" if self.phases else ""
        line = f"{self.origin or 'line unknown'}{phases}"
        return f"{times}{over}, repeats {grouped(self.repeated_flops)} FLOPs, {line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkShare:
    """What a device computes of the heavy work of a program.

    Heavy are products, convolutions, Fourier transforms, matrix decompositions, triangular solves, sorts and
    top-k, with the trip counts of loops.
    """

    share: float | None = None
    """Number of devices times ``flops`` to ``whole_flops``: 1 if the work is divided evenly, the number of
    devices if each does all. None if it is not known."""

    reason: str | None = None
    """Reason why it is not known."""

    flops: quantities.Total = 0
    """Operations of a device in one call."""

    whole_flops: quantities.Total = 0
    """Operations of the whole program in one call, as it was lowered."""

    repeated_flops: quantities.Total = 0
    """Those of ``flops`` beyond the share of the device."""

    is_of_all: bool = False
    """Whether all operations count, also elementwise ones, because the program has almost no heavy ones."""

    lines: tuple[WorkLine, ...] = ()
    """Work by line, the most repeated first."""

    @property
    def share_words(self) -> str:
        """The share in words: ``4.000 times``, or ``unknown (there is one device)``."""
        if self.share is not None:
            return f"{decimal_words(self.share, decimals=3)} times"
        return f"unknown ({self.reason})" if self.reason else "unknown"
