"""Collectives of a compiled program: what moves over which mesh axes, from which line."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays.origins.origins import UserLines
from ..base.grouping import by_key
from ..compat.shardings import device_places
from ..facts.reports.collectives import (
    Collective,
)
from ..facts.reports.origin import Origin, Phase
from ..facts.reports.program_memory import Temporary
from ..facts.reports.program_values import (
    Constraint,
)
from ..facts.reports.propagation import Because
from ..geometry.layouts.links import Link, Places
from ..geometry.layouts.spec import MeshAxes, shard_dims
from ..xla.hlo.collectives import COLLECTIVES, Movement, movements
from ..xla.hlo.dataflow import REDUCTIONS, Dataflow, Value
from ..xla.hlo.loops import Executions, loops_of
from ..xla.hlo.module import Instruction, Module, Passing, operations
from ..xla.hlo.replica_groups import ProgramSlices, group_axes, pair_axes
from ..xla.hlo.source import pass_of, scope_of
from .control_flow import ControlFlows

MOST_SCOPES = 16
"""Maximum number of named scopes of a row."""

_Row = TypeVar("_Row", Collective, Temporary)


def merged(rows: Iterable[tuple[_Row, str]]) -> list[_Row]:
    """Return rows with equal ones merged, in the order of the first, with the named scopes of each."""
    return [
        replace(row, count=len(scopes), scopes=tuple(dict.fromkeys(filter(None, scopes)))[:MOST_SCOPES])
        for row, scopes in by_key(rows).items()
    ]


_STACK = re.compile(r"[\w.]+\(")
"""Start of an ``op_name`` that is a stack of transformations, such as ``jit(step)/jvp()/dot_general``."""

_NEAR = 200
"""Number of operations in a search for what computes an array."""
_REQUESTED = re.compile(
    r"/(?:all_gather|all_to_all|p?broadcast|p(?:max|min|permute|sum)|ragged_all_to_all|reduce_scatter)\w*$"
)
"""End of an ``op_name`` that is a collective of the user, as in ``shard_map``."""
WHOLE = frozenset({"convolution", "custom-call", "dot", "fft", "gather", "sort"})
"""Operations that need a complete operand, so that the partitioner gathers it for them."""
_PASSED = operations(Passing.MOVE) | {
    *("call", "conditional", "convert", "fusion", "get-tuple-element", "pad", "tuple", "while"),
}
"""Operations through which an array reaches the one that needs it."""
_PROJECTIONS = frozenset({"get-tuple-element", "dynamic-slice", "bitcast"})
"""Operations that take a part of the result of a combined collective."""


class ProgramDevices(NamedTuple):
    """The devices of a program, in XLA's order: that of its mesh."""

    ids: NDArray[np.int64]
    """JAX's id of each device."""

    places: Places
    """Where they are."""

    def slices(self, module: Module) -> ProgramSlices | None:
        """Return the slices, if XLA has compiled the program for a single one of them."""
        if self.places.slices is None or len(self.ids) == module.device_count:
            return None
        _, counts = np.unique(self.places.slices, return_counts=True)
        is_for_each = set(counts.tolist()) == {module.device_count}
        return ProgramSlices.of(self.ids, self.places.slices) if is_for_each else None

    def count(self, module: Module) -> int:
        """Return the number of devices that run a program."""
        slices = self.slices(module)
        return module.device_count if slices is None else slices.device_count


def _called_from(origin: Origin | None, because: Sequence[Because]) -> Origin | None:
    """Return the line of a constraint that alone needs a collective, if the line near it calls that line.

    In a scan, the partitioner gives what it inserts for a constraint the line of the call of scan.
    """
    lines = {reason.origin for reason in because if reason.kind == "constraint"}
    if origin is None or not origin.is_near or len(lines) != 1 or len(lines) != len(because):
        return origin
    line = lines.pop()
    near = (origin.file, origin.line)
    return (
        line
        if line is not None and near in ((caller.file, caller.line) for caller in line.callers)
        else origin
    )


def devices_of(devices: Sequence[Any]) -> ProgramDevices | None:
    """Return the devices of a program as plain values; None without any."""
    if not devices:
        return None
    return ProgramDevices(np.array([device.id for device in devices], np.int64), device_places(devices))


class Described(NamedTuple):
    """What a collective moves, as a row of a report."""

    row: Collective
    """The collective, before equal ones are merged."""

    scope: str
    """The named scopes around it."""

    moved: Movement
    """What it moves."""


def merged_collectives(described: Iterable[Described]) -> tuple[Collective, ...]:
    """Return collectives with alike ones merged, in the order of a report."""
    return tuple(sorted(merged((one.row, one.scope) for one in described), key=_order))


def described_collectives(
    module: Module,
    executions: Mapping[str, Executions],
    mesh: MeshAxes | None,
    paths: Mapping[str, str],
    lines: UserLines,
    constraints: Iterable[Constraint] | None = (),
    because: Search | None = None,
    devices: ProgramDevices | None = None,
) -> tuple[list[Described], tuple[str, ...]]:
    """Return the collectives of a program, and the instructions that are not understood.

    Args:
        module: The program.
        executions: Number of executions of each computation.
        mesh: Mesh whose devices run the program, in its order; None without a mesh.
        paths: Path of each argument by the ``op_name`` of its parameter.
        lines: The search for the user's line.
        constraints: Sharding constraints of the program; None if they are unknown.
        because: The search for what a collective is needed for; None to search for nothing.
        devices: The devices of the program; None if they are not known.
    """
    slices = None if devices is None else devices.slices(module)
    count = module.device_count if devices is None else devices.count(module)
    sizes = mesh.shape if mesh is not None and math.prod(mesh.sizes) == count else None
    places = None if devices is None or len(devices.ids) != count else devices.places
    describe = _Describer(
        module.once(Dataflow), executions, sizes, paths, lines, _constrained(constraints), because, places
    )
    moved, unread = movements(describe.dataflow, slices)
    rows = [Described(*row, movement) for movement in moved for row in describe.collectives(movement)]
    return rows, tuple(unread)


def _order(collective: Collective) -> tuple[bool, int, str, str]:
    """Return the sort key: unknown numbers of executions first, then the most bytes."""
    bound = collective.bound_nbytes
    nbytes = collective.sent_nbytes * collective.count if bound is None else bound
    return collective.times is not None, -nbytes, collective.kind, repr(collective)


Search = Callable[
    [Collective, Sequence[Instruction], Iterable[Instruction], Iterable[Instruction]], tuple[Because, ...]
]
"""A function from a collective, the operations that use its array, those that compute and pass on what it
moves, and the first operation on each way of its array, to what it is needed for."""
_Constrained = dict[int, set[tuple[str, int] | None]]
"""Lines of the sharding constraints that request a shard of a number of elements."""


class _Describer:
    """Facts on the collectives of a program, with those that several of them need."""

    def __init__(
        self,
        dataflow: Dataflow,
        executions: Mapping[str, Executions],
        mesh: Mapping[str, int] | None,
        paths: Mapping[str, str],
        lines: UserLines,
        constrained: _Constrained | None,
        because: Search | None,
        places: Places | None,
    ) -> None:
        self.dataflow = dataflow
        self.executions = executions
        self.mesh = mesh
        self.paths = paths
        self.lines = lines
        self.constrained = constrained
        self.because = because
        self.places = places
        self.flows = ControlFlows(dataflow, lines)
        self.group_axes: dict[int, tuple[str, ...] | None] = {}
        self.group_links: dict[int, tuple[Link | None, bool]] = {}
        self.own: dict[Value, list[Instruction]] = {}

    def collectives(self, moved: Movement) -> Iterator[tuple[Collective, str]]:
        """Yield the facts on a collective, with its scope, for each way through loops and branches to it."""
        runs = self.executions[moved.value.computation].runs
        users = self._users(moved.value)
        row, scope = self._collective(moved, users), self._scope(moved, users)
        if not runs:
            yield replace(row, times=None if runs is None else 0), scope
        for within, times in (runs or {}).items():
            is_exact = not (within or moved.depends_on_data)
            if is_exact and times == row.times:
                yield row, scope
                continue
            yield (
                replace(
                    row,
                    times=times if is_exact else None,
                    at_most=None if is_exact or loops_of(within) else times,
                    within=self.flows.around(within),
                    times_within=times if within else None,
                ),
                scope,
            )

    def _collective(self, moved: Movement, users: Sequence[Instruction]) -> Collective:
        """Return the facts on a collective, without its executions and scopes."""
        link, is_over_link_alone = self._link(moved)
        collective = Collective(
            kind=moved.kind,
            axes=self._axes(moved),
            group_size=moved.group_size,
            dtype=moved.shape.dtype,
            shape=moved.shape.dims,
            sent_nbytes=moved.sent_nbytes,
            excess=moved.excess,
            depends_on_data=moved.depends_on_data,
            origin=self._origin(moved, users),
            path=self._path(moved),
            phase=self._phase(moved, users),
            is_async=moved.is_async,
            link=link,
            is_over_link_alone=is_over_link_alone,
        )
        if self.because is None:
            return collective
        followers = [*filter(self._has_stack, self.dataflow.consumers(moved.value, is_end=self._has_stack))]
        because = self.because(collective, users, self._makers(moved), followers)
        return replace(collective, because=because, origin=_called_from(collective.origin, because))

    def _axes(self, moved: Movement) -> tuple[str, ...] | None:
        """Return the mesh axes over which data moves."""
        if self.mesh is None:
            return None
        if moved.groups is None:
            return None if moved.pairs is None else pair_axes(moved.pairs, self.mesh)
        # Collectives with the same groups share the array.
        key = id(moved.groups)
        if key not in self.group_axes:
            self.group_axes[key] = group_axes(moved.groups, self.mesh)
        return self.group_axes[key]

    def _link(self, moved: Movement) -> tuple[Link | None, bool]:
        """Return the slowest link between the devices that exchange data, and whether all of it takes this.

        The link is None if it is not known. Of pairs, it is that of the slowest pair.
        """
        devices = moved.pairs if moved.groups is None else moved.groups
        if self.places is None or devices is None:
            return None, True
        if id(devices) not in self.group_links:
            is_alone = moved.groups is None or self.places.is_uniform(moved.groups)
            self.group_links[id(devices)] = self.places.slowest(devices), is_alone
        return self.group_links[id(devices)]

    def _path(self, moved: Movement) -> str | None:
        """Return the path of the argument that is moved; None if something else is."""
        parameter = self.dataflow.argument(moved.operand)
        name = self.dataflow.instruction(parameter).op_name if parameter is not None else None
        if name is None and moved.value.element is None and moved.kind not in REDUCTIONS:
            # The partitioner of JAX 0.12 gives a collective the name of the argument.
            name = moved.instruction.op_name
        return self.paths.get(name or "")

    def _named(self, moved: Movement) -> Instruction | None:
        """Return the first instruction of a collective whose name tells its transformations."""
        return next(filter(self._has_stack, self._own(moved)), None)

    def _users(self, value: Value) -> list[Instruction]:
        """Return the operations that use an array, the first on each way through those that pass it on."""
        return [*filter(self._uses, self.dataflow.consumers(value, is_end=self._uses))]

    def _uses(self, instruction: Instruction) -> bool:
        """Return whether an operation computes something, and has a name that tells what."""
        return not _passes_on(instruction) and self._has_stack(instruction)

    def _makers(self, moved: Movement) -> list[Instruction]:
        """Return the operations that compute what is moved; of a sum, itself."""
        if moved.kind in REDUCTIONS:
            named = self._named(moved)
            return [] if named is None else [named]
        before = itertools.islice(self.dataflow.walk(moved.operand, stops=computes), _NEAR)
        return [instruction for _, instruction in before if computes(instruction)]

    def _origin(self, moved: Movement, users: Sequence[Instruction]) -> Origin | None:
        """Return the line of a collective: of the operation that needs the array, or of a neighboring one.

        The partitioner gives what it inserts the line of a neighbor, such as of the operation that computes
        the array. The operation that needs it is known if no constraint requests the array between the two,
        and it uses the whole array, or all that follows is on one line.
        """
        value, parts = moved.value, self._own(moved)
        described_by = itertools.chain(
            parts,
            self.dataflow.consumers(value),
            # The last collectives of a program have no consumer with a line.
            self.dataflow.producers(moved.operand),
            self.dataflow.callers(value.computation),
        )
        nearest = self.lines.nearest(described_by)
        if nearest is None:
            return None
        origin = self.lines.origin(nearest.frames)
        if origin is None:
            return None
        is_exact = any(nearest is part for part in parts) and (
            moved.kind in REDUCTIONS or _REQUESTED.search(nearest.op_name or "") is not None
        )
        lines = (
            {None} if self.constrained is None else self.constrained.get(math.prod(moved.shape.dims), set())
        )
        if not lines and not is_exact:
            of_user = self.lines.origin(users[0].frames) if users else None
            if of_user is not None and users[0].opcode in WHOLE:
                return of_user
            following = itertools.chain([nearest], self.dataflow.consumers(value))
            after = filter(None, (self.lines.origin(follower.frames) for follower in following))
            is_exact = all((near.file, near.line) == (origin.file, origin.line) for near in after)
        is_exact = is_exact or lines == {(origin.file, origin.line)}
        return origin if is_exact else replace(origin, is_near=True)

    def _phase(self, moved: Movement, users: Sequence[Instruction]) -> Phase | None:
        """Return the pass that a collective belongs to.

        That of a sum, or of a collective of the user, is in its name. Another belongs to the operations that
        use the array, whatever the partitioner names it for: the forward pass, if they are in both.
        """
        named = self._named(moved)
        is_own = named is not None and (
            moved.kind in REDUCTIONS or _REQUESTED.search(named.op_name or "") is not None
        )
        if not is_own and (passes := {pass_of(user.op_name) for user in users} - {None}):
            # The backward pass may use what the forward pass has gathered.
            return "forward" if "forward" in passes else "backward"
        value = moved.value
        around = itertools.chain(
            [] if named is None else [named],
            users,
            self.dataflow.producers(moved.operand),
            self.dataflow.callers(value.computation),
        )
        return next((pass_of(instruction.op_name) for instruction in filter(self._has_stack, around)), None)

    def _scope(self, moved: Movement, users: Sequence[Instruction]) -> str:
        """Return the named scopes of a collective, or those of the first operation that uses its array."""
        named = self._named(moved) or next(iter(users), None)
        return scope_of(None if named is None else named.op_name)

    def _has_stack(self, instruction: Instruction) -> bool:
        """Return whether the name of an instruction tells its transformations, unlike that of an argument."""
        name = instruction.op_name
        return name is not None and name not in self.paths and _STACK.match(name) is not None

    def _own(self, moved: Movement) -> list[Instruction]:
        """Return the instructions that are part of a collective, those with the best metadata first."""
        if moved.value not in self.own:
            self.own[moved.value] = [*self._find_own(moved)]
        return self.own[moved.value]

    def _find_own(self, moved: Movement) -> Iterator[Instruction]:
        # An element of a combined collective has its own metadata where it is taken from the tuple. The
        # collective has those of one of its arrays.
        near = itertools.takewhile(
            lambda instruction: instruction.opcode in _PROJECTIONS or instruction.opcode.endswith("-done"),
            self.dataflow.consumers(moved.value),
        )
        if moved.value.element is not None:
            yield from near
        yield moved.instruction
        yield from near
        for caller in itertools.islice(self.dataflow.callers(moved.value.computation), 1):
            if caller.opcode in ("fusion", "async-start"):
                yield caller


def computes(instruction: Instruction) -> bool:
    """Return whether an operation computes something, and does not only move, gather or cast arrays."""
    return instruction.opcode != "parameter" and not _passes_on(instruction)


def _passes_on(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    is_moved = opcode.removesuffix("-start") in COLLECTIVES - REDUCTIONS
    return is_moved or opcode in _PASSED or opcode.endswith("-done")


def _constrained(constraints: Iterable[Constraint] | None) -> _Constrained | None:
    """Return the lines of constraints by the shards that they request; None if some are unknown."""
    constrained: _Constrained = {}
    for constraint in constraints or ():
        spec, mesh = constraint.asked.spec, constraint.asked.mesh
        if (
            spec is None
            or mesh is None
            or constraint.is_free
            or not all(isinstance(dim, int) for dim in constraint.shape)
        ):
            return None
        size = math.prod(shard_dims(constraint.shape, spec, mesh.shape))
        place = None if constraint.origin is None else (constraint.origin.file, constraint.origin.line)
        constrained.setdefault(size, set()).add(place)
    return None if constraints is None else constrained
