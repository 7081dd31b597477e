"""Collectives of a compiled program, and the totals of the bytes that they send."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...base import quantities
from ...base.quantities import counted, format_bytes, least_seconds_words
from ...geometry.layouts.links import LINK_WORDS, Link
from ...geometry.layouts.spec import MeshAxes
from .array import ArrayType
from .control_flow import ControlFlow, Cost, PerIteration, per_iteration, per_iteration_words, sums_of
from .origin import Origin, Phase
from .propagation import Because, ConflictOperand

SLOW_LINKS: tuple[Link, ...] = ("other-process", "other-host", "dcn")
"""Links that are, or may be, outside of the fast network of a host or a slice."""


def link_words(link: Link | None) -> str:
    """Return the name of a link as it is printed: ``DCN``, ``other host``."""
    return LINK_WORDS["unknown" if link is None else link]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(ArrayType):
    """Equal collectives of a program, with the dtype in transit. Arrays of a combined one are separate."""

    kind: str
    """Name of the operation in XLA, such as ``all-gather``."""

    axes: tuple[str, ...] | None
    """Mesh axes over which data moves, in the order of the mesh. A part of an axis is written as in Shardy:
    ``tensor:(2)4`` divides ``tensor`` into 2 major parts, and data moves over 4 parts of each. On an axis of
    size 8, these are 4 neighbors; ``tensor:(1)4`` is every second device. Of a permute, the axes along which
    a pair differs. None if the groups do not follow the mesh, or there is no mesh."""

    group_size: quantities.Count
    """Number of devices that exchange data with each other. Of a permute, the length of its longest cycle or
    chain."""

    shape: tuple[quantities.Size, ...]
    """Shape of the result on a device; of a ragged-all-to-all, of the operand. An all-to-all of one array for
    each device has them stacked."""

    sent_nbytes: quantities.Total
    """Bytes that the device which sends the most sends in one execution of one of them; the most that it may
    send if this ``depends_on_data``."""

    excess: quantities.Size = 0
    """Parts of a byte by which ``sent_nbytes`` is more than what is sent. A byte has ``group_size`` of them:
    an all-reduce of one byte over 8 devices sends 1.75 bytes, and has 2."""

    count: quantities.Count = 1
    """Number of equal collectives."""

    times: quantities.Total | None = 1
    """Number of executions of each in one call of the program, with loops. None if a loop has no known
    length, the collective is in a branch, or its bytes depend on data."""

    at_most: quantities.Total | None = None
    """Largest number of executions, if ``times`` is None and a bound is known."""

    within: tuple[ControlFlow, ...] = ()
    """Loops of unknown length and sides of conditionals around it, outermost first. A collective that runs in
    such a loop and outside of it, as in the condition of a loop, has a row for each."""

    times_within: quantities.Total | None = None
    """Number of executions of each in one iteration of the innermost loop of ``within``, if its sides are
    taken. None without ``within``."""

    depends_on_data: bool = False
    """Whether the bytes of one execution depend on data: those of a ragged-all-to-all, which sends up to its
    whole operand to each other device of its group."""

    origin: Origin | None = None
    """Line of the operation that needs the array; else of the one that computes it or uses it first, with
    ``is_near``."""

    path: str | None = None
    """Path of the argument that is moved."""

    phase: Phase | None = None
    """Forward or backward pass; None if the name of the operation has neither ``jvp`` nor ``transpose``."""

    scopes: tuple[str, ...] = ()
    """At most 16 ``jax.named_scope`` names around them, such as ``layers_0/attn``, as of Flax modules."""

    is_async: bool = False
    """Whether it starts and ends in separate instructions, so that computation can overlap."""

    link: Link | None = None
    """Slowest link between devices that exchange data: ``dcn`` between slices, ``other-host``,
    ``other-process``, ``ici``, … None if it is not known where the devices are, and of a collective that
    moves nothing."""

    is_over_link_alone: bool = True
    """Whether each two devices that exchange data are connected by ``link``. If not, as in an all-to-all over
    all devices of several slices, a part of the bytes can take faster links."""

    because: tuple[Because, ...] = ()
    """The operations that need it: each that uses what it moves, or the one that computes it. Empty if
    ``explain`` is off, before JAX 0.10.1, of a Compiled, and if an operation is not known for certain."""

    @property
    def total_nbytes(self) -> int | None:
        """Bytes that all of them send in one call of the program; None if ``times`` is."""
        return self.nbytes_of(self.count)

    def nbytes_of(self, count: int) -> int | None:
        """Return the bytes that a number of equal ones send in one call; None if ``times`` is."""
        return None if self.times is None else self._nbytes(self.times, count)

    @property
    def bound_nbytes(self) -> int | None:
        """Most bytes that all of them may send in one call of the program; None if no bound is known."""
        times = self.at_most if self.times is None else self.times
        return None if times is None else self._nbytes(times, self.count)

    def _nbytes(self, times: int, count: int) -> int:
        return self.sent_nbytes * count * times - self.excess * count * times // self.group_size

    @property
    def each_words(self) -> str:
        """The bytes of one execution of one of them: ``1.8 B``."""
        return format_bytes(
            self.sent_nbytes - self.excess / self.group_size if self.excess else self.sent_nbytes
        )

    @property
    def nbytes_within(self) -> int | None:
        """Most bytes that all of them send in one iteration of the innermost loop, else in one call.

        None if it is not known.
        """
        return self.bound_nbytes if self.times_within is None else self._nbytes(self.times_within, self.count)

    @property
    def is_in_loop(self) -> bool:
        """Whether it runs once or more in each iteration of a loop of unknown length."""
        return any(flow.side is None for flow in self.within)


def costs_of(collectives: Iterable[Collective]) -> list[Cost]:
    """Return the bytes of collectives, with the loops and sides that they run in; without unknown ones."""
    return [
        Cost(
            collective.within,
            nbytes,
            collective.depends_on_data or (collective.times is None and not collective.within),
            collective.count,
        )
        for collective in collectives
        if (nbytes := collective.nbytes_within) is not None
    ]


def most_nbytes(collectives: Iterable[Collective]) -> int | None:
    """Return the most bytes that collectives send in one call outside of loops of unknown length.

    Each conditional counts its larger side. None if it is not known where one of them runs.
    """
    rows = tuple(collectives)
    return None if any(row.nbytes_within is None for row in rows) else sums_of(costs_of(rows))[0].most


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBytes:
    """Bytes that a device sends, for collectives with something in common."""

    kind: str | None = None
    """Name of the operation in XLA."""

    axes: tuple[str, ...] | None = None
    """Mesh axes; None if unknown, or in totals that are not by axes."""

    phase: Phase | None = None
    """Forward or backward pass."""

    nbytes: quantities.Total
    """Bytes sent per call of the program, as far as known."""

    unknown_count: quantities.Size = 0
    """Number of collectives whose bytes are unknown: they run an unknown number of times, or depend on data.
    ``nbytes`` does not include them."""

    per_iteration: tuple[PerIteration, ...] = ()
    """Bytes of those in loops of unknown length, in one iteration of each loop."""


def sent_by(
    collectives: Iterable[Collective],
    *,
    kind: str | None = None,
    axes: tuple[str, ...] | None = None,
    phase: Phase | None = None,
) -> SentBytes:
    """Return the bytes that collectives send, with what they have in common."""
    rows = tuple(collectives)
    within = [row for row in rows if row.within]
    return SentBytes(
        kind=kind,
        axes=axes,
        phase=phase,
        nbytes=sum(row.total_nbytes or 0 for row in rows),
        unknown_count=sum(row.count for row in rows if row.times is None),
        per_iteration=per_iteration(sums_of(costs_of(within))[1:], "nbytes") if within else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOverLink:
    """Bytes that a device sends in the collectives whose slowest link is of one kind."""

    link: Link | None
    """Slowest link of the collectives; None if it is not known where the devices are."""

    nbytes: quantities.Total
    """Bytes sent per call of the program, as far as known."""

    unknown_count: quantities.Size = 0
    """Number of collectives whose bytes are unknown. ``nbytes`` does not include them."""

    per_iteration: tuple[PerIteration, ...] = ()
    """Bytes of those in loops of unknown length, in one iteration of each loop."""

    least_seconds: float | None = None
    """Lower bound of the time that the device needs to send them: bytes divided by the bandwidth. It
    leaves out collectives that can send a part over faster links. None without a bandwidth."""

    @property
    def words(self) -> str:
        """The link, its bytes, and the lower bound of their time: ``DCN 96.0 MiB (at least 16.1 ms)``."""
        parts = [link_words(self.link), sent_words(self, has_loops=False)]
        if self.least_seconds is not None:
            parts.append(f"({least_seconds_words(self.least_seconds)})")
        return " ".join(parts)


def sent_outside_words(sent: SentBytes | SentOverLink | SentTotals, bound: int | None = None) -> str:
    """Return bytes sent outside of loops of unknown length: ``22.0 B + ?, at most 4.0 MiB``.

    Of totals, the number of collectives follows: ``96.0 MiB in 61 collectives``.

    Args:
        sent: The bytes.
        bound: Most bytes, to be added where some are unknown.
    """
    unknown = sent.unknown_count - sum(figure.operation_count * figure.count for figure in sent.per_iteration)
    known = format_bytes(sent.nbytes) if sent.nbytes or unknown <= 0 else ""
    most = f", at most {format_bytes(bound)}" if unknown > 0 and bound is not None else ""
    runs = sent.executions if isinstance(sent, SentTotals) else None
    times = f" in {counted(runs, 'collective', 'collectives')}" if runs else ""
    return " + ".join(filter(None, (known, "?" * (unknown > 0)))) + most + times


def sent_words(
    sent: SentBytes | SentOverLink | SentTotals, *, bound: int | None = None, has_loops: bool = True
) -> str:
    """Return bytes sent: ``22.0 B + 14.0 KiB per iteration of while_loop (solver.py:31)``.

    Args:
        sent: The bytes.
        bound: Most bytes outside of loops of unknown length, to be added where some are unknown.
        has_loops: Whether to name the loops.
    """
    loops = [*per_iteration_words(sent.per_iteration, has_loops=has_loops)]
    outside = sent_outside_words(sent, bound)
    return " + ".join(loops if loops and outside == format_bytes(0) else [outside, *loops])


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTotals:
    """Totals of the bytes that a device sends. Each tuple adds up to ``nbytes``, the most bytes first."""

    nbytes: quantities.Total = 0
    """Bytes sent per call of the program, as far as known."""

    unknown_count: quantities.Size = 0
    """Number of collectives whose bytes are unknown."""

    executions: quantities.Total | None = None
    """Number of collectives that run in one call of the program outside of the loops in ``per_iteration``. In
    other loops, each turn counts. A combined one counts once. None if one is in a conditional or could not be
    read, and in reports of older versions."""

    bound_nbytes: quantities.Total | None = None
    """Most bytes sent per call of the program outside of the loops in ``per_iteration``: each conditional
    counts its larger side, and bytes that depend on data count as the most that is possible. None if no bound
    is known."""

    per_iteration: tuple[PerIteration, ...] = ()
    """Bytes of the collectives in loops of unknown length, in one iteration of each loop. A loop that is in
    another one follows it."""

    by_kind_and_axes: tuple[SentBytes, ...] = ()
    """By operation and mesh axes."""

    by_phase: tuple[SentBytes, ...] = ()
    """By pass."""

    by_link: tuple[SentOverLink, ...] = ()
    """By the slowest link of each collective, the slowest first. A collective over slices may send a part of
    its bytes inside a slice, too; all of them count for the slowest link."""

    @property
    def over_links(self) -> str:
        """The bytes over each link, the slowest first: ``DCN 96.0 MiB, ICI 1.2 GiB per call``.

        Empty where they tell nothing: all are sent inside one host, or over one kind of fast link.
        """
        links = [link for link in self.by_link if link.nbytes or link.unknown_count]
        has_times = any(link.least_seconds is not None for link in links)
        if not has_times and len(links) < 2 and not any(link.link in SLOW_LINKS for link in links):
            return ""
        return f"{', '.join(link.words for link in links)} per call" if links else ""


_PART = re.compile(r"(?P<axis>.+):\([0-9]+\)(?P<size>[0-9]+)")
"""A part of a mesh axis, as Shardy writes it: ``fsdp:(1)2``."""


def axes_words(axes: Sequence[str] | None, mesh: MeshAxes | None = None) -> str:
    """Return mesh axes as ``data, fsdp``; a part of one as ``a half of fsdp (2 of 4)``.

    Args:
        axes: The axes; None if they are unknown.
        mesh: The mesh, for the sizes of axes that are meant in part.
    """
    if axes is None:
        return "unknown"
    sizes = {} if mesh is None else mesh.shape
    return ", ".join(_axis_words(axis, sizes) for axis in axes) or "none"


def _axis_words(axis: str, sizes: Mapping[str, int]) -> str:
    part = _PART.fullmatch(axis)
    if part is None:
        return axis
    name, size, whole = part["axis"], int(part["size"]), sizes.get(part["axis"])
    if whole is None or whole % size:
        return f"a part of {name} ({size} positions)"
    share = "a half" if whole == 2 * size else f"1/{whole // size}"
    return f"{share} of {name} ({size} of {whole})"


def over_words(axes: Sequence[str] | None, mesh: MeshAxes | None = None) -> str:
    """Return mesh axes as ``over data, fsdp``."""
    return "over unknown axes" if axes is None else f"over {axes_words(axes, mesh)}"


def because_words(collective: Collective) -> str:
    """Return what a collective is needed for: ``'i' (x) and 'k' (wi) clash in ik,kj->ij``.

    A sum is ``'k' is summed in ik,kj->ij``, a maximum ``'i' is reduced in reduce_max ij,->j``. Other mesh
    axes than those of the collective follow, and of several lines each.
    """
    places = {None if reason.origin is None else reason.origin.place for reason in collective.because}
    words = (
        _because_words(reason, collective.axes or ())
        + (
            f" of {reason.origin.place}"
            if len(places) > 1 and reason.origin and reason.kind != "constraint"
            else ""
        )
        for reason in collective.because
    )
    return "; ".join(dict.fromkeys(words))


def _because_words(reason: Because, axes: Sequence[str]) -> str:
    over = "" if set(reason.mesh_axes) == set(axes) else f" {over_words(reason.mesh_axes)}"
    if reason.kind == "constraint":
        subject = "the requested output" if reason.op == "return" else "the constraint"
        at = f" of {reason.origin.place}" if reason.origin and reason.op != "return" else ""
        return f"{subject}{at} is not sharded over {axes_words(reason.mesh_axes)}"
    if reason.kind == "sum":
        summed = [*dict.fromkeys(f"'{operand.letter}'" for operand in reason.operands)]
        is_sum = reason.op == "reduce_sum" or not reason.op.startswith(("reduce", "arg"))
        verb = f"{'are' if len(summed) > 1 else 'is'} {'summed' if is_sum else 'reduced'}"
        what = f"{' and '.join(summed) or 'a dimension'} {verb}"
    else:
        asking = (
            (operand.axis_origin.mesh_axis, f"'{operand.letter}'{_source_words(operand)}")
            for operand in reason.operands
        )
        letters = " and ".join(words for _, words in dict.fromkeys(asking))
        is_whole = len(reason.mesh_axes) == 1 == len({operand.letter for operand in reason.operands})
        what = f"{letters} {'is needed whole' if is_whole else 'clash'}"
    op = "" if reason.op == "dot_general" else f"{reason.op} "  # that of an einsum
    return f"{what}{over} in {op}{reason.rule}"


def _source_words(operand: ConflictOperand) -> str:
    """Return where an operand has its mesh axis from, if known: an argument, or the line of a constraint."""
    axis = operand.axis_origin
    words = axis.path or (operand.name if axis.origin is None else f"{axis.kind} {axis.origin.place}")
    return f" ({words})" if words else ""
