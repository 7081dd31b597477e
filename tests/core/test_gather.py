"""How the reports of several processes meet. Here threads stand for processes, a dict for their store."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jax_array_info_core import (
    ArrayInfoError,
    ProcessError,
    ProcessTimeoutError,
    UnsupportedValueError,
    compat,
    gather_reports,
    mesh_plan,
    planned_report,
    to_json,
)

pytestmark = pytest.mark.oldest_and_newest

LONG = 120.0
SHORT = 0.3


class FakeClient:
    """What the library uses of the client of jax.distributed."""

    def __init__(self):
        self.texts = {}
        self.changed = threading.Condition()
        self.waited = 0  # milliseconds, in vain

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
            compat, "peers", lambda: compat.Peers(self.client, self.current.process, self.count)
        )

    def call(self, process, report, timeout=LONG):
        """Let a process call; its result is that of the future."""

        def run():
            self.current.process = process
            return gather_reports(report, timeout=timeout)

        return self.pool.submit(run)

    def wait_for(self, *processes):
        """Return when these processes wait."""
        for process in processes:
            self.client.blocking_key_value_get(f"jax_array_info/gather_reports/waiting/{process}", 120_000)

    def all_call(self, number=1, timeout=LONG):
        calls = [self.call(process, report_of(process, number), timeout) for process in range(self.count)]
        return [call.result() for call in calls]


def report_of(process, number=1):
    """Return a report that tells which process made it, at which call."""
    return mesh_plan({f"process{process}": number})


def everyone(count, number=1):
    return [[report_of(process, number) for process in range(count)]] * count


@pytest.fixture
def program(monkeypatch):
    programs = []

    def start(count):
        programs.append(Program(count, monkeypatch))
        return programs[-1]

    yield start
    for made in programs:
        made.pool.shutdown()


def missing(call):
    """Return whom the error of a call names."""
    with pytest.raises(ProcessTimeoutError) as caught:
        call.result()
    return caught.value.missing


@pytest.mark.parametrize("count", [2, 3, 12])
def test_each_process_gets_the_reports_of_all_in_their_order(program, count):
    assert program(count).all_call() == everyone(count)


def test_each_call_meets_the_same_call_of_the_others_and_the_store_does_not_grow(program):
    several = program(3)
    sizes = []

    def many(process):
        several.current.process = process
        return [gather_reports(report_of(process, number), timeout=LONG) for number in range(1, 30)]

    results = list(several.pool.map(many, range(3)))
    assert results == [[everyone(3, number)[0] for number in range(1, 30)]] * 3
    for number in range(1, 4):
        several.all_call(number)
        sizes.append(sorted(several.client.texts))
    assert sizes[0] == sizes[1] == sizes[2]
    assert len(sizes[0]) == 4, "a number for each process, and the last round"


def test_reports_of_megabytes_come_whole_in_pieces_that_every_jax_carries(program):
    several = program(2)
    large = planned_report((2**20,), {"a": 2**18}, ("a",))
    assert len(to_json(large)) > 2 * 2**20
    calls = [several.call(0, large), several.call(1, report_of(1))]
    assert [call.result() for call in calls] == [[large, report_of(1)]] * 2
    assert max(map(len, several.client.texts.values())) < 4 * 2**20


@pytest.mark.parametrize("absent", [1, 2])
def test_who_does_not_come_is_named_in_all_that_do(program, absent):
    several = program(3)
    came = [process for process in range(3) if process != absent]
    calls = [several.call(process, report_of(process), SHORT) for process in came]
    for call in calls:
        with pytest.raises(TimeoutError) as caught:
            call.result()
        assert isinstance(caught.value, ArrayInfoError)
        assert (
            str(caught.value)
            == f"process {absent} of 3 did not call gather_reports within 0.3 s: every process must call it"
        )


def test_all_who_do_not_come_are_named(program):
    several = program(4)
    call = several.call(0, report_of(0), SHORT)
    with pytest.raises(ProcessTimeoutError, match="processes 1, 2, 3 of 4 did not call"):
        call.result()


def test_without_process_0_the_others_name_it(program):
    several = program(3)
    calls = [several.call(process, report_of(process), SHORT) for process in (1, 2)]
    assert [missing(call) for call in calls] == [(0,), (0,)]


def test_the_whole_wait_is_no_longer_than_the_timeout(program):
    several = program(20)
    assert missing(several.call(0, report_of(0), SHORT)) == tuple(range(1, 20))
    assert 0 < several.client.waited < 2 * SHORT * 1000


def test_who_gave_up_waiting_is_not_named(program):
    several = program(3)
    patient = several.call(0, report_of(0), 10 * SHORT)
    several.wait_for(0)
    assert missing(several.call(1, report_of(1), SHORT)) == (2,)
    assert missing(patient) == (2,)


def test_who_was_there_before_and_gave_up_is_not_named(program):
    several = program(3)
    early = several.call(1, report_of(1), SHORT)
    several.wait_for(1)
    patient = several.call(0, report_of(0), 10 * SHORT)
    assert missing(early)[-1] == 2
    assert missing(patient) == (2,)


def test_a_call_after_one_that_failed_works_when_all_come(program):
    several = program(3)
    assert several.all_call(1) == everyone(3, 1)
    calls = [several.call(process, report_of(process, 2), SHORT) for process in (0, 2)]
    assert [missing(call) for call in calls] == [(1,), (1,)]
    assert several.all_call(3) == everyone(3, 3), "the process that missed a call is not behind"
    calls = [several.call(process, report_of(process, 4), SHORT) for process in (1, 2)]
    assert [missing(call) for call in calls] == [(0,), (0,)]
    assert several.all_call(5) == everyone(3, 5)


def test_a_late_process_meets_no_report_of_a_call_that_is_over(program):
    several = program(2)
    assert missing(several.call(0, report_of(0, 1), SHORT)) == (1,)
    late = several.call(1, report_of(1, 1))
    several.wait_for(1)
    assert several.call(0, report_of(0, 2)).result() == late.result() == [report_of(0, 2), report_of(1, 1)]


def test_a_program_of_one_process_gets_its_own_report():
    report = mesh_plan({"a": 2})
    assert gather_reports(report) == [report]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "30", None, True])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds, got"):
        gather_reports(mesh_plan({"a": 2}), timeout=timeout)


def test_what_is_no_report_is_refused_before_anyone_waits():
    with pytest.raises(UnsupportedValueError, match="expected a report, got <class 'int'>"):
        gather_reports(3)


def test_processes_that_nothing_connects_say_so(monkeypatch):
    import jax

    assert jax.devices()
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ProcessError, match=r"the 4 processes are not connected: call jax\.distributed"):
        gather_reports(mesh_plan({"a": 2}))
