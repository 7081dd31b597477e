"""The memory of a function's compiled program along its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..reports.program_memory import ProgramTimelineReport
from .program_report import program_report


def program_timeline_report(
    f: Any,
    /,
    *args: Any,
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> ProgramTimelineReport:
    """Return the live bytes of a compiled function along its schedule, by line, and its peak.

    The function is compiled as in ``program_report``. Nothing runs. ``program_report(…, timeline=True)`` has
    the same report in its field ``timeline``.

    A function with an argument that is called as one of the options itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function; or a ``jax.stages.Traced``, ``Lowered`` or ``Compiled``, without
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: TPU or GPU topology to compile for, as in ``program_report``. None compiles for the devices
            of the arguments.
        dcn: Number of slices along each mesh axis that spans the slices of ``topology``.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is neither a function nor a stage, or a stage with
            arguments.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.

    An error of the function itself, or of its compilation, is raised unchanged. A program that does not fit
    the memory of the topology is reported in ``out_of_memory``.

    >>> import jax, jax.numpy as jnp
    >>> def norms(x):
    ...     return jnp.sqrt(jnp.sum(jnp.cumsum(x @ x.T, 0) ** 2, 1))
    >>> report = program_timeline_report(norms, jax.ShapeDtypeStruct((64, 32), jnp.float32))
    >>> [one.kind for one in report.series][:2], max(report.total_nbytes) == report.peak_nbytes
    (['arguments', 'outputs'], True)
    """
    options: dict[str, Any] = {"topology": topology, "dcn": dcn, "explain": False}
    report = program_report(f, *args, timeline=True, **options, **kwargs)
    if report.timeline is not None:
        return report.timeline
    return ProgramTimelineReport(
        name=report.name,
        origin=report.origin,
        platform=report.platform,
        topology=report.topology,
        out_of_memory=report.out_of_memory,
    )
