"""Collectives of a compiled program: what moves over which mesh axes, from which line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..hlo.collectives import Movement, movements
from ..hlo.dataflow import Dataflow
from ..hlo.executions import Executions
from ..hlo.module import Instruction, Module
from ..hlo.replica_groups import group_axes, pair_axes
from ..layouts.spec import MeshAxes
from ..origins.origins import innermost
from ..reports.origin import Origin
from ..reports.program import Collective, Phase, SentBytes, SentTotals

_TRANSPOSE = re.compile(r"(?:^|[/(])transpose\(")
_JVP = re.compile(r"(?:^|[/(])jvp\(")


def collectives_of(
    module: Module,
    executions: Mapping[str, Executions],
    mesh: MeshAxes | None,
    paths: Mapping[str, str],
    is_hidden: Callable[[str], bool],
) -> tuple[tuple[Collective, ...], tuple[str, ...]]:
    """Return the collectives of a program, alike ones merged, and the instructions that are not understood.

    Args:
        module: The program.
        executions: Number of executions of each computation.
        mesh: Mesh whose devices run the program, in its order; None without a mesh.
        paths: Path of each argument by the ``op_name`` of its parameter.
        is_hidden: A function that returns whether to skip the frames of a file.
    """
    sizes = mesh.shape if mesh is not None and math.prod(mesh.sizes) == module.device_count else None
    describe = _Describer(Dataflow(module), executions, sizes, paths, is_hidden)
    moved, unread = movements(describe.dataflow)
    counts = Counter(map(describe.collective, moved))
    merged = (replace(collective, count=count) for collective, count in counts.items())
    return tuple(sorted(merged, key=_order)), tuple(unread)
