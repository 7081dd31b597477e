"""Functions that print the processes of a job."""

from __future__ import annotations

from collections.abc import Collection

from jax_array_info_core import hosts_report
from jax_array_info_core.hosts.compare import MOST_DETAILS
from jax_array_info_core.hosts.summaries import HostReport
from jax_array_info_core.pages.folds import MaxRows
from jax_array_info_core.reports import HostsReport

from .show import print_table, report_of, verb


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
    found = report_of(
        report, HostsReport, hosts_report, timeout=timeout, details=details, ignore_codes=ignore_codes
    )
    print_table(found, max_rows=max_rows)
