"""Function that prints the memory of a compiled program along its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_array_info_core import program_timeline_report
from jax_array_info_core.reports import ProgramTimelineReport

from .show import print_table, refuse_with, silent_at_exit


@silent_at_exit
def print_program_timeline(
    f: Any,
    /,
    *args: Any,
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> None:
    """Print the live bytes of a compiled function along its schedule, stacked by line.

    Args:
        f: A function, jitted or not, a Lowered or a Compiled; or a ``ProgramTimelineReport``, without other
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: Topology to compile for, such as ``"v5p:2x2x2"``. None for the devices of the arguments,
            which can be those of a ``topology_mesh``.
        dcn: Number of slices along each mesh axis that spans slices, such as ``{"data": 2}``.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is neither a function nor a stage, or a stage with
            arguments.
        TopologyError: (a ValueError) If the topology is unknown or its compiler is not installed.
        TypeError: If arguments are given with a ``ProgramTimelineReport``.
    """
    if isinstance(f, ProgramTimelineReport):
        if args or kwargs or topology is not None or dcn:
            refuse_with(ProgramTimelineReport, ["the other arguments"])
        report = f
    else:
        report = program_timeline_report(f, *args, topology=topology, dcn=dcn, **kwargs)
    print_table(report)
