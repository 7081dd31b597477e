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

RemedyKind = Literal["argument", "output", "constraint", "respec", "donation"]
"""What is changed: the sharding of arguments, that of outputs, a constraint that is added to an expression,
the spec of a constraint that stands there, or the donation of arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFigures:
    """Figures of a compiled program on one device, of its first call. None where they are unknown."""

    sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends in one call."""

    memory_nbytes: quantities.Total | None = None
    """Bytes that the program needs: the peak; where the backend tells none, arguments, outputs that reuse
    none of them, and temporary values."""

    temporary_nbytes: quantities.Size | None = None
    """Bytes of its temporary values."""

    flops: quantities.Total | None = None
    """Floating-point operations of dots, convolutions and Fourier transforms."""

    xla_flops: quantities.Total | None = None
    """All floating-point operations as XLA's cost analysis counts them, a loop's body once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyPlace:
    """Where a change belongs: a line of the source, or the paths of arguments and outputs."""

    file: str | None = None
    """Path of the source file; None for arguments and outputs."""

    line: quantities.Count | None = None
    """Number of the line in it, from 1."""

    column: quantities.Size | None = None
    """Column at which the expression begins in the line, from 0, in UTF-8 bytes."""

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
    have; empty for a donation."""

    code: str
    """What to write in its place; for arguments and outputs, and where ``is_proved`` is false, the spec:
    ``P('data', None)``. Empty for a donation, and where a constraint is taken away that is not written so."""

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
    """Why the compiler sends what it saves, as far as the reasons of collectives tell; empty if unknown."""

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
    """Changes that make one figure better and none worse, the fewest bytes sent first, at most five. None is
    worse than another in all figures."""

    trades: tuple[Remedy, ...] = ()
    """Changes that make one figure better and another worse, at most three."""

    tried: quantities.Size = 0
    """Number of changes that were compiled and measured."""

    failed: quantities.Size = 0
    """Number of changes that JAX or XLA refused, or that did not do at the source what was measured."""

    unproved: quantities.Size = 0
    """Number of changes that may help and are not listed: the time was over, or their proof failed."""

    untried: quantities.Size = 0
    """Number of changes that were not tried: the time was over, or others of their kind ended the
    process."""

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
    def answer(self) -> str:
        """Whether a change helps, with the figure that the first one makes better."""
        if self.reason is not None:
            return self.reason
        if self.remedies:
            helps = counted(len(self.remedies), "change helps", "changes help")
            words = f"{helps}: {gain(self.remedies[0])}"
        else:
            changes = counted(self.tried, "change", "changes")
            helps = "is proved to help" if self.unproved else "helps"
            words = f"none of {changes} tried {helps}" if self.tried else "no change was measured"
        untried = counted(self.untried, "was not tried", "were not tried")
        return f"{words}; {untried}" if self.untried else words


class Figure(NamedTuple):
    """A figure of programs that changes are compared by."""

    name: str
    """Its field in ``ProgramFigures``."""
    words: str
    """What its numbers are of."""
    form: Callable[[int], str]
    """Function that returns a number as text."""
    fewer: str
    """Name of an improvement."""
    more: str
    """Name of the opposite."""
    noise: int = 0
    """Number by which it can be more and not worse."""


FIGURES = (
    Figure(
        "sent_nbytes",
        "sent per device and call",
        format_bytes,
        "fewer bytes sent",
        "more bytes sent",
        1024,  # a sum of scalars
    ),
    Figure(
        "memory_nbytes",
        "of memory per device",
        format_bytes,
        "less memory",
        "more memory",
        1024,
    ),
    Figure("flops", "FLOPs per device and call", grouped, "fewer FLOPs", "more FLOPs"),
    Figure(
        "xla_flops",
        "FLOPs per device and call, by XLA's count",
        grouped,
        "fewer FLOPs by XLA's count",
        "more FLOPs by XLA's count",
    ),
)
"""The figures, in the order in which they are said."""
MARGIN = 0.05
"""Part by which a figure has to be less to be better, or more to be worse."""


def numbers_of(remedy: Remedy, name: str) -> tuple[int, int] | None:
    """Return a figure before and after a change; None if one of them is unknown."""
    old, new = getattr(remedy.before, name), getattr(remedy.after, name)
    return None if old is None or new is None else (old, new)


def better_and_worse(remedy: Remedy) -> tuple[list[Figure], list[Figure]]:
    """Return the figures that a change makes better, and those that it makes worse."""
    better, worse = list[Figure](), list[Figure]()
    for figure in FIGURES:
        old, new = numbers_of(remedy, figure.name) or (0, 0)
        if new < old and new <= (1 - MARGIN) * old:
            better.append(figure)
        elif new > (1 + MARGIN) * old + figure.noise:
            worse.append(figure)
    return better, worse


def gain(remedy: Remedy) -> str:
    """Return the figure that a change makes better, before and after, the bytes sent if they are fewer.

    ``62.8 MiB → 33.5 MiB sent per device and call (-47%)``
    """
    for figure in better_and_worse(remedy)[0]:
        old, new = numbers_of(remedy, figure.name) or (0, 0)
        return f"{figure.form(old)} → {figure.form(new)} {figure.words} ({change_words(old, new)})"
    return ""


def price(remedy: Remedy) -> str:
    """Return what a trade makes better, and what it makes worse: ``fewer bytes sent for more memory``."""
    better, worse = better_and_worse(remedy)
    names = (" and ".join(figure.fewer for figure in better), " and ".join(figure.more for figure in worse))
    return " for ".join(filter(None, names))


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
