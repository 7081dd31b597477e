"""The division of a program's heavy work over its devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.quantities import counted, decimal_words, grouped
from .findings import Finding, FindingLeaf
from .lost_batch import LostBatch
from .origin import Origin
from .program_values import RepeatedValue

Cause = Literal["gathered", "made inside", "replicated argument", "summed"]
"""Reason why devices compute the same: an operand is gathered, made inside the program from small values, an
argument that is replicated, or summed over the devices."""


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

    cause: Cause | None = None
    """Reason why work is repeated; None if none is, or the reason is not known."""

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

    is_of_one_turn: bool = False
    """Whether some of it is in a loop of unknown length, which counts with one turn, or on a side of a
    conditional, which counts with all sides."""

    is_of_all: bool = False
    """Whether all operations count, also elementwise ones, because the program has almost no heavy ones."""

    lines: tuple[WorkLine, ...] = ()
    """Work by line, the most repeated first. Empty on JAX 0.7 and 0.8, whose programs may mix lines up."""

    @property
    def share_words(self) -> str:
        """The share in words: ``4.000 times``, or ``unknown (there is one device)``."""
        if self.share is not None:
            return f"{decimal_words(self.share, decimals=3)} times"
        return f"unknown ({self.reason})" if self.reason else "unknown"


LEAST_SHARE = 1.05
"""Share from which work counts as repeated."""
_LARGE_SHARE = 1.25
"""Share from which the lines do not matter."""
_LEAST_OF_LINE = 1.5
_LEAST_FLOPS = 10_000_000
_LEAST_PART = 20
"""The part of its work that a device repeats is at least one in this many, and of a line that is listed."""


def repeated_work(
    work: WorkShare | None, values: Iterable[RepeatedValue], lost: Sequence[LostBatch]
) -> Iterator[Finding]:
    """Yield the finding on heavy work that devices repeat, if it is large enough.

    Args:
        work: The share of work of a device; None if it is left out.
        values: Values that devices compute whole, whose remedies are those of their lines.
        lost: Mesh axes that the data loses, whose remedies are those of the work that is repeated over them.
    """
    if work is None or work.share is None or work.share < LEAST_SHARE:
        return
    repeated = work.repeated_flops
    if repeated < _LEAST_FLOPS or repeated * _LEAST_PART < work.flops:
        return
    lines = [
        line
        for line in work.lines
        if (line.share or 0) >= LEAST_SHARE and line.repeated_flops * _LEAST_PART >= repeated
    ]
    at_lines = sum(line.repeated_flops for line in lines if (line.share or 0) >= _LEAST_OF_LINE)
    if work.share < _LARGE_SHARE and 2 * at_lines < repeated:
        return
    yield Finding(
        kind="repeated work",
        problem=_problem(work, lines),
        remedy=" ".join(_remedies(lines, {str(value.origin): value.remedy for value in values}, lost)),
        flops=repeated,
        leaves=tuple(_leaf(line) for line in lines),
        mesh_axes=tuple(dict.fromkeys(name for line in lines for name in line.mesh_axes)),
    )


def _problem(work: WorkShare, lines: Sequence[WorkLine]) -> str:
    """Return the most repeated line in words, or the whole program if no line is known."""
    suffix = ", with one turn of loops of unknown length" if work.is_of_one_turn else ""
    suffix += ", by all operations" if work.is_of_all else ""
    whole = f"{_repeated(work.repeated_flops, work.flops)}{suffix}."
    if not lines:
        return f"{_times(work.share or 0)}, {whole}"
    first = lines[0]
    times, repeated = _times(first.share or 0), _repeated(first.repeated_flops, work.flops)
    passes = f" ({' and '.join(first.phases)})" if first.phases else ""
    sentence = f"{_leaf(first).place}{passes}: {times}, {repeated}{_over(first)}"
    if len(lines) == 1:
        return f"{sentence}{suffix}."
    return f"{sentence}. With {counted(len(lines) - 1, 'more line', 'more lines')}, {whole}"


def _leaf(line: WorkLine) -> FindingLeaf:
    """Return a line as a part of the finding."""
    times = decimal_words(line.share or 0, decimals=1)
    unit, name = _unit_of(line.repeated_flops)
    repeated = f"{decimal_words(line.repeated_flops / unit, decimals=1)} {name}"
    one_pass = f", {line.phases[0]}" if len(line.phases) == 1 else ""
    return FindingLeaf(
        path="",
        shape=(),
        dtype="",
        change=f"{times} times its share, {repeated} repeated{_over(line)}{one_pass}",
        origin=line.origin,
    )


def _over(line: WorkLine) -> str:
    return f" over {' and '.join(line.mesh_axes)}" if line.mesh_axes else ""


def _times(share: float) -> str:
    """Return a share in words: ``each device does 4.0 times its share``."""
    return f"each device does {decimal_words(share, decimals=1 if share >= 1.95 else 2)} times its share"


def _repeated(repeated: int, flops: int) -> str:
    """Return the operations that are repeated: ``6.4 of its 77.3 GFLOP are repeated``."""
    unit, name = _unit_of(flops)
    least = 1 if repeated >= unit / 20 else 3
    of = decimal_words(flops / unit, decimals=1)
    return f"{decimal_words(repeated / unit, decimals=least)} of its {of} {name} are repeated"


def _unit_of(flops: int) -> tuple[int, str]:
    """Return the largest unit that a number of operations has one of, with its name."""
    return next(((unit, name) for unit, name in _UNITS if flops >= unit), _UNITS[-1])


_UNITS = ((10**12, "TFLOP"), (10**9, "GFLOP"), (10**6, "MFLOP"), (1, "FLOP"))
_MAKER = re.compile(r"(?:\b\w+\.)*(?:random\.\w+|arange|linspace|iota|broadcasted_iota)(?=\()")
"""Call of a function that makes an array from small values, in a line of the source."""
_NEEDS_WHOLE = frozenset(
    {
        *("cholesky", "eig", "eigh", "fft", "geqrf", "householder_product", "lu", "schur", "svd", "sort"),
        *("top_k", "triangular_solve", "tridiagonal"),
    }
)
"""Operations that XLA does not divide along the dimensions that they work on."""


def _remedies(
    lines: Iterable[WorkLine], of_values: Mapping[str, str], lost: Sequence[LostBatch]
) -> list[str]:
    """Return the remedies of lines, one of each kind; of values made inside, that of a line that makes one.

    Args:
        lines: The lines.
        of_values: Remedies of operations that need a whole value, by line.
        lost: Mesh axes that the data loses.
    """
    by_kind: dict[str | None, str] = {}
    for line in sorted(lines, key=lambda line: not _maker(line)):
        batch = next((row for row in lost if row.mesh_axis in (line.mesh_axes or (row.mesh_axis,))), None)
        if line.op in _NEEDS_WHOLE:
            known = of_values.get(str(line.origin)) if line.op == "fft" else ""
            by_kind.setdefault(line.op, known or _remedy(line, is_whole=True))
        elif batch is not None:
            at = "" if batch.origin is None else f" at {batch.origin.place}"
            by_kind.setdefault("lost", f"{batch.mesh_axis} is lost{at} (JAI304). {batch.remedy}")
        else:
            by_kind.setdefault(line.cause, _remedy(line, is_whole=False))
    return [*by_kind.values()]


def _maker(line: WorkLine) -> str:
    """Return the call in a line that makes an array from small values; empty if there is none."""
    maker = _MAKER.search(line.origin.code if line.origin else "")
    return maker[0] if maker else ""


def _remedy(line: WorkLine, *, is_whole: bool) -> str:
    """Return how the work of a line can be divided.

    Args:
        line: The line.
        is_whole: Whether XLA cannot divide its operation.
    """
    over = line.mesh_axes[0] if line.mesh_axes else "a mesh axis"
    spec = f'P("{over}")' if line.mesh_axes else "P(…)"
    if is_whole:
        return (
            f"XLA divides {line.op} only along other dimensions: shard a batch over {over}, compute parts "
            "in a shard_map, or run it on fewer devices."
        )
    if line.cause == "made inside":
        made = f"{_maker(line)}(…)" if _maker(line) else "x"
        return f"Shard what is made there: jax.lax.with_sharding_constraint({made}, {spec})."
    if line.cause == "replicated argument":
        return f"Shard an argument or the result over {over}, such as with jax.lax.with_sharding_constraint."
    if line.cause == "summed":
        return (
            f"Shard the sum that it follows: jax.lax.with_sharding_constraint(x, {spec}), or in a shard_map "
            "jax.lax.psum_scatter in place of psum."
        )
    return (
        f"Keep an operand or the result sharded over {over} with jax.lax.with_sharding_constraint, or in a "
        "shard_map by its specs: print_propagation shows the operation that loses it."
    )
