"""Functions that print the processes of a job, and memory over time and along the schedule of a program."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from jax_array_info_core import hosts_report, program_timeline_report, timeline_report
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.jobs.hosts.compare import MOST_DETAILS
from jax_array_info_core.jobs.hosts.summaries import HostReport
from jax_array_info_core.reports import HostsReport, ProgramTimelineReport, TimelineReport

from .show import print_table, refuse_with, report_of, verb


@verb
def print_timeline(
    folder: str | os.PathLike[str] | TimelineReport,
    *,
    process: int | None = None,
    run: int | None = None,
    device: int | None = None,
    last: float | None = None,
    max_rows: MaxRows = "fit",
) -> None:
    """Print the memory of a job over time, from the record that ``record_memory`` writes.

    The first lines are the answer: allocations that failed, the peak with its time, step and mark, and the
    allocation sites that grow. The picture has the bytes in use of one device by allocation site. The tables
    below it have the arrays that were alive at the peak, and what each mark added.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> from jax_array_info import print_timeline, record_memory
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with record_memory(folder):
    ...         weights = jnp.zeros((512, 512))
    ...     print_timeline(folder)
    peak ...
    ...

    Args:
        folder: Folder of the record, of a job that ended or still runs. A ``TimelineReport`` is printed as it
            is.
        process: Index of the process. Defaults to the one with the highest peak.
        run: Number of its run, from 0, if several programs had this index. Defaults to the one with the
            highest peak.
        device: Id of the device. Defaults to that with the highest peak.
        last: Number of seconds before the last sample to look at. Defaults to the whole record.
        max_rows: Maximum number of rows of each table. None shows all.

    Raises:
        FileFormatError: (a ValueError) If the folder has no record, or none that can be read.
        UnsupportedValueError: (a ValueError) If there is no such process, run or device in the record.
        ValueError: If ``last`` is not a positive number of seconds, or ``max_rows`` is negative.
        OSError: If the folder cannot be read.
    """
    timeline = report_of(
        folder, TimelineReport, timeline_report, process=process, run=run, device=device, last=last
    )
    print_table(timeline, max_rows=max_rows)


@verb
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


@verb
def print_hosts(
    report: HostReport | HostsReport,
    *,
    timeout: float = 30.0,
    details: int = MOST_DETAILS,
    ignore_codes: str | Collection[str] = (),
    max_rows: MaxRows = "fit",
) -> None:
    """Print which processes of this job have the most bytes, and which have other arrays than most.

    Every process must call this function, but only process 0 prints, unless ``config.process`` is another
    one. The first line is the answer. The digits below it have the bytes of each process, from 0 for the
    emptiest to 9 for the fullest, eight processes in a group. The table has the fullest and the emptiest
    processes. Findings follow: processes that are missing, and arrays that only some processes have. With a
    single process:

    >>> import jax.numpy as jnp
    >>> from jax_array_info import live_array_report, print_hosts
    >>> weights = jnp.zeros((512, 512))
    >>> print_hosts(live_array_report())
    1 host: 1.0 MiB of live arrays
    ...

    Args:
        report: What ``hosts_report`` takes: a ``LiveArrayReport``, a ``TreeReport`` or a ``DevicesReport`` of
            this process. A ``HostsReport`` is printed as it is, by one process alone.
        timeout: Seconds to wait for the other processes, as for ``hosts_report``.
        details: Maximum number of processes that differ whose arrays are compared.
        ignore_codes: Codes of findings to leave out, such as ``JAI411``.
        max_rows: Maximum number of processes in the table, half of them the fullest. None shows all.

    Raises:
        UnsupportedValueError: (a ValueError) If ``report`` is something else, or a code does not exist.
        ProcessError: (a RuntimeError) If there are several processes, but ``jax.distributed.initialize``
            was not called.
        ValueError: If ``timeout`` is not a positive number of seconds, or ``details`` or ``max_rows`` is
            negative.
    """
    hosts = report_of(
        report, HostsReport, hosts_report, timeout=timeout, details=details, ignore_codes=ignore_codes
    )
    print_table(hosts, max_rows=max_rows)
