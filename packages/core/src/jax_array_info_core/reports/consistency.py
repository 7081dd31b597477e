"""Contradictions between the fields of a report.

Only a report that was read from JSON can have contradictions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes, Spec
from ..quantities import MAX_DIGITS, format_number
from . import Report
from .array import ArrayReport, ShardingDescription
from .live_totals import LiveArrayTotal
from .mesh import MeshReport
from .program_consistency import contradictions_of_programs
from .tree_consistency import contradictions_of_trees

_PLAIN = frozenset({str, int, float, bool, type(None)})


def contradictions(report: Report) -> Iterator[str]:
    """Yield a description of each contradiction within a report."""
    for part in _parts(report):
        match part:
            case Spec():
                for axis in set(part.unconstrained).difference(range(len(part.axes))):
                    yield f"a spec of {len(part.axes)} entries that leaves axis {format_number(axis)} to XLA"
            case MeshAxes():
                yield from _of_mesh(part)
            case ShardingDescription():
                yield from _of_sharding(part)
            case ShardingLayout():
                yield from _of_layout(part)
            case ArrayReport():
                yield from _of_array(part)
            case LiveArrayTotal() if max(abs(part.nbytes), abs(part.total_nbytes)) >= 10**MAX_DIGITS:
                yield f"live arrays whose total has more than {MAX_DIGITS} digits"
            case MeshReport() if part.axes.sizes != part.layout.shape:
                yield f"a mesh of sizes {part.axes.sizes} with a layout of shape {part.layout.shape}"
            case _:
                yield from contradictions_of_trees(part)
                yield from contradictions_of_programs(part)


def _parts(value: Any) -> Iterator[object]:
    """Yield all dataclasses in a value, nested ones first."""
    is_tuple = isinstance(value, tuple)
    if not is_tuple and not dataclasses.is_dataclass(value):
        return
    for entry in value if is_tuple else (getattr(value, field.name) for field in dataclasses.fields(value)):
        if type(entry) not in _PLAIN:
            yield from _parts(entry)
    if not is_tuple:
        yield value


def _of_mesh(mesh: MeshAxes) -> Iterator[str]:
    count = len(mesh.names)
    if len(mesh.sizes) != count or len(mesh.types) not in (0, count):
        yield f"a mesh with {count} names, {len(mesh.sizes)} sizes and {len(mesh.types)} types of axes"
    elif len(set(mesh.names)) < count:
        yield f"a mesh with two axes of the same name: {mesh.names}"
    elif min(mesh.sizes, default=1) < 1:
        yield f"a mesh without devices: its sizes are {mesh.sizes}"
    elif math.prod(mesh.sizes) >= 10**MAX_DIGITS:
        yield f"a mesh whose number of devices has more than {MAX_DIGITS} digits"


def _of_sharding(sharding: ShardingDescription) -> Iterator[str]:
    if sharding.spec is not None and sharding.mesh is not None:
        names = {name for entry in (*sharding.spec.axes, sharding.spec.unreduced) for name in entry}
        unknown = sorted(names.difference(sharding.mesh.names))
        if unknown:
            yield f"a spec with {', '.join(map(repr, unknown))} over a mesh with {sharding.mesh.names}"


def _of_layout(layout: ShardingLayout) -> Iterator[str]:
    owned = [device for _, devices in layout.processes for device in devices]
    if owned and not np.isin(layout.device_ids, owned).all():
        yield "a layout with devices that belong to no process"


def _of_array(report: ArrayReport) -> Iterator[str]:
    if report.local_part is None:
        return
    if report.layout is None:
        yield "a local part of an array without a layout"
    elif not 0 <= report.local_part.element_count <= math.prod(report.layout.shape):
        yield "a local part larger than the array"
