"""The share of the heavy work of a program that each device does, by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from ..arrays.origins.origins import UserLines
from ..base.grouping import by_key, sums_by_key
from ..facts.reports.origin import PHASES, Origin
from ..facts.reports.work import WorkLine, WorkShare
from ..xla.hlo.loops import executions
from ..xla.hlo.manual import UnknownAxesError, copies
from ..xla.hlo.module import Computation, Instruction, Module, calling, calls_of, read_module
from ..xla.hlo.source import pass_of
from ..xla.hlo.work import ELEMENTWISE, PRODUCT, Work, heavy_work, light_work

_LEAST_PART = 10
"""A program has almost no heavy work if all its work is more than this times as much."""
_LEAST_SHARE = 0.95
"""A smaller share shows that XLA computes something in another way than it was lowered."""
_LEAST_OF_ALL = 2.5
"""Share of all operations from which it counts: XLA simplifies those on single elements."""
_LEAST_REPEATED = 100_000_000
"""Operations on single elements from which they count as repeated."""
_SAME = 1.05
"""Ratio up to which two figures count as equal."""
_CLOSE = 0.02
"""Difference from a number of devices, up to which a share stands for it."""

Copies = Mapping[tuple[str, str], set[int]]
"""How often the devices together compute an instruction, by computation and name; once without an entry."""


class UnknownWorkError(ValueError):
    """The work of a program is not known."""


class Done(NamedTuple):
    """Work in one call of a program."""

    origin: Origin | None
    phase: str | None
    op: str
    kind: str
    flops: int

    @property
    def line(self) -> tuple[str, int] | None:
        """File and line; None if XLA does not know them."""
        return None if self.origin is None else (self.origin.file, self.origin.line)


def work_of(
    module: Module,
    lowered: Callable[[], bytes] | None,
    device_count: int,
    mesh: Mapping[str, int] | None,
    lines: UserLines,
) -> WorkShare:
    """Return how the heavy work of a program is divided over its devices.

    Args:
        module: The compiled program.
        lowered: A function that returns the lowered program as a serialized ``HloModuleProto``; None if it is
            not known.
        device_count: Number of devices.
        mesh: Size of each axis of the mesh of these devices; None if it is not known.
        lines: The search for the user's line.
    """
    if device_count < 2:
        return WorkShare(reason="there is one device")
    if module.replica_count > 1:
        return WorkShare(reason="a pmap is lowered for one device")
    if lowered is None:
        return WorkShare(reason="a Compiled alone has no lowered program")
    try:
        whole = read_module(lowered())
        walks = _Walk(module, {}, lines), _Walk(whole, copies(whole, mesh), lines)
        heavy, light = (
            _Both(walks[0].done(kind), walks[1].done(kind), device_count, mesh or {})
            for kind in (heavy_work, light_work)
        )
        if _LEAST_PART * _total(heavy.mine) < _total(light.mine):
            everything = heavy.with_other(light)
            if everything.ratio >= _LEAST_OF_ALL and everything.repeated >= _LEAST_REPEATED:
                return everything.share(is_of_all=True)
        return heavy.comparable().share()
    except (UnknownWorkError, UnknownAxesError) as error:
        return WorkShare(reason=str(error))


class _Walk:
    """A walk through a program along its calls, by the lines of the user.

    Work without a line belongs to that of the call.

    Args:
        module: The program.
        copies: How often the devices together compute its instructions.
        lines: The search for the user's line.
    """

    def __init__(self, module: Module, copies: Copies, lines: UserLines) -> None:
        self._module, self._copies, self._lines = module, copies, lines
        self._runs: dict[str, int] = {}
        """Executions of each computation that runs, with one turn of each loop of unknown length."""
        self._unknown: list[str] = []
        """Computations that run an unknown number of times."""
        callers: dict[str, Counter[Origin | None]] = {name: Counter() for name in module.computations}
        callers[module.entry][None] = 1
        self._callers = callers
        """Number of executions for each line that calls a computation."""
        for name, computation in reversed([*module.computations.items()]):
            runs = module.once(executions)[name].runs
            if runs is None:
                self._unknown.append(name)
            elif times := sum(runs.values()):
                self._runs[name] = times
                for instruction in computation.where(calling):
                    for caller, part in self._lines_of(name, instruction).items():
                        for call in calls_of(instruction):
                            callers[call.name][caller] += part

    def _lines_of(self, name: str, instruction: Instruction) -> Mapping[Origin | None, int]:
        """Return the number of executions of an instruction for each line that it can belong to."""
        origin = self._lines.origin(instruction.frames)
        callers = self._callers[name]
        return callers if origin is None else {origin: callers.total()}

    def done(self, work_in: Callable[[Computation], list[Work]]) -> list[Done]:
        """Return the work of some kind in one call.

        Raises:
            UnknownWorkError: If some of it is not known.
        """
        computations = self._module.computations
        unknown = (work for name in self._unknown for work in computations[name].once(work_in))
        if any(work.kind != ELEMENTWISE for work in unknown):
            raise UnknownWorkError("a part of the program runs an unknown number of times")
        return [
            done
            for name in self._runs
            for work in computations[name].once(work_in)
            for done in self._done(computations[name], work)
        ]

    def _done(self, computation: Computation, work: Work) -> Iterator[Done]:
        """Yield the work of an instruction in one call, for each line that it belongs to."""
        if work.flops is None:
            raise UnknownWorkError("the program has kernels whose work is not counted")
        instruction = computation.instructions[work.place]
        counts = self._copies.get((computation.name, instruction.name), {1})
        if len(counts) > 1:
            raise UnknownWorkError("a function runs inside and outside of a shard_map")
        ways = self._lines_of(computation.name, instruction)
        times, op_name = self._runs[computation.name], instruction.op_name or ""
        op = op_name.rpartition("/")[2] or instruction.custom_call_target or instruction.opcode
        for origin, part in ways.items():
            flops = work.flops * max(counts) * times * part // sum(ways.values())
            yield Done(origin, pass_of(op_name), op, work.kind, flops)


class _Both(NamedTuple):
    """Work of a device, and that of the whole program as it was lowered."""

    mine: Sequence[Done]
    whole: Sequence[Done]
    devices: int
    """Number of devices."""

    mesh: Mapping[str, int]
    """Size of each mesh axis."""

    @property
    def ratio(self) -> float:
        """Share of the work that a device does; 0 without work."""
        whole = _total(self.whole)
        return self.devices * _total(self.mine) / whole if whole else 0.0

    @property
    def repeated(self) -> int:
        """Operations of a device beyond its share."""
        mine = _total(self.mine)
        return max(mine - max(mine, _total(self.whole)) // self.devices, 0)

    def with_other(self, other: _Both) -> _Both:
        """Return the work with that of another kind."""
        return self._replace(mine=[*self.mine, *other.mine], whole=[*self.whole, *other.whole])

    def comparable(self) -> _Both:
        """Return the work without the lines of operations that XLA computes in another way.

        TPU computes transforms and decompositions as products.

        Raises:
            UnknownWorkError: If their lines are not known.
        """
        replaced = {done.kind for done in self.whole} - {done.kind for done in self.mine} - {PRODUCT}
        hidden = {done.line for done in self.whole if done.kind in replaced}
        if hidden and (None in hidden or any(done.line is None for done in self.mine)):
            raise UnknownWorkError(f"XLA computes {' and '.join(sorted(replaced))} in another way")
        return self.where(lambda done: done.line not in hidden)

    def share(self, *, is_of_all: bool = False) -> WorkShare:
        """Return the report.

        Raises:
            UnknownWorkError: If the programs cannot be compared.
        """
        if not self.mine or not self.whole:
            raise UnknownWorkError("the program has no heavy work")
        if self.ratio < _LEAST_SHARE:
            raise UnknownWorkError("XLA computes less than the lowered program has")
        mine, whole = (by_key((done.line, done) for done in part) for part in (self.mine, self.whole))
        lines = [
            self._replace(mine=done, whole=whole.get(line, ())).line(is_of_all=is_of_all)
            for line, done in mine.items()
        ]
        return WorkShare(
            share=min(self.ratio, self.devices) if is_of_all else self.ratio,
            flops=_total(self.mine),
            whole_flops=_total(self.whole),
            repeated_flops=self.repeated,
            is_of_all=is_of_all,
            lines=tuple(sorted(lines, key=lambda line: (-line.repeated_flops, -line.flops))),
        )

    def where(self, is_wanted: Callable[[Done], bool]) -> _Both:
        """Return some of the work."""
        return self._replace(mine=[*filter(is_wanted, self.mine)], whole=[*filter(is_wanted, self.whole)])

    def line(self, *, is_of_all: bool) -> WorkLine:
        """Return the report on a line; its share is unknown where XLA gives its operations other lines."""
        origin, share, repeating = self.mine[0].origin, None, self
        if origin is not None and self.ratio >= _LEAST_SHARE and (is_of_all or self.is_possible):
            repeating = self if is_of_all else self.repeating("kind").repeating("phase")
            share = min(repeating.ratio, self.devices)
        ops = sums_by_key((done.op, done.flops) for done in repeating.mine)
        phases, others = ({done.phase for done in part} for part in (repeating.mine, repeating.whole))
        is_told = share is not None and share > _SAME and phases == others
        return WorkLine(
            origin=origin,
            op=max(ops, key=lambda op: ops[op]),
            phases=tuple(phase for phase in PHASES if is_told and phase in phases),
            flops=_total(self.mine),
            repeated_flops=0 if share is None else repeating.repeated,
            share=share,
            mesh_axes=_only_axis(share, self.mesh),
        )

    @property
    def is_possible(self) -> bool:
        """Whether a device does no more than all of the work."""
        return self.ratio <= _SAME * self.devices

    def repeating(self, by: Literal["kind", "phase"]) -> _Both:
        """Return the parts of a line in which devices repeat work; all, if parts differ in the programs.

        Args:
            by: What the parts have in common.
        """
        values, others = ({getattr(done, by) for done in part} for part in (self.mine, self.whole))
        parts = {value: self.where(partial(_has, by, {value})) for value in values}
        if values != others or not all(part.is_possible for part in parts.values()):
            return self
        kept = {value for value, part in parts.items() if part.ratio > _SAME}
        return self.where(partial(_has, by, kept)) if kept else self


def _has(by: str, values: Collection[str | None], done: Done) -> bool:
    return getattr(done, by) in values


def _only_axis(share: float | None, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """Return the mesh axis whose size is a share; none if several have it."""
    names = [name for name, size in mesh.items() if share and size > 1 and abs(share / size - 1) < _CLOSE]
    return tuple(names) if len(names) == 1 else ()


def _total(work: Iterable[Done]) -> int:
    """Return the operations of some work."""
    return sum(done.flops for done in work)
