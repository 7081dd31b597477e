"""Exchange of texts between processes, through the key-value store of ``jax.distributed``.

It uses no collective, so nothing runs on the devices and missing processes can be named. Each process
writes its text and a mark that it waits. Once all processes wait, process 0 reads the texts, concludes one
text from them and answers each process: with the conclusion, or with the indices of the missing processes.
All processes that wait at the same time therefore get the same result. Keys are deleted after use, except for
the last conclusion and one number per process, and, where processes may be missing, one text per process.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_args

from ...base.errors import (
    FileFormatError,
    ProcessTimeoutError,
    ReportFormatError,
    UnsupportedValueError,
    require,
)
from ...compat import processes
from ...compat.processes import KeyValueStore
from ...facts.reports import Report
from ...facts.reports.codes import known_codes
from ...facts.reports.hosts import HostsReport, HostSummary, UnreadHost
from ...facts.reports.json import from_json, summary_from_json, summary_to_json, to_json
from ...trees.stored.reading import decoded_parts
from .compare import MOST_DETAILS, Source, UnreadError, hosts_of
from .summaries import ArraySet, HostReport, SetAsText, arrays_of, require_host_report, summary_of

_LONGEST_TIMEOUT = 10**6
_LONGEST_CONCLUSION = 60.0
"""Seconds from the timeout of process 0 until its answer."""
_ASKED = "details"
"""Answer that asks a process for its details."""
_call_numbers = itertools.count(1)

Ask = Callable[[int], str | None]
"""Function that returns the details of a process; None if it does not send them."""


def gather_reports(report: Report, *, timeout: float = 30.0) -> list[Report]:
    """Return the reports of all processes, ordered by process index. Every process gets the same list.

    Every process must call this function, from one thread at a time, with any report. The calls that
    are in progress at the same time exchange their reports. A call waits for the slowest process,
    but not for the devices. After a failed call, the next call succeeds if every process calls the function
    in time. With a single process, the function immediately returns a list with the report of that process.

    Args:
        report: Report of this process.
        timeout: Seconds to wait for the other processes.

    Raises:
        ProcessTimeoutError: (a TimeoutError) If a process did not call the function in time, for example
            because it has exited. ``missing`` lists the indices of these processes.
        ProcessError: (a RuntimeError) If there are several processes, but ``jax.distributed.initialize``
            was not called.
        UnsupportedValueError: (a ValueError) If ``report`` is not a report.
        ValueError: If ``timeout`` is not a positive number of seconds.

    >>> from jax_array_info_core import planned_mesh_report
    >>> gather_reports(planned_mesh_report({"data": 4})) == [planned_mesh_report({"data": 4})]
    True
    """
    if not isinstance(report, get_args(Report)):
        raise UnsupportedValueError(f"expected a report, got {type(report)}")
    require_timeout(timeout)
    peers = processes.peers()
    if peers is None:
        return [report]
    exchange = Exchange(peers, "gather_reports", timeout)
    texts = exchange.run(to_json(report), lambda texts, _: "\n".join(texts.values()))
    return [from_json(text) for text in texts.split("\n")]


def require_timeout(timeout: Any) -> None:
    """Raise ValueError for a timeout that is not a positive number of seconds."""
    if type(timeout) is bool or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")


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


class Exchange:
    """One call in one process of a function that all processes call.

    Keys in the store: ``called`` has the number of each process's last call, ``waiting`` the processes that
    wait now, ``reports`` the text of each, ``round`` the conclusion, ``answers`` the answer of process 0 to
    each, and ``details`` those of a process that was asked for them.
    """

    def __init__(
        self,
        peers: processes.Peers,
        function: str,
        timeout: float,
        *,
        needs_all: bool = True,
        details: Callable[[], str] = str,
    ) -> None:
        """Start the call.

        Args:
            peers: The processes.
            function: Name of the function. Calls of different functions do not meet.
            timeout: Seconds to wait for the other processes.
            needs_all: Whether a missing process is an error. If not, the conclusion is made of the texts of
                the others; without process 0, each of them concludes on its own.
            details: Returns the details of this process, if process 0 asks for them.
        """
        self.store = KeyValueStore(peers.client, f"jax_array_info/{function}")
        self.process = str(peers.process)
        self.processes = [str(process) for process in range(peers.process_count)]
        self.timeout = timeout
        self.needs_all = needs_all
        self.details = details
        self.deadline = time.monotonic() + min(timeout, _LONGEST_TIMEOUT)
        self.number = str(next(_call_numbers))
        # Read in this order and written in reverse, so that a process whose call is seen is seen to wait.
        called, waiting = self.store.entries("called"), self.store.entries("waiting")
        self.away = {process: called.get(process) for process in self.processes if process not in waiting}

    def run(self, text: str, conclude: Callable[[Mapping[int, str], Ask], str]) -> str:
        """Write the text of this process and return the conclusion from the texts of all.

        Args:
            text: Text of this process.
            conclude: Returns the conclusion from the texts by process index, ascending. It may ask processes
                for their details.

        Raises:
            ProcessTimeoutError: If a process is missing, unless ``needs_all`` is False.
        """
        self.store.write(f"reports/{self.process}", text)
        self.store.set(f"waiting/{self.process}", self.number)
        self.store.set(f"called/{self.process}", self.number)
        try:
            return self.lead(conclude) if self.process == "0" else self.follow(conclude)
        finally:
            # Without process 0, other processes still read the report, also after this call.
            for folder in ("waiting", "answers", "details", *(["reports"] if self.needs_all else [])):
                self.store.delete(f"{folder}/{self.process}")

    def lead(self, conclude: Callable[[Mapping[int, str], Ask], str]) -> str:
        """Wait for all processes and answer them, as process 0."""
        texts = self.read_all()
        missing = [] if texts else self.absent()
        conclusion = ""
        if texts:
            # Those that have called again do not read the previous round. Another one misses its pieces.
            conclusion = conclude(texts, self.ask)
            self.store.delete("round")
            self.store.write(f"round/{self.number}", conclusion)
        for process, number in self.store.entries("waiting").items():
            # Before the answer: a process that has it may call again, and then sets this mark again.
            self.store.delete(f"waiting/{process}")
            self.store.set(f"answers/{process}/{number}", json.dumps([missing, self.timeout, self.number]))
        if not texts:
            raise self.error(missing, self.timeout)
        return conclusion

    def read_all(self) -> dict[int, str]:
        """Return the texts of all processes once all wait; after the timeout none, or those that wait."""
        while away := [process for process in self.processes if process not in self.store.entries("waiting")]:
            if any(self.store.get(f"waiting/{process}", self.seconds_left()) is None for process in away):
                if self.needs_all:
                    return {}
                waiting = self.store.entries("waiting")
                return self.read(process for process in self.processes if process in waiting)
        texts = self.read(self.processes)
        # A process that gives up at this moment has deleted its report.
        return texts if len(texts) == len(self.processes) or not self.needs_all else {}

    def read(self, processes: Iterable[str]) -> dict[int, str]:
        """Return the texts of some processes, as far as they have written them."""
        texts = {
            int(process): self.store.read(f"reports/{process}", self.seconds_left()) for process in processes
        }
        return {process: text for process, text in texts.items() if text is not None}

    def ask(self, process: int) -> str | None:
        """Return the details of a process that waits; None if it does not send them."""
        if str(process) == self.process:
            return self.details()
        number = self.store.entries("waiting").get(str(process))
        if number is None:
            return None
        self.store.set(f"answers/{process}/{number}", _ASKED)
        return self.store.read(f"details/{process}/{number}", self.seconds_left())

    def follow(self, conclude: Callable[[Mapping[int, str], Ask], str]) -> str:
        """Wait for the answer of process 0."""
        answer = self.answer(self.seconds_left())
        absent: list[str] = []
        if answer is None and not self.needs_all and "0" in self.store.entries("waiting"):
            # It came later than this process, so that its timeout is later.
            answer = self.answer(self.timeout + _LONGEST_CONCLUSION)
        elif answer is None:
            # In this order: process 0 answers all waiting processes before its own call ends.
            absent = self.absent()
            self.store.delete(f"waiting/{self.process}")
            answer = self.answer(self.seconds_left())
        missing, timeout, number = json.loads(answer) if answer else (absent, self.timeout, "")
        if answer and not missing:
            conclusion = self.store.read(f"round/{number}", self.seconds_left())
            if conclusion is not None:
                return conclusion
        if self.needs_all:
            raise self.error(missing or ["0"], timeout)
        return self.conclude_alone(conclude)

    def answer(self, seconds: float) -> str | None:
        """Return the answer of process 0, after sending it the details that it asks for; None if late."""
        key = f"answers/{self.process}/{self.number}"
        until = time.monotonic() + seconds
        while (answer := self.store.get(key, until - time.monotonic())) == _ASKED:
            self.store.delete(key)
            self.store.write(f"details/{self.process}/{self.number}", self.details())
            until = time.monotonic() + _LONGEST_CONCLUSION
        return answer

    def conclude_alone(self, conclude: Callable[[Mapping[int, str], Ask], str]) -> str:
        """Return the conclusion from the texts of the processes that have called since this call began."""
        never = self.never()
        texts = self.read(process for process in self.processes if process not in never)
        return conclude(texts, lambda process: self.details() if str(process) == self.process else None)

    def absent(self) -> list[str]:
        """Return the processes that have not called since this call began, else those that gave up."""
        waiting = self.store.entries("waiting")
        others = [process for process in self.processes if process != self.process]
        gone = [process for process in others if process not in waiting]
        # A process that gave up may wait again by now, but this call has failed.
        return [process for process in self.never() if process not in waiting] or gone or others

    def never(self) -> list[str]:
        """Return the processes that did not wait when this call began, and have not called since."""
        called = self.store.entries("called")
        return [
            process
            for process in self.processes
            if process != self.process and self.away.get(process, "") == called.get(process)
        ]

    def error(self, missing: Iterable[str], timeout: float) -> ProcessTimeoutError:
        """Return the error that names the missing processes."""
        return ProcessTimeoutError(tuple(map(int, missing)), len(self.processes), timeout)

    def seconds_left(self) -> float:
        """Return the seconds until the timeout; negative after it."""
        return self.deadline - time.monotonic()
