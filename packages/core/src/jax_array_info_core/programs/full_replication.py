"""Values that XLA replicates and shards again: those of a program, and those in its warnings."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..errors import LayoutError, NotationError
from ..hlo.collectives import Movement
from ..hlo.dataflow import Dataflow, Value
from ..hlo.loops import Executions
from ..hlo.replica_groups import group_axes
from ..hlo.resharding import Replicated
from ..hlo.shapes import ArrayShape
from ..hlo.warnings import RematerializationWarning
from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.spec import Spec
from ..layouts.xla import parse_xla_sharding, spec_of_places, spec_of_xla
from ..layouts.xla_sharding import XlaSharding
from ..origins.origins import UserLines
from ..reports.origin import Origin
from ..reports.program import Rematerialization


def rematerializations_of(
    found: Iterable[Replicated],
    dataflow: Dataflow,
    mesh: Mapping[str, int] | None,
    executions: Mapping[str, Executions],
    lines: UserLines,
) -> tuple[Rematerialization, ...]:
    """Return the values that a program replicates and shards again, the most bytes first.

    Args:
        found: The values.
        dataflow: The connections between the values of the program.
        mesh: Size of each axis of the mesh whose devices run the program, in its order; None without one.
        executions: Number of executions of each computation.
        lines: The search for the user's line.
    """
    return ranked(_row(one, dataflow, mesh, executions, lines) for one in found)


def _row(
    found: Replicated,
    dataflow: Dataflow,
    mesh: Mapping[str, int] | None,
    executions: Mapping[str, Executions],
    lines: UserLines,
) -> Rematerialization:
    """Return the facts on a value."""
    first, last = found.gathers[0], found.gathers[-1]
    times = [executions[one.value.computation].times for one in found.gathers]
    sent = [one.sent_nbytes * (runs or 0) for one, runs in zip(found.gathers, times, strict=True)]
    own = [*(one.instruction for one in found.gathers), *map(dataflow.instruction, found.parts)]
    described = itertools.chain(reversed(own), dataflow.consumers(last.value))
    nearest = lines.nearest(described)
    argument = dataflow.argument(first.operand)
    before, after = (
        None if mesh is None or places is None else spec_of_places([*places], mesh)
        for places in (found.before, found.after)
    )
    return Rematerialization(
        before=before,
        after=after,
        shape=first.before.dims,
        whole_shape=_whole_of(found, dataflow).dims,
        dtype=last.shape.dtype,
        axes=None if mesh is None else gathered_axes(found.gathers, mesh),
        op=last.instruction.op_name
        or (None if argument is None else argument.op_name)
        or f"%{last.instruction.name}",
        nbytes=last.shape.nbytes,
        sent_nbytes=None if None in times else sum(sent),
        origin=None if nearest is None else lines.origin(nearest.frames),
    )


def _whole_of(found: Replicated, dataflow: Dataflow) -> ArrayShape:
    """Return the type of the whole as it is divided: the last gather may have it with other axes."""
    gathered, part = found.gathers[-1].shape, found.parts[0]
    divided = dataflow.instruction(part).operands[0]
    shape = dataflow.instruction(Value(part.computation, divided)).shapes[0]
    return shape if shape.nbytes == gathered.nbytes else gathered


def gathered_axes(moved: Iterable[Movement], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes over which arrays are moved, in the order of the mesh; None if they are not known.

    Args:
        moved: The movements of the arrays.
        mesh: Size of each mesh axis by name.
    """
    axes = [None if one.groups is None else group_axes(one.groups, mesh) for one in moved]
    names = {name for of_one in axes for name in of_one or ()}
    order = [*mesh]
    return None if None in axes else tuple(sorted(names, key=lambda one: order.index(one.partition(":")[0])))


def rematerialization(
    warning: RematerializationWarning, mesh: Mapping[str, int] | None, origin: Origin | None
) -> Rematerialization:
    """Return the row for a warning.

    Args:
        warning: XLA's warning.
        mesh: Size of each mesh axis by name; None without a mesh.
        origin: Line of the operation.
    """
    shape, whole = warning.shape, _whole(warning)
    nbytes = None if shape is None else packed_nbytes(whole, bits_of_name(shape.dtype))
    return Rematerialization(
        before=_spec(warning.before, mesh),
        after=_spec(warning.after, mesh),
        before_text=warning.before,
        after_text=warning.after,
        shape=() if shape is None else shape.dims,
        whole_shape=whole,
        dtype="" if shape is None else shape.dtype,
        op=warning.op_name or (f"%{warning.name}" if warning.name else ""),
        nbytes=nbytes if whole else None,
        sent_nbytes=nbytes - shape.nbytes if whole and nbytes is not None and shape is not None else None,
        origin=origin,
    )


def ranked(rows: Iterable[Rematerialization]) -> tuple[Rematerialization, ...]:
    """Return the rows, equal ones merged, the most bytes first.

    Versions of XLA write the same sharding differently: where both specs are known, they are compared.
    """
    groups: dict[Rematerialization, list[Rematerialization]] = {}
    for row in rows:
        key = replace(row, count=1)
        if row.before is not None and row.after is not None:
            key = replace(key, before_text="", after_text="")
        groups.setdefault(key, []).append(row)
    merged = (replace(alike[0], count=sum(one.count for one in alike)) for alike in groups.values())
    return tuple(sorted(merged, key=lambda row: (row.nbytes is None, -(row.nbytes or 0), -row.count)))


@functools.lru_cache(maxsize=1024)
def _sharding(text: str) -> XlaSharding | None:
    """Return the sharding that a text describes; None if it is not one, such as that of a tuple."""
    try:
        return parse_xla_sharding(text)
    except NotationError:
        return None


def _spec(text: str, mesh: Mapping[str, int] | None) -> Spec | None:
    """Return the spec that is equivalent to a sharding on a mesh."""
    sharding = _sharding(text)
    if sharding is None or mesh is None:
        return None
    try:
        return spec_of_xla(sharding, mesh)
    except LayoutError:
        return None


def _whole(warning: RematerializationWarning) -> tuple[int, ...]:
    """Return the shape of the value with all its shards, which have equal sizes after XLA's padding.

    It is empty if it is not known.
    """
    sharding = _sharding(warning.before)
    if warning.shape is None or sharding is None or sharding.kind == "unknown":
        return ()
    dims = warning.shape.dims
    counts = sharding.counts if sharding.kind == "tiled" else (1,) * len(dims)
    if len(counts) != len(dims):
        return ()
    return tuple(length * count for length, count in zip(dims, counts, strict=True))
