"""The reports of every process, on each: they meet in the key-value store of ``jax.distributed``.

No collective, so nothing runs on the devices and whoever does not come can be named. A process
writes down its report and that it waits. Process 0 reads the reports once all wait, and answers
every one: with all reports, or with those who are missing. So all that wait together go on together.
What is written down is taken away again, but for the last reports and a number for each process.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable
from typing import Any, get_args

from . import compat
from .compat.key_value_store import KeyValueStore
from .errors import ProcessTimeoutError, UnsupportedValueError
from .reports import Report
from .reports.json import from_json, to_json

_FOLDER = "jax_array_info/gather_reports"
_LONGEST_TIMEOUT = 10**6
_call_numbers = itertools.count(1)


def gather_reports(report: Report, *, timeout: float = 30.0) -> list[Report]:
    """Return the reports of all processes, in the order of the processes, in each of them.

    Every process calls it, from one thread at a time, with a report of any kind: calls that wait at
    the same time meet, so that each process' n-th call meets the n-th of the others. It waits for the
    slowest process, but not for the devices. A call that fails leaves nothing behind: the next one
    works as soon as all come again. A program of one process gets its own report back at once.

    Args:
        report: What this process contributes.
        timeout: Seconds to wait for the other processes.

    Raises:
        ProcessTimeoutError: (a TimeoutError) some process did not come in time, was too late or is
            dead; ``missing`` has its index.
        ProcessError: (a RuntimeError) there are other processes, but nothing connects them:
            ``jax.distributed.initialize`` was not called.
        UnsupportedValueError: (a ValueError) this is no report.
        ValueError: the timeout is no number of seconds above 0.

    >>> from jax_array_info_core import mesh_plan
    >>> gather_reports(mesh_plan({"data": 4})) == [mesh_plan({"data": 4})]
    True
    """
    if not isinstance(report, get_args(Report)):
        raise UnsupportedValueError(f"expected a report, got {type(report)}")
    if not _is_seconds(timeout):
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
    peers = compat.peers()
    if peers is None:
        return [report]
    call = _Call(peers, timeout)
    return [from_json(text) for text in call.exchange(to_json(report))]


def _is_seconds(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < math.inf


class _Call:
    """One call of one process.

    In the store, ``called`` has the number of each process' last call, ``waiting`` those who wait now;
    ``reports`` is what they bring, ``round`` all of that, ``answers`` what process 0 tells each of them.
    """

    def __init__(self, peers: compat.Peers, timeout: float) -> None:
        self.store = KeyValueStore(peers.client, _FOLDER)
        self.process = str(peers.process)
        self.processes = [str(process) for process in range(peers.process_count)]
        self.timeout = timeout
        self.deadline = time.monotonic() + min(timeout, _LONGEST_TIMEOUT)
        self.number = str(next(_call_numbers))
        # In this order, and written in the other one: who has called is seen to wait.
        called, waiting = self.store.entries("called"), self.store.entries("waiting")
        self.away = {process: called.get(process) for process in self.processes if process not in waiting}

    def exchange(self, text: str) -> list[str]:
        """Return the texts of all processes."""
        self.store.write(f"reports/{self.process}", text)
        self.store.set(f"waiting/{self.process}", self.number)
        self.store.set(f"called/{self.process}", self.number)
        try:
            return self.lead() if self.process == "0" else self.follow()
        finally:
            for kind in ("waiting", "reports", "answers"):
                self.store.delete(f"{kind}/{self.process}")

    def lead(self) -> list[str]:
        """Wait for all and answer them, as process 0."""
        texts = self.read_all()
        missing = [] if texts else self.absent()
        if texts:
            # All have come anew, so nobody reads the last round any more.
            self.store.delete("round")
            self.store.write("round", "\n".join(texts))
        for process, number in self.store.entries("waiting").items():
            # Before the answer: who has it may call again, and then waits anew.
            self.store.delete(f"waiting/{process}")
            self.store.set(f"answers/{process}/{number}", json.dumps([missing, self.timeout]))
        if not texts:
            raise self.error(missing, self.timeout)
        return texts

    def read_all(self) -> list[str]:
        """Return the texts of all processes once all wait; none when time is up before."""
        while away := [process for process in self.processes if process not in self.store.entries("waiting")]:
            if any(self.store.get(f"waiting/{process}", self.seconds_left()) is None for process in away):
                return []
        texts = [self.store.read(f"reports/{process}", self.seconds_left()) for process in self.processes]
        # Who gives up at this moment has taken its report away.
        found = [text for text in texts if text is not None]
        return found if len(found) == len(texts) else []

    def follow(self) -> list[str]:
        """Wait for the answer of process 0."""
        key = f"answers/{self.process}/{self.number}"
        answer = self.store.get(key, self.seconds_left())
        absent: list[str] = []
        if answer is None:
            # In this order: process 0 answers those who wait before it goes itself.
            absent = self.absent()
            self.store.delete(f"waiting/{self.process}")
            answer = self.store.get(key, self.seconds_left())
        missing, timeout = json.loads(answer) if answer else (absent, self.timeout)
        texts = None if missing else self.store.read("round", self.seconds_left())
        if texts is None:
            raise self.error(missing or ["0"], timeout)
        return texts.split("\n")

    def absent(self) -> list[str]:
        """Return who neither waits nor has called since this call began; else those who gave up waiting."""
        waiting, called = self.store.entries("waiting"), self.store.entries("called")
        others = [process for process in self.processes if process != self.process]
        gone = [process for process in others if process not in waiting]
        never = [process for process in gone if self.away.get(process, "") == called.get(process)]
        # Who gave up may wait anew by now, and this call has failed all the same.
        return never or gone or others

    def error(self, missing: Iterable[str], timeout: float) -> ProcessTimeoutError:
        """Return the error that names who is missing."""
        return ProcessTimeoutError(tuple(map(int, missing)), len(self.processes), timeout)

    def seconds_left(self) -> float:
        """Return the seconds until the timeout, below 0 after it."""
        return self.deadline - time.monotonic()
