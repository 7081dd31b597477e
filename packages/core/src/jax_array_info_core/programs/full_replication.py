"""Values that every device holds as a whole, and computations that several devices repeat."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ..arrays.origins.origins import UserLines
from ..compat.residuals import passes_are_named
from ..facts.reports.array import ShardingDescription
from ..facts.reports.compiler_messages import Rematerialization
from ..facts.reports.program_values import RepeatedValue
from ..geometry.layouts.spec import MeshAxes, shard_dims
from ..geometry.layouts.xla import spec_of_places
from ..xla.hlo.collectives import Movement
from ..xla.hlo.dataflow import Dataflow, Value
from ..xla.hlo.loops import Executions, executions
from ..xla.hlo.messages import ArrayShape
from ..xla.hlo.module import Module
from ..xla.hlo.replica_groups import group_axes
from ..xla.hlo.replication import COSTLY, Repeated, Replication, Source
from ..xla.hlo.resharding import Replicated
from .compiler_log import ranked
from .updates import Interface, sharded_over


def rematerializations_of(
    replicated: Iterable[Replicated],
    dataflow: Dataflow,
    mesh: Mapping[str, int] | None,
    runs: Mapping[str, Executions],
    lines: UserLines,
) -> tuple[Rematerialization, ...]:
    """Return the values that a program replicates and shards again, the most bytes first.

    Left out are those whose replication the program asks for.

    Args:
        replicated: The values.
        dataflow: The connections between the values of the program.
        mesh: Size of each axis of the mesh whose devices run the program, in its order; None without one.
        runs: Number of executions of each computation.
        lines: The search for the user's line.
    """
    return ranked(_row(value, dataflow, mesh, runs, lines) for value in replicated if not value.is_asked)


def _row(
    value: Replicated,
    dataflow: Dataflow,
    mesh: Mapping[str, int] | None,
    runs: Mapping[str, Executions],
    lines: UserLines,
) -> Rematerialization:
    """Return the facts on a value."""
    first, last = value.gathers[0], value.gathers[-1]
    times = [runs[gather.value.computation].times for gather in value.gathers]
    sent = [gather.sent_nbytes * (runs or 0) for gather, runs in zip(value.gathers, times, strict=True)]
    instructions = [
        *(gather.instruction for gather in value.gathers),
        *map(dataflow.instruction, value.parts),
    ]
    nearest = lines.nearest(itertools.chain(reversed(instructions), dataflow.consumers(last.value)))
    argument = dataflow.argument(first.operand)
    before, after = (
        None if mesh is None or places is None else spec_of_places([*places], mesh)
        for places in (value.before, value.after)
    )
    return Rematerialization(
        before=before,
        after=after,
        shape=first.before.dims,
        whole_shape=_whole_of(value, dataflow).dims,
        dtype=last.shape.dtype,
        axes=None if mesh is None else gathered_axes(value.gathers, mesh),
        op=last.instruction.op_name
        or (None if argument is None else dataflow.instruction(argument).op_name)
        or f"%{last.instruction.name}",
        nbytes=last.shape.nbytes,
        sent_nbytes=None if None in times else sum(sent),
        origin=None if nearest is None else lines.origin(nearest.frames),
    )


def _whole_of(value: Replicated, dataflow: Dataflow) -> ArrayShape:
    """Return the type of the whole as it is divided: the last gather may have it with other axes."""
    gathered, part = value.gathers[-1].shape, value.parts[0]
    divided = dataflow.instruction(part).operands[0]
    shape = dataflow.instruction(Value(part.computation, divided)).shapes[0]
    return shape if shape.nbytes == gathered.nbytes else gathered


def gathered_axes(moved: Iterable[Movement], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes over which arrays are moved, in the order of the mesh; None if they are not known.

    Args:
        moved: The movements of the arrays.
        mesh: Size of each mesh axis by name.
    """
    axes = [None if movement.groups is None else group_axes(movement.groups, mesh) for movement in moved]
    names = {name for of_one in axes for name in of_one or ()}
    order = [*mesh]
    return (
        None if None in axes else tuple(sorted(names, key=lambda name: order.index(name.partition(":")[0])))
    )


def repeated_of(
    interface: Interface,
    module: Module,
    moved: Sequence[Movement],
    mesh: Mapping[str, int] | None,
    paths: Mapping[str, str],
    lines: UserLines,
    replicated: Iterable[Replicated],
    *,
    is_numbered: bool,
) -> tuple[RepeatedValue, ...]:
    """Return the values that every device computes or holds whole, the most bytes first.

    Left out are arguments, and outputs that are requested so, where they are replicated; the gradient of an
    argument; what is gathered only for own parts; and products, which the share of work has.

    Args:
        interface: The arguments and the outputs.
        module: The program.
        moved: What collectives move.
        mesh: Size of each axis of the mesh whose devices run the program, in its order; None without one.
        paths: Path of each argument by the ``op_name`` of its parameter.
        lines: The search for the user's line.
        replicated: Values that are gathered only for own parts of each device.
        is_numbered: Whether the program numbers the devices as the mesh does.
    """
    if mesh is None or math.prod(mesh.values()) < 2:
        return ()
    dataflow = module.once(Dataflow)
    kept = [argument for argument in interface.arguments if not argument.is_pruned]
    hidden = sum(len(parameter.shapes) for parameter in module.parameters()) - len(
        kept
    )  # tokens and hoisted constants
    axes = [*[None] * max(hidden, 0), *(_axes_of(argument.got, interface.mesh) for argument in kept)]
    values = Replication(module, moved, mesh, axes, is_numbered=is_numbered).repeated()
    described = _Described(interface, mesh, dataflow, paths, lines, replicated)
    counts = Counter(row for value in values if (row := described.row(value)) is not None)
    merged = (replace(row, count=count) for row, count in counts.items())
    return tuple(sorted(merged, key=lambda row: -row.repeated_nbytes))


def _axes_of(got: ShardingDescription | None, mesh: MeshAxes | None) -> set[str] | None:
    """Return the mesh axes that shard an argument; None if they are not known."""
    is_known = got is not None and got.spec is not None and got.mesh == mesh and not got.spec.unreduced
    return sharded_over(got) if is_known else None


class _Described:
    """Facts on repeated values."""

    def __init__(
        self,
        interface: Interface,
        mesh: Mapping[str, int],
        dataflow: Dataflow,
        paths: Mapping[str, str],
        lines: UserLines,
        replicated: Iterable[Replicated],
    ) -> None:
        self.mesh = mesh
        self.dataflow = dataflow
        self.paths = paths
        self.lines = lines
        self.replicated = {moved.value for value in replicated for moved in value.gathers}
        self.asked = _shards((one.shape, one.asked) for one in interface.constraints or ())
        """Values that a constraint asks for, which each device may then use in parts."""
        self.requested = _shards((output.shape, output.asked) for output in interface.outputs)
        given = ((argument.shape, argument.got) for argument in interface.arguments if not argument.is_pruned)
        self.summed = self.requested | _shards(given)
        """What a sum may be: a requested output, or the update of an argument."""
        shapes = {argument.shape for argument in interface.arguments}
        self.shapes = shapes | {shape[1:] for shape in shapes}  # of one layer

    def row(self, value: Repeated) -> RepeatedValue | None:
        """Return the facts on a value; None if it is left out."""
        sources = value.sources
        axes = gathered_axes((source.movement for source in sources), self.mesh)
        scatter = next((source.scatter for source in sources if source.scatter is not None), None)
        instructions = (
            value.instruction,
            *filter(None, [scatter]),
            *(source.movement.instruction for source in sources),
        )
        names = [instruction.op_name or "" for instruction in instructions]
        is_part = value.is_sliced and any(source.movement.value in self.replicated for source in sources)
        if is_part or self._is_meant(value, axes, names, is_sum=scatter is not None):
            return None
        runs = self.dataflow.module.once(executions)[value.computation]
        if "callback" in value.instruction.custom_call_target and runs.is_in_branch:
            return None  # as of a check that fails: it may never run
        largest = max(sources, key=lambda source: (source.scatter is not None, _saved(source)))
        moved = largest.movement
        held = [(value.shape.nbytes - value.shape.nbytes // value.devices, value.shape.nbytes)]
        held += [(_saved(source), source.movement.shape.nbytes) for source in sources if not source.scatter]
        repeated, nbytes = max(held)
        nearest = self.lines.nearest(chain(instructions, self.dataflow.consumers(moved.value)))
        op = value.instruction if value.instruction.opcode in COSTLY else scatter or value.instruction
        is_named = op in (nearest, scatter) or op.opcode in COSTLY
        return RepeatedValue(
            op=(is_named and (op.op_name or "").rpartition("/")[2]) or op.custom_call_target or op.opcode,
            shape=value.shape.dims,
            dtype=value.shape.dtype,
            nbytes=nbytes,
            repeated_nbytes=repeated,
            axes=axes,
            is_sum=scatter is not None,
            before_shape=moved.before.dims,
            before_dtype=moved.before.dtype,
            before_axes=gathered_axes([moved], self.mesh),
            path=self._path(moved),
            origin=None if nearest is None else self.lines.origin(nearest.frames),
        )

    def _path(self, moved: Movement) -> str | None:
        """Return the path of the argument that is gathered; None if something else is."""
        parameter = self.dataflow.argument(moved.operand)
        return (
            None if parameter is None else self.paths.get(self.dataflow.instruction(parameter).op_name or "")
        )

    def _is_meant(
        self, value: Repeated, axes: Sequence[str] | None, names: Sequence[str], *, is_sum: bool
    ) -> bool:
        """Return whether a value is requested to be replicated, or the gradient of an argument."""
        dims, over = value.shape.dims, {name.partition(":")[0] for name in axes or ()}
        if value.is_sliced and any(shape == dims and not used & over for shape, used in self.asked):
            return True
        # XLA computes a requested output with its axes in another order, merged or divided.
        size = None if is_sum else math.prod(dims)
        if any(
            (shape == dims or math.prod(shape) == size) and not used & over
            for shape, used in (self.summed if is_sum else self.requested)
        ):
            return True
        is_gradient = any("transpose(" in name for name in names)
        may_be_gradient = is_sum and not passes_are_named(None)  # of an embedding
        return (is_gradient or may_be_gradient) and any(_is_part(dims, shape) for shape in self.shapes)


def _shards(
    wanted: Iterable[tuple[Sequence[Any], ShardingDescription | None]],
) -> set[tuple[tuple[int, ...], frozenset[str]]]:
    """Return the shape of the shard of each array, with the mesh axes that shard it."""
    return {
        (
            shard_dims(shape, sharding.spec, {} if sharding.mesh is None else sharding.mesh.shape),
            frozenset(sharded_over(sharding) or ()),
        )
        for shape, sharding in wanted
        if sharding is not None and sharding.spec is not None
    }


def _saved(source: Source) -> int:
    """Return the bytes that a device would not hold of what is gathered, were it still divided."""
    moved = source.movement
    return moved.shape.nbytes - moved.shape.nbytes // moved.group_size


def _is_part(dims: Sequence[int], shape: Sequence[Any]) -> bool:
    """Return whether an array can be a shard of another one, or all of it."""
    return len(dims) == len(shape) and all(
        dim and not length % dim for dim, length in zip(dims, shape, strict=True)
    )
