"""The share of the heavy work of a program that each device does, by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from ..arrays.origins.origins import UserLines
from ..base.grouping import by_key, sums_by_key
from ..facts.reports.origin import PHASES, Origin
from ..facts.reports.work import Cause, WorkLine, WorkShare
from ..xla.hlo.collectives import Movement
from ..xla.hlo.dataflow import FAR, Dataflow, Value
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
_LARGE = 16
"""The part of a value that an operand has at least, for which it is computed by all devices."""
_CLOSE = 0.02
"""Difference from a number of devices, up to which a share stands for it."""

_NO_WORK = "the program has no heavy work"

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
    is_exact: bool
    """Whether it is not in a loop of unknown length, or on a side of a conditional."""

    at: Value

    @property
    def line(self) -> tuple[str, int] | None:
        """File and line; None if XLA does not know them."""
        return None if self.origin is None else (self.origin.file, self.origin.line)


def work_of(
    module: Module,
    lowered: Callable[[], tuple[bytes | None, str | None]] | None,
    device_count: int,
    mesh: Mapping[str, int] | None,
    lines: UserLines,
    causes: Causes,
) -> WorkShare:
    """Return how the heavy work of a program is divided over its devices.

    Args:
        module: The compiled program.
        lowered: A function that returns the lowered program as a serialized ``HloModuleProto``, with the text
            that corrects its frames, as ``read_module`` takes both; None if it is not known.
        device_count: Number of devices.
        mesh: Size of each axis of the mesh of these devices; None if it is not known.
        lines: The search for the user's line.
        causes: Reasons why devices repeat work.
    """
    if device_count < 2:
        return WorkShare(reason="there is one device")
    if module.replica_count > 1:
        return WorkShare(reason="a pmap is lowered for one device")
    if lowered is None:
        return WorkShare(reason="a Compiled alone has no lowered program")
    try:
        walk = _Walk(module, {}, lines)
        mine, light = walk.done(heavy_work), walk.total(light_work)
        if not mine and light < _LEAST_REPEATED:
            raise UnknownWorkError(_NO_WORK)
        record, text = lowered()
        if record is None:
            raise UnknownWorkError("XLA does not read the names of the mesh axes")
        whole = read_module(record, text)
        walk_of_whole = _Walk(whole, copies(whole, record, mesh), lines)
        heavy = _Both(mine, walk_of_whole.done(heavy_work), device_count, mesh or {}, causes)
        if _LEAST_PART * _total(mine) < light:
            everything = heavy.with_light(walk.done(light_work), walk_of_whole.done(light_work))
            if everything.ratio >= _LEAST_OF_ALL and everything.repeated >= _LEAST_REPEATED:
                return _placed(everything.share(is_of_all=True), text)
        return _placed(heavy.comparable().share(), text)
    except (UnknownWorkError, UnknownAxesError) as error:
        return WorkShare(reason=str(error))


def _placed(share: WorkShare, text: str | None) -> WorkShare:
    """Return a share, without lines where two lines of operations with one name may be mixed up."""
    return share if text is None else replace(share, lines=())


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
        self._is_exact: dict[str, bool] = {}
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
                self._runs[name], self._is_exact[name] = times, not any(runs)
                for instruction in computation.where(calling):
                    for caller, part in self._lines_of(name, instruction).items():
                        for call in calls_of(instruction):
                            callers[call.name][caller] += part

    def _lines_of(self, name: str, instruction: Instruction) -> Mapping[Origin | None, int]:
        """Return the number of executions of an instruction for each line that it can belong to."""
        origin = self._lines.origin(instruction.frames)
        callers = self._callers[name]
        return callers if origin is None else {origin: callers.total()}

    def total(self, work_in: Callable[[Computation], list[Work]]) -> int:
        """Return the operations of work of some kind in one call, as far as they are known."""
        computations = self._module.computations
        return sum(
            times * sum(work.flops or 0 for work in computations[name].once(work_in))
            for name, times in self._runs.items()
        )

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
            at = Value(computation.name, instruction.name)
            yield Done(origin, pass_of(op_name), op, work.kind, flops, self._is_exact[at.computation], at)


class Causes:
    """The reasons why devices repeat work.

    Args:
        module: The compiled program.
        moved: What its collectives move.
        whole: ``op_name`` of the parameters that each device has whole.
    """

    def __init__(self, module: Module, moved: Iterable[Movement], whole: Collection[str | None]) -> None:
        self._dataflow = module.once(Dataflow)
        self._moved = by_key(((each.value.computation, each.instruction.name), each) for each in moved)
        self._whole = whole

    def of(self, at: Value, devices: int) -> Cause | None:
        """Return why a number of devices compute the same value; None if that is not known.

        It is the nearest collective among so many devices that its largest operand depends on, or else the
        large arguments.
        """
        dataflow = self._dataflow
        operands = [Value(at.computation, name) for name in dataflow.instruction(at).operands]
        sizes = [sum(shape.nbytes for shape in dataflow.instruction(operand).shapes) for operand in operands]
        largest = max(sizes, default=0)
        least = largest // _LARGE
        values = [*dataflow.walk(operands[sizes.index(largest)] if operands else at)]
        for value, instruction in values:
            for movement in self._moved.get((value.computation, instruction.name), ()):
                if movement.group_size == devices and movement.shape.nbytes >= least:
                    return "summed" if movement.kind == "all-reduce" else "gathered"
        given = [
            instruction
            for value, instruction in values
            if instruction.opcode == "parameter"
            and value.computation == dataflow.module.entry
            and any(shape.nbytes >= least for shape in instruction.shapes)
        ]
        if len(values) >= FAR or any(parameter.op_name not in self._whole for parameter in given):
            return None
        return "replicated argument" if given else "made inside"


class _Both(NamedTuple):
    """Work of a device, and that of the whole program as it was lowered."""

    mine: Sequence[Done]
    whole: Sequence[Done]
    devices: int
    """Number of devices."""

    mesh: Mapping[str, int]
    """Size of each mesh axis."""

    causes: Causes

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

    def with_light(self, mine: Sequence[Done], whole: Sequence[Done]) -> _Both:
        """Return the work with that on single elements."""
        return self._replace(mine=[*self.mine, *mine], whole=[*self.whole, *whole])

    def comparable(self) -> _Both:
        """Return the work without the lines of operations that XLA computes in another way.

        TPU computes transforms and decompositions as products.

        Raises:
            UnknownWorkError: If their lines are not known.
        """
        replaced = {done.kind for done in self.whole} - {done.kind for done in self.mine} - {PRODUCT}
        hidden = {done.line for done in self.whole if done.kind in replaced}
        reason = f"XLA computes {' and '.join(sorted(replaced))} in another way"
        if hidden and (None in hidden or any(done.line is None for done in self.mine)):
            raise UnknownWorkError(reason)
        kept = self.where(lambda done: done.line not in hidden)
        if hidden and not kept.whole:
            raise UnknownWorkError(reason)
        return kept

    def share(self, *, is_of_all: bool = False) -> WorkShare:
        """Return the report.

        Raises:
            UnknownWorkError: If the programs cannot be compared.
        """
        if not self.whole:
            raise UnknownWorkError(_NO_WORK)
        if self.ratio < _LEAST_SHARE:
            raise UnknownWorkError("XLA computes less than the lowered program has")
        is_exact = all(done.is_exact for done in self.mine)
        if is_exact and self.ratio > _SAME and not all(done.is_exact for done in self.whole):
            raise UnknownWorkError("a loop of the lowered program has an unknown length")
        mine, whole = (by_key((done.line, done) for done in part) for part in (self.mine, self.whole))
        lines = [
            self._replace(mine=done, whole=whole.get(line, ())).line(self.repeated, is_of_all=is_of_all)
            for line, done in mine.items()
        ]
        return WorkShare(
            share=min(self.ratio, self.devices) if is_of_all else self.ratio,
            flops=_total(self.mine),
            whole_flops=_total(self.whole),
            repeated_flops=self.repeated,
            is_of_one_turn=not is_exact,
            is_of_all=is_of_all,
            lines=tuple(sorted(lines, key=lambda line: (-line.repeated_flops, -line.flops))),
        )

    def where(self, is_wanted: Callable[[Done], bool]) -> _Both:
        """Return some of the work."""
        return self._replace(mine=[*filter(is_wanted, self.mine)], whole=[*filter(is_wanted, self.whole)])

    def line(self, most: int, *, is_of_all: bool) -> WorkLine:
        """Return the report on a line; its share is unknown where XLA gives its operations other lines.

        Args:
            most: Operations that are repeated in the program.
            is_of_all: Whether all operations count.
        """
        origin, share, repeating = self.mine[0].origin, None, self
        if origin is not None and self.ratio >= _LEAST_SHARE and (is_of_all or self.is_possible):
            repeating = self if is_of_all else self.repeating("kind").repeating("phase")
            share = min(repeating.ratio, self.devices)
        ops = sums_by_key((done.op, done.flops) for done in repeating.mine)
        phases, others = ({done.phase for done in part} for part in (repeating.mine, repeating.whole))
        is_repeated = share is not None and share > _SAME
        largest = max(repeating.mine, key=lambda done: done.flops)
        return WorkLine(
            origin=origin,
            op=max(ops, key=lambda op: ops[op]),
            phases=tuple(phase for phase in PHASES if is_repeated and phases == others and phase in phases),
            flops=_total(self.mine),
            repeated_flops=0 if share is None else min(repeating.repeated, most),
            share=share,
            mesh_axes=_only_axis(share, self.mesh, is_of_all=is_of_all),
            cause=self.causes.of(largest.at, round(share)) if share is not None and is_repeated else None,
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


def _only_axis(share: float | None, mesh: Mapping[str, int], *, is_of_all: bool) -> tuple[str, ...]:
    """Return the mesh axis whose size is a share, or that is the only one; none if several are."""
    axes = {name: size for name, size in mesh.items() if share and share > _SAME and size > 1}
    is_only = is_of_all and len(axes) == 1  # the share is not exact
    names = [name for name, size in axes.items() if is_only or abs((share or 0) / size - 1) < _CLOSE]
    return tuple(names) if len(names) == 1 else ()


def _total(work: Iterable[Done]) -> int:
    """Return the operations of some work."""
    return sum(done.flops for done in work)
