"""Exchange of reports and summaries between processes, with threads as processes and a dict as their store."""

import functools
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
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
from jax_array_info_core.jobs.hosts import gather
from jax_array_info_core.jobs.hosts.files import LONGEST_SUMMARY
from tests.core.jobs.hosts.samples import ARRAYS, OTHER, USUAL, group, live

pytestmark = pytest.mark.newest

LONG = 120.0
SHORT = 1.0


class FakeClient:
    """The methods of the jax.distributed client that the library uses."""

    def __init__(self):
        self.texts = {}
        self.sent = []
        self.changed = threading.Condition()
        self.waited = 0  # milliseconds, in calls that timed out

    def key_value_set(self, key, text, allow_overwrite):
        with self.changed:
            self.texts[key] = text
            self.sent.append((key, len(text)))
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
            for other in [one for one in self.texts if one == key or one.startswith(f"{key}/")]:
                del self.texts[other]


class Job:
    """Processes that share a store."""

    def __init__(self, function, count, monkeypatch):
        self.function = function
        self.count = count
        self.client = FakeClient()
        self.current = threading.local()
        self.pool = ThreadPoolExecutor(count)
        monkeypatch.setattr(processes, "process_index", lambda: self.current.process)
        monkeypatch.setattr(processes, "process_count", lambda: count)
        monkeypatch.setattr(
            processes, "peers", lambda: processes.Peers(self.client, self.current.process, count)
        )

    def call(self, process, report, timeout=LONG, **options):
        """Call the function in a process and return the future of its result."""

        def run():
            self.current.process = process
            return self.function(report, timeout=timeout, **options)

        return self.pool.submit(run)

    def call_in(self, processes, report_of, timeout=LONG, **options):
        """Return the results of calls in some processes at once."""
        calls = [self.call(process, report_of(process), timeout, **options) for process in processes]
        return [call.result() for call in calls]

    def wait_for(self, process):
        """Block until a process waits."""
        key = f"jax_array_info/{self.function.__name__}/waiting/{process}"
        self.client.blocking_key_value_get(key, 120_000)

    def missing_in(self, *calls):
        """Return the processes that the error of each call names."""
        missing = []
        for call in calls:
            with pytest.raises(ProcessTimeoutError) as caught:
                call.result()
            missing.append(caught.value.missing)
        return missing


@pytest.fixture
def start(monkeypatch):
    jobs = []

    def start(function, count):
        jobs.append(Job(function, count, monkeypatch))
        return jobs[-1]

    yield start
    for made in jobs:
        made.pool.shutdown()


@pytest.fixture
def program(start):
    """Processes that call gather_reports."""
    return functools.partial(start, gather_reports)


@pytest.fixture
def job(start):
    """Processes that call hosts_report."""
    return functools.partial(start, hosts_report)


def report_from(process, number=1):
    """Return a report with the index of its process and the number of its call."""
    return planned_mesh_report({f"process{process}": number})


def numbered(number):
    return lambda process: report_from(process, number)


def results_of_all(count, number=1):
    return [[report_from(process, number) for process in range(count)]] * count


def usual(process):
    return USUAL


@pytest.mark.parametrize("count", [2, 3, 12])
def test_each_process_gets_all_reports_in_the_order_of_the_processes(program, job, count):
    assert program(count).call_in(range(count), report_from) == results_of_all(count)
    reports = job(count).call_in(range(count), usual)
    assert reports == [reports[0]] * count
    assert [host.process for host in reports[0].hosts] == list(range(count))
    assert reports[0].passed


def test_calls_are_matched_in_order_and_the_store_does_not_grow(program):
    several = program(3)
    sizes = []

    def many(process):
        several.current.process = process
        return [gather_reports(report_from(process, number), timeout=LONG) for number in range(1, 30)]

    results = list(several.pool.map(many, range(3)))
    assert results == [[results_of_all(3, number)[0] for number in range(1, 30)]] * 3
    for number in range(1, 4):
        several.call_in(range(3), numbered(number))
        sizes.append(sorted(re.sub(r"round/\d+", "round", key) for key in several.client.texts))
    assert sizes[0] == sizes[1] == sizes[2]
    assert len(sizes[0]) == 4, "one number per process, and the reports of the last call"


def test_large_reports_are_split_into_values_below_the_limit_of_every_jax_version(program):
    several = program(2)
    large = planned_report((2**20,), {"a": 2**18}, ("a",))
    assert len(to_json(large)) > 2 * 2**20
    assert several.call_in(range(2), [large, report_from(1)].__getitem__) == [[large, report_from(1)]] * 2
    assert max(map(len, several.client.texts.values())) < 4 * 2**20


@pytest.mark.parametrize(
    ("count", "came", "words"),
    [
        (3, (0, 2), "process 1 of 3 did"),
        (3, (0, 1), "process 2 of 3 did"),
        (3, (1, 2), "process 0 of 3 did"),
        (4, (0,), "processes 1, 2, 3 of 4 did"),
    ],
)
def test_every_waiting_process_names_the_missing_ones(program, count, came, words):
    several = program(count)
    for call in [several.call(process, report_from(process), SHORT) for process in came]:
        with pytest.raises(TimeoutError) as caught:
            call.result()
        assert isinstance(caught.value, ArrayInfoError)
        assert str(caught.value) == f"{words} not call gather_reports within 1 s: every process must call it"


def test_the_total_wait_does_not_exceed_the_timeout(program):
    several = program(20)
    assert several.missing_in(several.call(0, report_from(0), SHORT)) == [tuple(range(1, 20))]
    assert 0 < several.client.waited < 2 * SHORT * 1000


@pytest.mark.parametrize("first", [0, 1])
def test_a_process_that_gave_up_is_not_named_as_missing(program, first):
    several = program(3)
    calls = {}
    for process in (first, 1 - first):
        calls[process] = several.call(process, report_from(process), SHORT if process else 3 * SHORT)
        several.wait_for(process)
    gave_up, patient = several.missing_in(calls[1], calls[0])
    assert (gave_up[-1], patient) == (2, (2,))


def test_a_call_after_a_failed_one_succeeds(program):
    several = program(3)
    assert several.call_in(range(3), numbered(1)) == results_of_all(3, 1)
    for number, came, absent in ((2, (0, 2), 1), (4, (1, 2), 0)):
        calls = [several.call(process, report_from(process, number), SHORT) for process in came]
        assert several.missing_in(*calls) == [(absent,)] * 2
        results = several.call_in(range(3), numbered(number + 1))
        assert results == results_of_all(3, number + 1), "a missed call does not shift the matching"


def test_a_late_process_gets_no_report_of_a_failed_call(program):
    several = program(2)
    assert several.missing_in(several.call(0, report_from(0, 1), SHORT)) == [(1,)]
    late = several.call(1, report_from(1, 1))
    several.wait_for(1)
    both = [report_from(0, 2), report_from(1, 1)]
    assert several.call(0, report_from(0, 2)).result() == late.result() == both


def test_a_single_process_is_compared_with_nothing():
    report = planned_mesh_report({"a": 2})
    assert gather_reports(report) == [report]
    report = hosts_report(live(*ARRAYS))
    assert (report.process_count, report.passed, report.hosts[0].array_count) == (1, True, 3)


@pytest.mark.parametrize("different", [0, 3])
def test_only_processes_that_differ_and_one_of_the_others_send_their_arrays(job, different):
    several = job(8)
    large = [group((number,)) for number in range(1000)]
    alike, other = live(*large), live(*large, group(label="extra"))
    reports = several.call_in(range(8), lambda process: other if process == different else alike)
    assert reports == [reports[0]] * 8
    [difference] = reports[0].differences
    assert (difference.process, difference.words) == (different, "1 array more")
    assert difference.extra[0].label == "extra"
    sent = [(key.removeprefix("jax_array_info/hosts_report/"), size) for key, size in several.client.sent]
    details = {key.split("/")[1] for key, _ in sent if key.startswith("details")}
    assert details | {"0"} == {"0", "1" if different == 0 else str(different)}
    assert all(size <= LONGEST_SUMMARY for key, size in sent if key.startswith("reports"))
    assert not [key for key in several.client.texts if "details" in key or "answers" in key]


def test_without_details_no_arrays_travel(job):
    reports = job(3).call_in(range(3), [USUAL, USUAL, OTHER].__getitem__, details=0)
    [difference] = reports[1].differences
    assert difference.unread_because == "not among the first processes that differ"


@pytest.mark.parametrize("absent", [0, 1, 3])
def test_a_process_that_does_not_answer_is_missing_and_the_report_of_the_others_stands(job, absent):
    came = [process for process in range(4) if process != absent]
    reports = job(4).call_in(came, [USUAL, USUAL, OTHER, USUAL].__getitem__, SHORT)
    for report in reports if absent == 0 else [*reports, reports[0]]:
        assert (report.missing, [host.process for host in report.hosts]) == ((absent,), came)
    if absent:
        assert reports == [reports[0]] * 3
        assert [one.code for one in reports[0].findings] == ["JAI411", "JAI412"]


def test_a_process_waits_for_process_0_beyond_its_own_timeout(job, monkeypatch):
    several = job(3)
    is_over = threading.Event()
    wait = gather.Exchange.answer

    def answer(exchange, seconds):
        if seconds > SHORT:
            is_over.set()
        return wait(exchange, seconds)

    leader = several.call(0, USUAL)
    several.wait_for(0)
    monkeypatch.setattr(gather.Exchange, "answer", answer)
    early = several.call(1, USUAL, SHORT)
    assert is_over.wait(120)
    late = several.call(2, USUAL)
    assert early.result() == leader.result() == late.result()
    assert early.result().missing == ()


def test_a_call_after_one_with_a_missing_process_has_all_and_the_store_does_not_grow(job):
    several = job(3)
    sizes = []
    for _ in range(3):
        assert [report.missing for report in several.call_in((0, 1), usual, SHORT)] == [(2,), (2,)]
        reports = several.call_in(range(3), [USUAL, OTHER, OTHER].__getitem__)
        assert [report.missing for report in reports] == [(), (), ()]
        sizes.append(len(several.client.texts))
    assert sizes == [7] * 3, "a number and a summary per process, and the last report"


def test_a_summary_of_another_version_is_left_out(job):
    several = job(2)
    call = several.call(0, USUAL)
    prefix = "jax_array_info/hosts_report"
    text = '.{"report": "HostSummary", "schema_version": 9}'
    several.client.key_value_set(f"{prefix}/reports/1/0", text, True)
    several.client.key_value_set(f"{prefix}/waiting/1", "99", True)
    [unread] = call.result().unread
    assert (unread.process, call.result().missing) == (1, ())
    assert unread.reason.startswith("schema_version 9 cannot be read")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "30", None, True])
def test_an_invalid_timeout_is_rejected(timeout):
    for call in (gather_reports, hosts_report):
        with pytest.raises(ValueError, match="timeout must be a positive number of seconds, got"):
            call(USUAL, timeout=timeout)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: gather_reports(3), UnsupportedValueError, "expected a report, got <class 'int'>"),
        (lambda: hosts_report(USUAL, details=-1), ValueError, "details must be at least 0, got -1"),
        (lambda: hosts_report(USUAL, details="3"), UnsupportedValueError, "expected details= as a number"),
        (
            lambda: hosts_report(USUAL, ignore_codes="JAI999"),
            UnsupportedValueError,
            "is not the code of a finding",
        ),
    ],
)
def test_invalid_arguments_are_rejected_without_waiting(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_processes_without_jax_distributed_raise_an_error_with_the_fix(monkeypatch):
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
    monkeypatch.setattr("jax_array_info_core.jobs.hosts.gather.time", client)
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
