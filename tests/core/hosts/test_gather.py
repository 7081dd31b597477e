"""Exchange of reports between processes, with threads as processes and a dict as their store."""

import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jax_array_info import print_hosts
from jax_array_info_core import (
    ArrayInfoError,
    gather_reports,
    hosts_report,
    planned_mesh_report,
    planned_report,
    to_json,
)
from jax_array_info_core.compat import processes
from jax_array_info_core.compat.processes import KeyValueStore
from jax_array_info_core.errors import ProcessError, ProcessTimeoutError, UnsupportedValueError
from tests.core.hosts.samples import USUAL

pytestmark = pytest.mark.oldest_and_newest

LONG = 120.0
SHORT = 1.0


class FakeClient:
    """The methods of the jax.distributed client that the library uses."""

    def __init__(self):
        self.texts = {}
        self.changed = threading.Condition()
        self.waited = 0  # milliseconds, in calls that timed out

    def key_value_set(self, key, text, allow_overwrite):
        with self.changed:
            self.texts[key] = text
            self.changed.notify_all()

    def blocking_key_value_get(self, key, milliseconds):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.texts, milliseconds / 1000):
                self.waited += milliseconds
                raise RuntimeError(f"DEADLINE_EXCEEDED: {key}")
            return self.texts[key]

    def key_value_dir_get(self, key):
        with self.changed:
            return [entry for entry in self.texts.items() if entry[0].startswith(key)]

    def key_value_delete(self, key):
        with self.changed:
            self.texts = {
                other: text
                for other, text in self.texts.items()
                if other != key and not other.startswith(f"{key}/")
            }


class Program:
    """Processes that share a store."""

    def __init__(self, count, monkeypatch):
        self.count = count
        self.client = FakeClient()
        self.current = threading.local()
        self.pool = ThreadPoolExecutor(count)
        monkeypatch.setattr(
            processes, "peers", lambda: processes.Peers(self.client, self.current.process, self.count)
        )

    def call(self, process, report, timeout=LONG):
        """Call gather_reports in a process and return the future of its result."""

        def run():
            self.current.process = process
            return gather_reports(report, timeout=timeout)

        return self.pool.submit(run)

    def wait_for(self, *processes):
        """Block until these processes wait."""
        for process in processes:
            self.client.blocking_key_value_get(f"jax_array_info/gather_reports/waiting/{process}", 120_000)

    def all_call(self, number=1, timeout=LONG):
        calls = [self.call(process, report_from(process, number), timeout) for process in range(self.count)]
        return [call.result() for call in calls]


def report_from(process, number=1):
    """Return a report with the index of its process and the number of its call."""
    return planned_mesh_report({f"process{process}": number})


def results_of_all(count, number=1):
    return [[report_from(process, number) for process in range(count)]] * count


@pytest.fixture
def program(monkeypatch):
    programs = []

    def start(count):
        programs.append(Program(count, monkeypatch))
        return programs[-1]

    yield start
    for made in programs:
        made.pool.shutdown()


def missing_processes(call):
    """Return the processes that the error of a call names."""
    with pytest.raises(ProcessTimeoutError) as caught:
        call.result()
    return caught.value.missing


@pytest.mark.parametrize("count", [2, 3, 12])
def test_each_process_gets_all_reports_in_the_order_of_the_processes(program, count):
    assert program(count).all_call() == results_of_all(count)


def test_calls_are_matched_in_order_and_the_store_does_not_grow(program):
    several = program(3)
    sizes = []

    def many(process):
        several.current.process = process
        return [gather_reports(report_from(process, number), timeout=LONG) for number in range(1, 30)]

    results = list(several.pool.map(many, range(3)))
    assert results == [[results_of_all(3, number)[0] for number in range(1, 30)]] * 3
    for number in range(1, 4):
        several.all_call(number)
        sizes.append(sorted(re.sub(r"round/\d+", "round", key) for key in several.client.texts))
    assert sizes[0] == sizes[1] == sizes[2]
    assert len(sizes[0]) == 4, "one number per process, and the reports of the last call"


def test_large_reports_are_split_into_values_below_the_limit_of_every_jax_version(program):
    several = program(2)
    large = planned_report((2**20,), {"a": 2**18}, ("a",))
    assert len(to_json(large)) > 2 * 2**20
    calls = [several.call(0, large), several.call(1, report_from(1))]
    assert [call.result() for call in calls] == [[large, report_from(1)]] * 2
    assert max(map(len, several.client.texts.values())) < 4 * 2**20


@pytest.mark.parametrize("absent", [1, 2])
def test_every_waiting_process_names_the_missing_one(program, absent):
    several = program(3)
    came = [process for process in range(3) if process != absent]
    calls = [several.call(process, report_from(process), SHORT) for process in came]
    for call in calls:
        with pytest.raises(TimeoutError) as caught:
            call.result()
        assert isinstance(caught.value, ArrayInfoError)
        assert (
            str(caught.value)
            == f"process {absent} of 3 did not call gather_reports within 1 s: every process must call it"
        )


def test_several_missing_processes_are_named(program):
    several = program(4)
    call = several.call(0, report_from(0), SHORT)
    with pytest.raises(ProcessTimeoutError, match="processes 1, 2, 3 of 4 did not call"):
        call.result()


def test_a_missing_process_0_is_named_by_the_others(program):
    several = program(3)
    calls = [several.call(process, report_from(process), SHORT) for process in (1, 2)]
    assert [missing_processes(call) for call in calls] == [(0,), (0,)]


def test_the_total_wait_does_not_exceed_the_timeout(program):
    several = program(20)
    assert missing_processes(several.call(0, report_from(0), SHORT)) == tuple(range(1, 20))
    assert 0 < several.client.waited < 2 * SHORT * 1000


def test_a_process_that_gave_up_is_not_named_as_missing(program):
    several = program(3)
    patient = several.call(0, report_from(0), 10 * SHORT)
    several.wait_for(0)
    assert missing_processes(several.call(1, report_from(1), SHORT)) == (2,)
    assert missing_processes(patient) == (2,)


def test_a_process_that_came_first_and_gave_up_is_not_named_as_missing(program):
    several = program(3)
    early = several.call(1, report_from(1), SHORT)
    several.wait_for(1)
    patient = several.call(0, report_from(0), 10 * SHORT)
    assert missing_processes(early)[-1] == 2
    assert missing_processes(patient) == (2,)


def test_a_call_after_a_failed_one_succeeds(program):
    several = program(3)
    assert several.all_call(1) == results_of_all(3, 1)
    calls = [several.call(process, report_from(process, 2), SHORT) for process in (0, 2)]
    assert [missing_processes(call) for call in calls] == [(1,), (1,)]
    assert several.all_call(3) == results_of_all(3, 3), "a missed call does not shift the matching"
    calls = [several.call(process, report_from(process, 4), SHORT) for process in (1, 2)]
    assert [missing_processes(call) for call in calls] == [(0,), (0,)]
    assert several.all_call(5) == results_of_all(3, 5)


def test_a_late_process_gets_no_report_of_a_failed_call(program):
    several = program(2)
    assert missing_processes(several.call(0, report_from(0, 1), SHORT)) == (1,)
    late = several.call(1, report_from(1, 1))
    several.wait_for(1)
    assert (
        several.call(0, report_from(0, 2)).result() == late.result() == [report_from(0, 2), report_from(1, 1)]
    )


def test_a_single_process_gets_its_own_report():
    report = planned_mesh_report({"a": 2})
    assert gather_reports(report) == [report]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "30", None, True])
def test_an_invalid_timeout_is_rejected(timeout):
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds, got"):
        gather_reports(planned_mesh_report({"a": 2}), timeout=timeout)


def test_a_value_that_is_not_a_report_is_rejected_without_waiting():
    with pytest.raises(UnsupportedValueError, match="expected a report, got <class 'int'>"):
        gather_reports(3)


def test_processes_without_jax_distributed_raise_an_error_with_the_fix(monkeypatch):
    import jax

    assert jax.devices()
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ProcessError, match=r"the 4 processes are not connected: call jax\.distributed"):
        gather_reports(planned_mesh_report({"a": 2}))


class SleepingClient(FakeClient):
    """A client without other processes, whose waits take all their time in C++, on a clock of its own."""

    def __init__(self):
        super().__init__()
        self.now, self.waits, self.interrupted_at = 0.0, [], math.inf

    def monotonic(self):
        return self.now

    def blocking_key_value_get(self, key, milliseconds):
        if key in self.texts:
            return self.texts[key]
        self.waits.append(milliseconds / 1000)
        self.now += milliseconds / 1000
        if self.now >= self.interrupted_at:
            raise KeyboardInterrupt  # Python handles the signal once the call returns
        raise RuntimeError(f"DEADLINE_EXCEEDED: {key}")


@pytest.fixture
def sleeping(monkeypatch):
    client = SleepingClient()
    monkeypatch.setattr("jax_array_info_core.compat.processes.time", client)
    monkeypatch.setattr("jax_array_info_core.hosts.gather.time", client)
    return client


CALLS = [
    lambda timeout: gather_reports(report_from(0), timeout=timeout),
    lambda timeout: hosts_report(USUAL, timeout=timeout),
    lambda timeout: print_hosts(USUAL, timeout=timeout),
]


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_is_served_within_a_second_of_any_wait(sleeping, monkeypatch, call, process):
    monkeypatch.setattr(processes, "peers", lambda: processes.Peers(sleeping, process, 2))
    sleeping.interrupted_at = 3.2
    with pytest.raises(KeyboardInterrupt):
        call(1000)
    assert max(sleeping.waits) <= 0.5
    assert sleeping.now <= sleeping.interrupted_at + 0.5
    assert not [key for key in sleeping.texts if "/waiting/" in key]


@pytest.mark.parametrize("seconds", [0.001, 0.2, 0.5, 0.7, 12.3, 3600.0])
def test_slices_of_a_wait_add_up_to_its_time(sleeping, seconds):
    assert KeyValueStore(sleeping, "folder").get("key", seconds) is None
    assert sleeping.now == pytest.approx(seconds, abs=0.002)
    assert max(sleeping.waits) <= 0.5


def test_a_wait_whose_time_is_over_looks_once(sleeping):
    assert KeyValueStore(sleeping, "folder").get("key", -1.0) is None
    assert sleeping.waits == [0.001]
    sleeping.texts["folder/key"] = "text"
    assert KeyValueStore(sleeping, "folder").get("key", -1.0) == "text"
