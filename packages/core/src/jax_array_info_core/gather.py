"""Exchange of reports between processes, through the key-value store of ``jax.distributed``.

It uses no collective, so nothing runs on the devices and missing processes can be named. Each process
writes its report and a mark that it waits. Once all processes wait, process 0 reads the reports and answers
each process: with all reports, or with the indices of the missing processes. All processes that wait at the
same time therefore get the same result. Keys are deleted after use, except for the reports of the last
successful call and one number per process.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable
from typing import Any, get_args

from . import compat
from .compat.devices import KeyValueStore
from .errors import ProcessTimeoutError, UnsupportedValueError
from .reports import Report
from .reports.json import from_json, to_json

_FOLDER = "jax_array_info/gather_reports"
_LONGEST_TIMEOUT = 10**6
_call_numbers = itertools.count(1)


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
    seconds: Any = timeout
    if type(seconds) is bool or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
    peers = compat.peers()
    if peers is None:
        return [report]
    call = _Call(peers, timeout)
    return [from_json(text) for text in call.exchange(to_json(report))]


class _Call:
    """One call of ``gather_reports`` in one process.

    Keys in the store: ``called`` has the number of each process's last call, ``waiting`` the processes that
    wait now, ``reports`` the report of each, ``round`` the reports of all, and ``answers`` the answer of
    process 0 to each.
    """

    def __init__(self, peers: compat.Peers, timeout: float) -> None:
        self.store = KeyValueStore(peers.client, _FOLDER)
        self.process = str(peers.process)
        self.processes = [str(process) for process in range(peers.process_count)]
        self.timeout = timeout
        self.deadline = time.monotonic() + min(timeout, _LONGEST_TIMEOUT)
        self.number = str(next(_call_numbers))
        # Read in this order and written in reverse, so that a process whose call is seen is seen to wait.
        called, waiting = self.store.entries("called"), self.store.entries("waiting")
        self.away = {process: called.get(process) for process in self.processes if process not in waiting}

    def exchange(self, text: str) -> list[str]:
        """Write the text of this process and return the texts of all processes."""
        self.store.write(f"reports/{self.process}", text)
        self.store.set(f"waiting/{self.process}", self.number)
        self.store.set(f"called/{self.process}", self.number)
        try:
            return self.lead() if self.process == "0" else self.follow()
        finally:
            for folder in ("waiting", "reports", "answers"):
                self.store.delete(f"{folder}/{self.process}")

    def lead(self) -> list[str]:
        """Wait for all processes and answer them, as process 0."""
        texts = self.read_all()
        missing = [] if texts else self.absent()
        if texts:
            # All processes have called again, so none still reads the previous round.
            self.store.delete("round")
            self.store.write("round", "\n".join(texts))
        for process, number in self.store.entries("waiting").items():
            # Before the answer: a process that has it may call again, and then sets this mark again.
            self.store.delete(f"waiting/{process}")
            self.store.set(f"answers/{process}/{number}", json.dumps([missing, self.timeout]))
        if not texts:
            raise self.error(missing, self.timeout)
        return texts

    def read_all(self) -> list[str]:
        """Return the texts of all processes once all wait; an empty list after the timeout."""
        while away := [process for process in self.processes if process not in self.store.entries("waiting")]:
            if any(self.store.get(f"waiting/{process}", self.seconds_left()) is None for process in away):
                return []
        texts = [self.store.read(f"reports/{process}", self.seconds_left()) for process in self.processes]
        # A process that gives up at this moment has deleted its report.
        found = [text for text in texts if text is not None]
        return found if len(found) == len(texts) else []

    def follow(self) -> list[str]:
        """Wait for the answer of process 0."""
        key = f"answers/{self.process}/{self.number}"
        answer = self.store.get(key, self.seconds_left())
        absent: list[str] = []
        if answer is None:
            # In this order: process 0 answers all waiting processes before its own call ends.
            absent = self.absent()
            self.store.delete(f"waiting/{self.process}")
            answer = self.store.get(key, self.seconds_left())
        missing, timeout = json.loads(answer) if answer else (absent, self.timeout)
        texts = None if missing else self.store.read("round", self.seconds_left())
        if texts is None:
            raise self.error(missing or ["0"], timeout)
        return texts.split("\n")

    def absent(self) -> list[str]:
        """Return the processes that have not called since this call began, else those that gave up."""
        waiting, called = self.store.entries("waiting"), self.store.entries("called")
        others = [process for process in self.processes if process != self.process]
        gone = [process for process in others if process not in waiting]
        never = [process for process in gone if self.away.get(process, "") == called.get(process)]
        # A process that gave up may wait again by now, but this call has failed.
        return never or gone or others

    def error(self, missing: Iterable[str], timeout: float) -> ProcessTimeoutError:
        """Return the error that names the missing processes."""
        return ProcessTimeoutError(tuple(map(int, missing)), len(self.processes), timeout)

    def seconds_left(self) -> float:
        """Return the seconds until the timeout; negative after it."""
        return self.deadline - time.monotonic()
