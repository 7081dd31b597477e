"""Exchange of summaries between processes, with threads as processes and a dict as their store."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jax_array_info_core import hosts_report
from jax_array_info_core.compat import processes
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.hosts import gather
from jax_array_info_core.hosts.files import LONGEST_SUMMARY
from tests.core.hosts.samples import ARRAYS, OTHER, USUAL, group, live
from tests.core.hosts.test_gather import LONG, SHORT, FakeClient

pytestmark = pytest.mark.oldest_and_newest


class Job:
    """Processes that share a store."""

    def __init__(self, count, monkeypatch):
        self.count = count
        self.client = FakeClient()
        self.current = threading.local()
        self.pool = ThreadPoolExecutor(count)
        monkeypatch.setattr(processes, "process_index", lambda: self.current.process)
        monkeypatch.setattr(processes, "process_count", lambda: count)
        monkeypatch.setattr(
            processes, "peers", lambda: processes.Peers(self.client, self.current.process, self.count)
        )

    def call(self, process, report=USUAL, timeout=LONG, **options):
        """Call hosts_report in a process and return the future of its result."""

        def run():
            self.current.process = process
            return hosts_report(report, timeout=timeout, **options)

        return self.pool.submit(run)


@pytest.fixture
def job(monkeypatch):
    jobs = []

    def start(count):
        jobs.append(Job(count, monkeypatch))
        return jobs[-1]

    yield start
    for made in jobs:
        made.pool.shutdown()


@pytest.mark.parametrize("count", [2, 3, 12])
def test_each_process_gets_the_same_report(job, count):
    several = job(count)
    calls = [several.call(process) for process in range(count)]
    reports = [call.result() for call in calls]
    assert reports == [reports[0]] * count
    assert [host.process for host in reports[0].hosts] == list(range(count))
    assert reports[0].passed


@pytest.mark.parametrize("different", [0, 3])
def test_only_processes_that_differ_and_one_of_the_others_send_their_arrays(job, different, monkeypatch):
    several = job(8)
    sent = []
    set_text = FakeClient.key_value_set

    def key_value_set(client, key, text, allow_overwrite):
        sent.append((key.removeprefix("jax_array_info/hosts_report/"), len(text)))
        set_text(client, key, text, allow_overwrite)

    monkeypatch.setattr(FakeClient, "key_value_set", key_value_set)
    large = [group((number,)) for number in range(1000)]
    usual, other = live(*large), live(*large, group(label="extra"))
    calls = [several.call(process, other if process == different else usual) for process in range(8)]
    reports = [call.result() for call in calls]
    assert reports == [reports[0]] * 8
    [difference] = reports[0].differences
    assert (difference.process, difference.words) == (different, "1 array more")
    assert difference.extra[0].label == "extra"
    details = {key.split("/")[1] for key, _ in sent if key.startswith("details")}
    assert details | {"0"} == {"0", "1" if different == 0 else str(different)}
    assert all(size <= LONGEST_SUMMARY for key, size in sent if key.startswith("reports"))
    assert not [key for key in several.client.texts if "details" in key or "answers" in key]


def test_without_details_no_arrays_travel(job):
    several = job(3)
    calls = [several.call(process, OTHER if process == 2 else USUAL, details=0) for process in range(3)]
    [difference] = calls[1].result().differences
    assert difference.unread_because == "not among the first processes that differ"


@pytest.mark.parametrize("absent", [1, 3])
def test_a_process_that_does_not_answer_is_missing_and_the_report_of_the_others_stands(job, absent):
    several = job(4)
    came = [process for process in range(4) if process != absent]
    calls = [several.call(process, OTHER if process == 2 else USUAL, SHORT) for process in came]
    reports = [call.result() for call in calls]
    assert reports == [reports[0]] * 3
    assert (reports[0].missing, [host.process for host in reports[0].hosts]) == ((absent,), came)
    assert [one.code for one in reports[0].findings] == ["JAI411", "JAI412"]


def test_without_process_0_the_others_list_each_other(job):
    several = job(3)
    calls = [several.call(process, timeout=SHORT) for process in (1, 2)]
    for call in calls:
        report = call.result()
        assert (report.missing, [host.process for host in report.hosts]) == ((0,), [1, 2])


def test_a_process_waits_for_process_0_beyond_its_own_timeout(job, monkeypatch):
    several = job(3)
    is_over = threading.Event()
    wait = gather.Exchange.answer

    def answer(exchange, seconds):
        if seconds > SHORT:
            is_over.set()
        return wait(exchange, seconds)

    leader = several.call(0)
    several.client.blocking_key_value_get("jax_array_info/hosts_report/waiting/0", 120_000)
    monkeypatch.setattr(gather.Exchange, "answer", answer)
    early = several.call(1, timeout=SHORT)
    assert is_over.wait(120)
    late = several.call(2)
    assert early.result() == leader.result() == late.result()
    assert early.result().missing == ()


def test_a_call_after_one_with_a_missing_process_has_all_and_the_store_does_not_grow(job):
    several = job(3)
    sizes = []
    for _ in range(3):
        calls = [several.call(process, timeout=SHORT) for process in (0, 1)]
        assert [call.result().missing for call in calls] == [(2,), (2,)]
        calls = [several.call(process, OTHER if process else USUAL) for process in range(3)]
        assert [call.result().missing for call in calls] == [(), (), ()]
        sizes.append(len(several.client.texts))
    assert sizes == [sizes[0]] * 3
    assert sizes[0] == 7, "a number and a summary per process, and the last report"


def test_a_summary_of_another_version_is_left_out(job, monkeypatch):
    several = job(2)
    calls = [several.call(process) for process in (0,)]
    client = several.client
    prefix = "jax_array_info/hosts_report"
    client.key_value_set(f"{prefix}/reports/1/0", '.{"report": "HostSummary", "schema_version": 9}', True)
    client.key_value_set(f"{prefix}/waiting/1", "99", True)
    report = calls[0].result()
    [unread] = report.unread
    assert (unread.process, report.missing) == (1, ())
    assert unread.reason.startswith("schema_version 9 cannot be read")


def test_a_single_process_is_compared_with_nothing():
    report = hosts_report(live(*ARRAYS))
    assert (report.process_count, report.passed, report.hosts[0].array_count) == (1, True, 3)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "30", None, True])
def test_an_invalid_timeout_is_rejected(timeout):
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds, got"):
        hosts_report(USUAL, timeout=timeout)


def test_invalid_options_are_rejected():
    with pytest.raises(ValueError, match="details must be at least 0, got -1"):
        hosts_report(USUAL, details=-1)
    with pytest.raises(UnsupportedValueError, match="expected details= as a number"):
        hosts_report(USUAL, details="3")
    with pytest.raises(UnsupportedValueError, match="is not the code of a finding"):
        hosts_report(USUAL, ignore_codes="JAI999")
