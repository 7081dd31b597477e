"""Changes of shardings that were applied to a program and measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import counted, format_bytes, grouped, percent_words
from ...geometry.layouts.spec import MeshAxes
from .left_out import LeftOut
from .origin import Origin

RemedyKind = Literal["argument", "output", "constraint", "respec"]
"""What is changed: the sharding of arguments, that of outputs, a constraint that is added to an expression,
or the spec of a constraint that stands there."""

BALANCE = 2189
"""FLOPs that cost as much as a byte sent, on the chip v5e."""
LEAST_NBYTES = 2**20
"""Bytes below which a figure is neither better nor worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFigures:
    """Figures of one iteration of the loops of unknown length at one place, on one device."""

    loop: str
    """The loop with its line, and those around it: ``while_loop (solver.py:31)``."""

    sent_nbytes: quantities.Total = 0
    """Bytes that a device sends, without the loops of unknown length in it."""

    flops: quantities.Total = 0
    """Floating-point operations of dots, convolutions, Fourier transforms and decompositions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFigures:
    """Figures of a compiled program on one device, of its first call. None where they are unknown.

    Of a conditional, the larger side counts.
    """

    sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends in one call, outside of loops of unknown length."""

    memory_nbytes: quantities.Total | None = None
    """Bytes that the program needs: the peak; where the backend tells none, arguments, outputs that reuse
    none of them, and temporary values. Of a TPU, those in HBM."""

    temporary_nbytes: quantities.Size | None = None
    """Bytes of its temporary values."""

    argument_nbytes: quantities.Size | None = None
    """Bytes of its arguments."""

    output_nbytes: quantities.Size | None = None
    """Bytes of its outputs, with those that reuse an argument's memory."""

    flops: quantities.Total | None = None
    """Floating-point operations of dots, convolutions, Fourier transforms and decompositions, outside of
    loops of unknown length."""

    xla_flops: quantities.Total | None = None
    """All floating-point operations as XLA's cost analysis counts them, a loop's body once."""

    loops: tuple[LoopFigures, ...] = ()
    """What one iteration of each loop of unknown length adds."""

    unknown: tuple[str, ...] = ()
    """What the figures do not include, such as kernels of Pallas."""

    @property
    def loop_sent_nbytes(self) -> int:
        """Bytes that a device sends in one iteration of each loop of unknown length."""
        return sum(loop.sent_nbytes for loop in self.loops)

    @property
    def loop_flops(self) -> int:
        """Floating-point operations of one iteration of each loop of unknown length."""
        return sum(loop.flops for loop in self.loops)

    def cost(self, balance: int) -> int:
        """Return the bytes sent and the work as one number: that of FLOPs.

        Each loop of unknown length counts one iteration. The work is what is larger, the operations that are
        counted here, or XLA's count, which has those of single elements, but each loop once.

        Args:
            balance: FLOPs that cost as much as a byte sent.
        """
        work = max((self.flops or 0) + self.loop_flops, self.xla_flops or 0)
        return balance * ((self.sent_nbytes or 0) + self.loop_sent_nbytes) + work


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyPlace:
    """Where a change belongs: a line of the source, or the paths of arguments and outputs."""

    file: str | None = None
    """Path of the source file; None for arguments and outputs."""

    line: quantities.Count | None = None
    """Number of the line in it, from 1."""

    column: quantities.Size | None = None
    """Column at which the expression begins in the line, from 0, in characters."""

    function: str | None = None
    """Name of the function around it."""

    path: str | None = None
    """Path of the argument or the output, as in ``program_report``; None for an expression."""

    paths: tuple[str, ...] = ()
    """All paths that change together, such as those of equal layers."""

    def __str__(self) -> str:
        """Return the text form: ``step.py:19``, or ``p/out and 3 more``."""
        if self.path is None:
            name = (self.file or "").replace("\\", "/").rpartition("/")[2]
            return f"{name}:{self.line}"
        more = len(self.paths) - 1
        return f"{self.path} and {more} more" if more > 0 else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyChange:
    """One of several changes that a remedy makes together."""

    kind: RemedyKind
    """What is changed."""

    place: RemedyPlace
    """Where it belongs."""

    expression: str
    """Source text of the expression, as it stands in its line; for arguments and outputs, the spec that they
    have."""

    code: str
    """What to write in its place; for arguments and outputs, and where ``is_proved`` is false, the specs:
    ``P('data', None)``. Empty where a constraint is taken away that is not written so."""

    imports: str = ""
    """Import that it needs at the top of the file: ``import jax``; empty if the file has the names."""

    is_proved: bool = True
    """Whether a copy of the program was compiled with it as it is written. It is not if the spec of a
    constraint is computed, or stands in an installed package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that was applied to a copy of the program, compiled and measured."""

    kind: RemedyKind
    """What is changed."""

    place: RemedyPlace
    """Where it belongs."""

    expression: str
    """Source text of the expression, as it stands in its line; for arguments and outputs, the spec that they
    have."""

    code: str
    """What to write in its place; for arguments and outputs, their spec: ``P('data', None)``."""

    imports: str = ""
    """Import that it needs at the top of the file: ``import jax``; empty if the file has the names."""

    is_proved: bool = True
    """Whether a copy of the program was compiled with this change as it is written, as in
    ``RemedyChange``."""

    further: tuple[RemedyChange, ...] = ()
    """Changes that are made together with it."""

    before: ProgramFigures
    """Figures of the program as it is."""

    after: ProgramFigures
    """Figures of the program with all of these changes, compiled with the same options. They are those of a
    try, on simulated CPU devices, if one of them is not proved."""

    because: str = ""
    """Why it helps, in one sentence: ``the batch stays sharded over fsdp``; empty if unknown."""

    resolved: tuple[str, ...] = ()
    """Findings of ``program_report`` that the changed program no longer has: their codes and names, such as
    ``JAI208 full-replication``. A finding about fewer values is not resolved."""

    @property
    def changes(self) -> tuple[RemedyChange, ...]:
        """All of its changes, the first of them too."""
        first = RemedyChange(
            kind=self.kind,
            place=self.place,
            expression=self.expression,
            code=self.code,
            imports=self.imports,
            is_proved=self.is_proved,
        )
        return first, *self.further


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport(Displayed):
    """Changes of shardings that make a program better, as ``jai-cli advise`` saves them.

    Each was applied to a copy of the program, compiled and measured. The time of a step is not known, nor
    what helps with other shapes or on another mesh.
    """

    name: str
    """Name of the function."""

    origin: Origin | None = None
    """Line of the function's definition."""

    mesh: MeshAxes | None = None
    """Axes of the mesh; None without a mesh."""

    device_count: quantities.Count = 1
    """Number of devices that run the program."""

    platform: str
    """Platform that it is compiled for: ``cpu``, ``tpu``, ``gpu``."""

    topology: str | None = None
    """Topology that it is compiled for; None for the devices of this process, or simulated ones."""

    base: ProgramFigures
    """Figures of the program as it is."""

    remedies: tuple[Remedy, ...] = ()
    """Changes that cost less or need less memory, and make no figure worse, the best first, at most five.
    None is worse than another in cost and in memory. Those that only move a gather to the caller come
    last."""

    trades: tuple[Remedy, ...] = ()
    """Changes that make one figure better and another worse, at most three."""

    balance: quantities.Count = BALANCE
    """FLOPs that cost as much as a byte sent."""

    chip: str = "v5e"
    """Chip whose rates give the balance; empty if it was given."""

    min_nbytes: quantities.Size = LEAST_NBYTES
    """Bytes below which a figure is neither better nor worse. Of what is sent, 1 % of the memory is enough to
    be better."""

    candidates: quantities.Size = 0
    """Number of different changes that the program allows; 0 in reports of older versions."""

    is_ranked: bool = False
    """Whether those that Shardy's propagation estimates to be the best were tried first."""

    tried: quantities.Size = 0
    """Number of changes that were compiled and measured."""

    failed: quantities.Size = 0
    """Number of changes that JAX or XLA refused, or that did not do at the source what was measured."""

    unproved: quantities.Size = 0
    """Number of changes that may help and are not listed: the time was over, or their proof failed."""

    untried: quantities.Size = 0
    """Number of candidates that were not tried: the time was over, enough were tried, or others of their kind
    ended the process."""

    seconds: quantities.Time = 0.0
    """Time that it took, in seconds."""

    reason: str | None = None
    """Why nothing was tried; None if something was."""

    reasons: tuple[str, ...] = ()
    """What the program sends the most bytes for, where the time was too short to try changes."""

    caveats: tuple[str, ...] = ()
    """What is not known, and what may differ on another platform."""

    left_out: tuple[LeftOut, ...] = ()
    """Parts that could not be made because of an error in this package."""

    @property
    def listed_trades(self) -> tuple[Remedy, ...]:
        """The trades that are listed in any case: they have a third of a figure, or cost less.

        Those that cost less for more memory are not meant.
        """
        return tuple(trade for trade in self.trades if self._is_listed(trade))

    def _is_listed(self, trade: Remedy) -> bool:
        better, worse = better_and_worse(trade.before, trade.after, self.min_nbytes)
        costs_less = trade.after.cost(self.balance) < trade.before.cost(self.balance)
        is_for_memory = any(figure.name == "memory_nbytes" for figure in worse)
        return (costs_less and not is_for_memory) or any(_is_much_less(trade, figure) for figure in better)

    @property
    def answer(self) -> str:
        """Whether a change helps, by how much the first one does, and how many were tried."""
        return self.reason if self.reason is not None else f"{self._helps}; {self._tries}".removesuffix("; ")

    @property
    def _helps(self) -> str:
        if self.remedies:
            helps = counted(len(self.remedies), "change helps", "changes help")
            return f"{helps}: {gain(self.remedies[0], self.min_nbytes)}"
        if trades := self.listed_trades:
            helps = counted(len(trades), "change helps at a price", "changes help at a price")
            return f"{helps}: {gain(trades[0], self.min_nbytes)}"
        if not self.tried:
            return "no change was measured"
        helps = "is proved to help" if self.unproved else "helps"
        if self.untried:
            return f"no change tried {helps}"
        return f"none of {counted(self._count, 'candidate', 'candidates')} {helps}"

    @property
    def _count(self) -> int:
        return self.candidates or self.tried + self.failed + self.untried

    @property
    def _tries(self) -> str:
        if self.untried:
            order = "best first" if self.is_ranked else "ranked without Shardy"
            candidates = counted(self._count, "candidate", "candidates")
            return f"{self.tried} of {candidates} tried, {order}"
        helps = self.remedies or self.listed_trades
        return f"all {counted(self._count, 'candidate', 'candidates')} tried" if helps else ""


class Figure(NamedTuple):
    """A figure of programs that changes are compared by."""

    name: str
    """Its field in ``ProgramFigures``."""
    words: str
    """What its numbers are of."""
    short: str
    """What precedes its numbers in a list of figures."""
    noun: str
    """Name of what it counts."""

    @property
    def form(self) -> Callable[[int], str]:
        """Function that returns a number as text."""
        return format_bytes if self.name.endswith("nbytes") else grouped

    @property
    def fewer(self) -> str:
        """Name of an improvement."""
        return f"{'less' if self.noun == 'memory' else 'fewer'} {self.noun}"


_XLA = "by XLA's count"
FIGURES = (
    Figure("sent_nbytes", "sent per device and call", "sent", "bytes sent"),
    Figure(
        "loop_sent_nbytes", "sent per device and iteration", "sent per iteration", "bytes sent per iteration"
    ),
    Figure("memory_nbytes", "of memory per device", "memory", "memory"),
    Figure("flops", "FLOPs per device and call", "FLOPs", "FLOPs"),
    Figure("loop_flops", "FLOPs per device and iteration", "FLOPs per iteration", "FLOPs per iteration"),
    Figure("xla_flops", f"FLOPs per device and call, {_XLA}", f"FLOPs {_XLA}", f"FLOPs {_XLA}"),
)
"""The figures, in the order in which they are said."""
MARGIN = 0.05
"""Part by which a figure has to be less to be better, or more to be worse."""
_MUCH_MEMORY = 0.25
"""Part by which more memory is worse, however few bytes it is."""
_MUCH = 3
"""Factor by which a figure falls that is said in any case."""


def numbers_of(remedy: Remedy, name: str) -> tuple[int, int] | None:
    """Return a figure before and after a change; None if one of them is unknown."""
    old, new = getattr(remedy.before, name), getattr(remedy.after, name)
    return None if old is None or new is None else (old, new)


def better_and_worse(
    before: ProgramFigures, after: ProgramFigures, min_nbytes: int = LEAST_NBYTES
) -> tuple[list[Figure], list[Figure]]:
    """Return the figures that are better, and those that are worse, each by 5 %.

    Bytes sent are better by ``min_nbytes`` or by 1 % of the memory, and worse by both. The memory is worse by
    ``min_nbytes``, or by a quarter.
    """
    better, worse = list[Figure](), list[Figure]()
    one_percent = (before.memory_nbytes or 0) // 100
    for figure in FIGURES:
        old, new = getattr(before, figure.name), getattr(after, figure.name)
        if old is None or new is None:
            continue
        is_bytes = figure.name.endswith("nbytes")
        least, most = (min(min_nbytes, one_percent), max(min_nbytes, one_percent)) if is_bytes else (0, 0)
        is_much = figure.name == "memory_nbytes" and new > (1 + _MUCH_MEMORY) * old
        if new < old and new <= (1 - MARGIN) * old and old - new >= least:
            better.append(figure)
        elif new > (1 + MARGIN) * old and (new - old >= most or is_much):
            worse.append(figure)
    for figures in (better, worse):  # XLA counts those of products, too
        if any(figure.name in ("flops", "loop_flops") for figure in figures):
            figures[:] = [figure for figure in figures if figure.name != "xla_flops"]
    return better, worse


def _is_much_less(remedy: Remedy, figure: Figure) -> bool:
    old, new = numbers_of(remedy, figure.name) or (0, 0)
    return _MUCH * new <= old


def gained(remedy: Remedy, min_nbytes: int = LEAST_NBYTES) -> list[Figure]:
    """Return the first figure that a change makes better, and those that fall by a factor of three."""
    better, _ = better_and_worse(remedy.before, remedy.after, min_nbytes)
    return better[:1] + [figure for figure in better[1:] if _is_much_less(remedy, figure)]


def gain(remedy: Remedy, min_nbytes: int = LEAST_NBYTES) -> str:
    """Return the figures that a change makes much better, before and after, the bytes sent first.

    ``62.8 MiB → 33.5 MiB sent per device and call (-47%)``
    """
    changes = ((figure, numbers_of(remedy, figure.name) or (0, 0)) for figure in gained(remedy, min_nbytes))
    return ", ".join(
        f"{figure.form(old)} → {figure.form(new)} {figure.words} ({change_words(old, new)})"
        for figure, (old, new) in changes
    )


def price(remedy: Remedy, min_nbytes: int = LEAST_NBYTES) -> str:
    """Return what a trade makes better, and what it makes worse: ``fewer bytes sent for more memory``."""
    better, worse = better_and_worse(remedy.before, remedy.after, min_nbytes)
    worse = worse or better_and_worse(remedy.before, remedy.after, 0)[1]  # fewer bytes, that cost more
    names = (
        " and ".join(figure.fewer for figure in better),
        " and ".join(f"more {figure.noun}" for figure in worse),
    )
    return " for ".join(filter(None, names))


def moved_nbytes(before: ProgramFigures, after: ProgramFigures) -> int:
    """Return the bytes that arguments have more, if the program sends no more than these fewer; else 0.

    Whatever makes the arguments then sends these bytes. An argument that returns as an output is not meant:
    it is sent once, and stays so.
    """
    numbers = [
        None if new is None or old is None else new - old
        for old, new in (
            (before.argument_nbytes, after.argument_nbytes),
            (before.output_nbytes, after.output_nbytes),
            (before.sent_nbytes, after.sent_nbytes),
        )
    ]
    if None in numbers:
        return 0
    given, returned, sent = (number or 0 for number in numbers)
    return given if 0 < -sent <= (1 + MARGIN) * given and 2 * returned < given else 0


def pair_words(first: str, between: str, second: str) -> str:
    """Return two numbers with one unit, if it is that of both: ``61.6 → 53.6 MiB``."""
    number, _, unit = first.partition(" ")
    return f"{number if unit == second.partition(' ')[2] else first} {between} {second}"


def change_words(old: int, new: int) -> str:
    """Return a change as a percentage, ``-47%``; ``equal`` if it rounds to none; ``from 0`` without one."""
    if not old:
        return "equal" if not new else "from 0"
    percent = percent_words(new - old, old, decimals=0)
    return "equal" if percent == "0%" else percent if new < old else f"+{percent}"
