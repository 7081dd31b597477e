"""Parameters of a compiled program, and what each of them costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import known_sum
from ...geometry.layouts.spec import MeshAxes
from .array import ShardingDescription
from .origin import Origin

Grouping = Literal["parameter", "scope"]
"""What the rows of a table have in common: the path of a parameter without indices, or the named scopes."""
FLOPS_CAVEATS = ("FLOPs of all passes: ", "FLOPs: ")
"""Beginnings of the caveats on operations that are not counted: sums are then lower bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument of a program that is a parameter of a model."""

    path: str
    """Path of the argument."""

    is_trained: bool = False
    """Whether an output is its gradient, or its update from a gradient."""

    moments: tuple[str, ...] = ()
    """Paths of the arguments that are moments of it in the state of an optimizer."""

    gradient_nbytes: quantities.Total | None = None
    """Bytes per device of its gradient, as an output and among the temporary values at the highest point of
    the schedule. None if it is at neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostShare:
    """A part of what a device does in one call of a program, in one named scope.

    The shares of a program add up, field by field, to the figures of its report.
    """

    parameters: tuple[str, ...] = ()
    """Paths of the parameters that it belongs to: several where a line saves values for several parameters.
    Empty for what belongs to no parameter, or to two."""

    scope: str = ""
    """Names of ``jax.named_scope`` around it, such as ``layers_0/attn``; empty without any."""

    forward_sent_nbytes: quantities.Total = 0
    """Bytes sent in the forward pass and outside of both: of a parameter, to gather it. Up to JAX 0.6, only
    operations in a ``jax.named_scope`` tell their pass; those of others count here."""

    backward_sent_nbytes: quantities.Total = 0
    """Bytes sent in the backward pass, without ``reduced_nbytes``."""

    reduced_nbytes: quantities.Total = 0
    """Bytes sent to sum the gradient of the parameter."""

    unknown_count: quantities.Size = 0
    """Number of collectives whose bytes are unknown, as in ``SentTotals``."""

    forward_flops: quantities.Total = 0
    """Floating-point operations of dots and convolutions in the forward pass and outside of both, counted in
    the same way."""

    backward_flops: quantities.Total = 0
    """Those of the backward pass, without ``recomputed_flops``."""

    recomputed_flops: quantities.Total = 0
    """Those of the forward pass that ``jax.checkpoint`` computes again in the backward pass."""

    saved_nbytes: quantities.Total = 0
    """Bytes that are saved for the backward pass, as in ``SavedForBackward``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """A group of parameters, or all that belongs to none. Bytes are those of all of them on one device."""

    name: str
    """Folded path, such as ``params/layers/0-31/up/kernel``; the named scopes; or ``not of a parameter``."""

    paths: tuple[str, ...] = ()
    """Paths of the parameters."""

    dtype: str | None = None
    """Dtype of each of them; None unless they agree."""

    shape: tuple[quantities.Size, ...] | None = None
    """Global shape of each of them; None unless they agree."""

    sharding: ShardingDescription | None = None
    """Sharding of each of them; None if unknown, or unless they agree."""

    parameter_count: quantities.Total = 0
    """Number of elements, over all devices without replicas."""

    parameter_nbytes: quantities.Total | None = 0
    """Bytes of the parameters; of the last row, those of the other arguments. None if unknown."""

    moment_nbytes: quantities.Total | None = 0
    """Bytes of their moments. None if unknown."""

    gradient_nbytes: quantities.Total | None = None
    """Bytes of their gradients, as in ``Parameter``. None if there is none."""

    forward_sent_nbytes: quantities.Total | None = 0
    """As in ``CostShare``. None if what is sent is not known."""

    backward_sent_nbytes: quantities.Total | None = 0
    """As in ``CostShare``."""

    reduced_nbytes: quantities.Total | None = 0
    """As in ``CostShare``."""

    unknown_count: quantities.Size = 0
    """As in ``CostShare``."""

    forward_flops: quantities.Total | None = 0
    """As in ``CostShare``. None if flops are not known."""

    backward_flops: quantities.Total | None = 0
    """As in ``CostShare``."""

    recomputed_flops: quantities.Total | None = 0
    """As in ``CostShare``."""

    saved_nbytes: quantities.Total | None = 0
    """As in ``CostShare``. None if what is saved is not known."""

    @property
    def held_nbytes(self) -> int | None:
        """Bytes of the parameters and of their moments; None if unknown."""
        return known_sum((self.parameter_nbytes, self.moment_nbytes))

    @property
    def sent_nbytes(self) -> int | None:
        """Bytes sent, as far as known; None if what is sent is not known."""
        return known_sum((self.forward_sent_nbytes, self.backward_sent_nbytes, self.reduced_nbytes))

    @property
    def flops(self) -> int | None:
        """Floating-point operations of all passes; None if unknown."""
        return known_sum((self.forward_flops, self.backward_flops, self.recomputed_flops))


SUMS = (
    *("parameter_count", "parameter_nbytes", "moment_nbytes", "gradient_nbytes"),
    *("forward_sent_nbytes", "backward_sent_nbytes", "reduced_nbytes", "unknown_count"),
    *("forward_flops", "backward_flops", "recomputed_flops", "saved_nbytes"),
)
"""Fields of a row that add up over rows."""


def summed(name: str, rows: Iterable[LayerRow]) -> LayerRow:
    """Return the row of the sums of some rows. A figure that is None in each of them is None."""
    rows = tuple(rows)
    sums: dict[str, Any] = {}
    for field in SUMS:
        known = [figure for row in rows if (figure := getattr(row, field)) is not None]
        sums[field] = sum(known) if known else None
    return LayerRow(name=name, **sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersReport(Displayed):
    """Costs of a compiled program by parameter or by named scope. Returned by ``layers_report``.

    Bytes and operations are those of one device in one call.
    """

    name: str
    """Name of the function."""

    origin: Origin | None = None
    """Line of the function's definition."""

    mesh: MeshAxes | None = None
    """Axes of the mesh of the arguments; None without a mesh."""

    device_count: quantities.Count = 1
    """Number of devices that run the program."""

    platform: str
    """Platform that it is compiled for: ``cpu``, ``tpu``, ``gpu``."""

    topology: str | None = None
    """Topology that it is compiled for; None for the devices of this process."""

    by: Grouping = "parameter"
    """What the rows have in common."""

    rows: tuple[LayerRow, ...] = ()
    """Groups of parameters, in the order of the arguments; or scopes, in the order of the program."""

    rest: LayerRow
    """What belongs to no parameter, or to two; or to no scope."""

    caveats: tuple[str, ...] = ()
    """Figures that are missing or differ on another platform, and why."""

    @property
    def total(self) -> LayerRow:
        """Sums of all rows: the figures of ``ProgramReport``; of the arguments, without XLA's padding."""
        return summed("total", (*self.rows, self.rest))
