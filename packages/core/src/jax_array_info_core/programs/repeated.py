"""Values that every device computes or holds whole, with lines and paths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ..compat.lowering import names_have_passes
from ..hlo.collectives import Movement, movements
from ..hlo.dataflow import Dataflow
from ..hlo.loops import Executions
from ..hlo.module import Module
from ..hlo.replication import COSTLY, Repeated, Replication, Source
from ..hlo.resharding import Replicated
from ..layouts.spec import MeshAxes, shard_dims
from ..origins.origins import UserLines
from ..reports.array import ShardingDescription
from ..reports.program import ProgramReport
from ..reports.repeated import RepeatedValue
from .collectives import ProgramDevices
from .full_replication import gathered_axes
from .updates import sharded_over

_LEAST_FLOPS = 20
"""Products count where they are at least this part of those of the program."""


def repeated_of(
    report: ProgramReport,
    module: Module,
    executions: Mapping[str, Executions],
    devices: ProgramDevices | None,
    paths: Mapping[str, str],
    lines: UserLines,
    replicated: Iterable[Replicated],
) -> tuple[RepeatedValue, ...]:
    """Return the values that every device computes or holds whole, the most bytes first.

    Left out are arguments, and outputs that are requested so, where they are replicated; the gradient of an
    argument; what is gathered only for own parts; and products that are a small part of those of the program.

    Args:
        report: The report, with the arguments and the outputs.
        module: The program.
        executions: Number of executions of each computation.
        devices: The devices of the program; None if they are not known.
        paths: Path of each argument by the ``op_name`` of its parameter.
        lines: The search for the user's line.
        replicated: Values that are gathered only for own parts of each device.
    """
    slices = None if devices is None else devices.slices(module)
    count = module.device_count if devices is None else devices.count(module)
    mesh = report.mesh
    if mesh is None or math.prod(mesh.sizes) != count or count < 2:
        return ()
    dataflow = module.once(Dataflow)
    kept = [one for one in report.arguments if not one.is_pruned]
    hidden = sum(len(one.shapes) for one in module.parameters()) - len(kept)  # tokens and hoisted constants
    axes = [*[None] * max(hidden, 0), *(_axes_of(one.got, report) for one in kept)]
    moved, _ = movements(dataflow, slices)
    found = Replication(module, moved, mesh.shape, axes, is_numbered=slices is None).repeated()
    described = _Described(report, mesh, dataflow, executions, paths, lines, replicated)
    counts = Counter(row for one in found if (row := described.row(one)) is not None)
    merged = (replace(row, count=count) for row, count in counts.items())
    return tuple(sorted(merged, key=lambda one: -one.repeated_nbytes))


def _axes_of(got: ShardingDescription | None, report: ProgramReport) -> set[str] | None:
    """Return the mesh axes that shard an argument; None if they are not known."""
    is_known = got is not None and got.spec is not None and got.mesh == report.mesh and not got.spec.unreduced
    return sharded_over(got) if is_known else None


class _Described:
    """Facts on repeated values."""

    def __init__(
        self,
        report: ProgramReport,
        mesh: MeshAxes,
        dataflow: Dataflow,
        executions: Mapping[str, Executions],
        paths: Mapping[str, str],
        lines: UserLines,
        replicated: Iterable[Replicated],
    ) -> None:
        self.report = report
        self.mesh = mesh
        self.dataflow = dataflow
        self.executions = executions
        self.paths = paths
        self.lines = lines
        self.replicated = {moved.value for one in replicated for moved in one.gathers}
        self.requested = _shards((one.shape, one.asked) for one in report.outputs)
        given = ((one.shape, one.got) for one in report.arguments if not one.is_pruned)
        self.summed = self.requested | _shards(given)
        """What a sum may be: a requested output, or the update of an argument."""
        shapes = {one.shape for one in report.arguments}
        self.shapes = shapes | {shape[1:] for shape in shapes}  # of one layer

    def row(self, found: Repeated) -> RepeatedValue | None:
        """Return the facts on a value; None if it is left out."""
        sources = found.sources
        axes = gathered_axes((one.movement for one in sources), self.mesh.shape)
        scatter = next((one.scatter for one in sources if one.scatter is not None), None)
        own = (found.instruction, *filter(None, [scatter]), *(one.movement.instruction for one in sources))
        names = [one.op_name or "" for one in own]
        if self._is_meant(found.shape.dims, axes, names, is_sum=scatter is not None):
            return None
        if found.is_sliced and any(one.movement.value in self.replicated for one in sources):
            return None
        times = self.executions[found.computation].times
        flops = None
        if found.flops and times is not None:
            flops, is_product = found.flops * times, found.instruction.opcode != "fft"
            if is_product and not found.is_sliced and flops * _LEAST_FLOPS < self.report.known_dot_flops:
                return None
        largest = max(sources, key=lambda one: (one.scatter is not None, _saved(one)))
        moved = largest.movement
        held = [(found.shape.nbytes - found.shape.nbytes // found.devices, found.shape.nbytes)]
        held += [(_saved(one), one.movement.shape.nbytes) for one in sources if not one.scatter]
        repeated, nbytes = max(held)
        nearest = self.lines.nearest(chain(own, self.dataflow.consumers(moved.value)))
        op = found.instruction if found.instruction.opcode in COSTLY else scatter or found.instruction
        is_named = op in (nearest, scatter) or op.opcode in COSTLY
        return RepeatedValue(
            op=(is_named and (op.op_name or "").rpartition("/")[2]) or op.custom_call_target or op.opcode,
            shape=found.shape.dims,
            dtype=found.shape.dtype,
            nbytes=nbytes,
            repeated_nbytes=repeated,
            repeated_flops=None if flops is None else flops - flops // found.devices,
            axes=axes,
            is_sum=scatter is not None,
            before_shape=moved.before.dims,
            before_dtype=moved.before.dtype,
            before_axes=gathered_axes([moved], self.mesh.shape),
            path=self._path(moved),
            is_used_in_parts=found.is_sliced,
            origin=None if nearest is None else self.lines.origin(nearest.frames),
        )

    def _path(self, moved: Movement) -> str | None:
        """Return the path of the argument that is gathered; None if something else is."""
        parameter = self.dataflow.argument(moved.operand)
        return None if parameter is None else self.paths.get(parameter.op_name or "")

    def _is_meant(
        self, dims: tuple[int, ...], axes: Sequence[str] | None, names: Sequence[str], *, is_sum: bool
    ) -> bool:
        """Return whether a value is requested to be replicated, or the gradient of an argument."""
        over = {name.partition(":")[0] for name in axes or ()}
        # XLA computes a requested output with its axes in another order, merged or divided.
        size = None if is_sum else math.prod(dims)
        if any(
            (shape == dims or math.prod(shape) == size) and not used & over
            for shape, used in (self.summed if is_sum else self.requested)
        ):
            return True
        is_gradient = any("transpose(" in one for one in names)
        may_be_gradient = is_sum and not names_have_passes()  # of an embedding
        return (is_gradient or may_be_gradient) and any(_is_part(dims, one) for one in self.shapes)


def _shards(
    wanted: Iterable[tuple[Sequence[Any], ShardingDescription | None]],
) -> set[tuple[tuple[int, ...], frozenset[str]]]:
    """Return the shape of the shard of each array, with the mesh axes that shard it."""
    return {
        (
            shard_dims(shape, found.spec, {} if found.mesh is None else found.mesh.shape),
            frozenset(sharded_over(found) or ()),
        )
        for shape, found in wanted
        if found is not None and found.spec is not None
    }


def _saved(source: Source) -> int:
    """Return the bytes that a device would not hold of what is gathered, were it still divided."""
    moved = source.movement
    return moved.shape.nbytes - moved.shape.nbytes // moved.group_size


def _is_part(dims: Sequence[int], shape: Sequence[Any]) -> bool:
    """Return whether an array can be a shard of another one, or all of it."""
    return len(dims) == len(shape) and all(dim and not of % dim for dim, of in zip(dims, shape, strict=True))
