"""The report on the processes of a running job."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Mapping

from ..compat import processes
from ..errors import FileFormatError, ReportFormatError, require
from ..reports.findings import known_codes
from ..reports.hosts import HostsReport, HostSummary, UnreadHost
from ..reports.json import from_json, summary_from_json, summary_to_json, to_json
from ..stored.reading import decoded_parts
from .compare import MOST_DETAILS, Source, UnreadError, hosts_of
from .gather import Ask, Exchange, require_timeout
from .summaries import ArraySet, HostReport, SetAsText, arrays_of, require_host_report, summary_of


def hosts_report(
    report: HostReport,
    *,
    timeout: float = 30.0,
    details: int = MOST_DETAILS,
    ignore_codes: str | Collection[str] = (),
) -> HostsReport:
    """Return the bytes and the arrays of all processes of this job, and what differs between them.

    Every process must call this function, from one thread at a time, with a report of the same class. Every
    process gets the same result. Processes that do not answer within the timeout are ``missing`` in it. If
    process 0 does not answer, the others wait for it until their timeouts, and each process lists those that
    it knows. Ctrl-C ends the wait within a second.

    It uses the key-value store of ``jax.distributed``, and no collective. A process sends a summary of at
    most 4 KiB. Processes whose set of arrays differs from that of most processes, and one of the most,
    send their arrays if process 0 asks them. Sets are compared by shape, dtype, sharding, label or path,
    and number. Views are left out.

    >>> from jax_array_info_core import hosts_report, live_array_report
    >>> hosts_report(live_array_report()).missing
    ()

    Args:
        report: A ``LiveArrayReport``, a ``TreeReport`` or a ``DevicesReport`` of this process. The bytes that
            are compared are those in live arrays on all devices of a process, those of the tree on its
            fullest device, or those in use on all devices of a process.
        timeout: Seconds to wait for the other processes. A call takes at most about twice as long.
        details: Maximum number of processes that differ whose arrays are compared one by one.
        ignore_codes: Codes of findings to leave out, such as ``JAI411``.

    Raises:
        UnsupportedValueError: (a ValueError) If ``report`` is something else, or a code does not exist.
        ProcessError: (a RuntimeError) If there are several processes, but ``jax.distributed.initialize``
            was not called.
        ValueError: If ``timeout`` is not a positive number of seconds, or ``details`` is negative.
    """
    require_host_report(report)
    require_timeout(timeout)
    require(details, int, "details= as a number of processes")
    if details < 0:
        raise ValueError(f"details must be at least 0, got {details}")
    codes = known_codes(ignore_codes)
    peers = processes.peers()
    summary = summary_of(report)
    if peers is None:
        source = Source(f"process {summary.process}", summary)
        return hosts_of([source], lambda _: arrays_of(report), details=details, ignore_codes=codes)

    def conclude(texts: Mapping[int, str], ask: Ask) -> str:
        sources, unread = _sources(texts)

        def read_arrays(summary: HostSummary) -> ArraySet:
            text = ask(summary.process)
            if text is None:
                raise UnreadError("its arrays were not received")
            try:
                return decoded_parts(_unpacked(text), SetAsText).arrays
            except FileFormatError as error:
                raise UnreadError(str(error)) from error

        report = hosts_of(sources, read_arrays, unread=unread, details=details, ignore_codes=codes)
        return _packed(to_json(report))

    exchange = Exchange(
        peers,
        "hosts_report",
        timeout,
        needs_all=False,
        details=lambda: _packed(SetAsText.of(arrays_of(report)).text),
    )
    concluded = from_json(_unpacked(exchange.run(summary_to_json(summary), conclude)))
    assert isinstance(concluded, HostsReport)
    return concluded


def _packed(text: str) -> str:
    """Return a text in fewer characters: every process reads the report on all of them."""
    return base64.b85encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> str:
    return zlib.decompress(base64.b85decode(text)).decode()


def _sources(texts: Mapping[int, str]) -> tuple[list[Source], list[UnreadHost]]:
    """Return the summaries of processes, and those that could not be read, as of another version."""
    sources, unread = [], []
    for process, text in texts.items():
        name = f"process {process}"
        try:
            sources.append(Source(name, summary_from_json(text)))
        except ReportFormatError as error:
            unread.append(UnreadHost(name=name, reason=str(error), process=process))
    return sources, unread
