"""Times without progress: gaps between lines, and what follows the last step."""

import json
from datetime import datetime, timedelta

import pytest

from jax_array_info_core import log_report
from tests.core.jobs.logs.test_ranks import in_folder

pytestmark = pytest.mark.newest

START = datetime(2026, 9, 20, 9, 0, 0)
FORMATS = {
    "a date": "{:%Y-%m-%d %H:%M:%S},123 INFO {}",
    "ISO": "{:%Y-%m-%dT%H:%M:%S}Z {}",
    "glog": "I{:%m%d %H:%M:%S}.000001     700 main.py:33] {}",
    "absl": "{:%Y-%m-%d %H:%M:%S}.000001: I main.cc:33] {}",
    "no date": "{:%H:%M:%S} {}",
    "brackets": "[{:%H:%M:%S}] {}",
    "a rank": "[3]: {:%Y-%m-%d %H:%M:%S} {}",
}


def log(events, form="{:%Y-%m-%d %H:%M:%S} {}", start=START):
    """Return lines of events: seconds after the start, and the text."""
    return [form.format(start + timedelta(seconds=seconds), text) for seconds, text in events]


def steps(count, seconds=1, first=0, begin=0):
    """Return steps at equal distances."""
    return [(begin + seconds * place, f"step {first + place} loss 2.1") for place in range(count)]


def stalls(report):
    return [(one.numbers, one.line) for one in report.findings if one.kind == "silent stall"]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_lines_without_progress_after_the_last_step_are_a_stall(form):
    report = log_report(log([*steps(10), (10, "waiting"), (3609, "still waiting")], form))
    assert report.headline == "stalled: no progress for 3,600 seconds after step 9 at 09:00:09"
    assert stalls(report) == [({"seconds": 3600, "step": 9}, 10)]
    [found] = report.findings
    assert (found.role, found.code) == ("stall", "JAI503")


@pytest.mark.parametrize("text", ["epoch {} step {}", "step {1} of epoch {0}"])
def test_the_step_is_not_the_epoch(text):
    lines = [(second, text.format(3, second)) for second in range(1, 10)]
    report = log_report(log([*lines, (3609, "still waiting")]))
    assert "after step 9 at" in report.headline


def test_a_log_that_ends_in_progress_is_not_stalled():
    """It may have been copied while the job runs."""
    report = log_report(log(steps(10)))
    assert (report.headline, report.findings) == ("", ())


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_gap_after_which_the_run_went_on_is_a_warning(form):
    report = log_report(log([*steps(10), *steps(10, first=10, begin=1810)], form))
    assert (report.headline, report.is_fatal) == ("", False)
    assert stalls(report) == [({"seconds": 1801, "step": 9}, 11)]
    assert "then it went on" in report.findings[0].problem


@pytest.mark.parametrize("step", [1, 30])
def test_the_bound_is_ten_median_steps_but_a_minute_at_least(step):
    bound = max(60, 10 * step)
    last = 9 * step
    for seconds, is_stalled in [(bound, False), (bound + 1, True)]:
        report = log_report(log([*steps(10, step), (last + seconds, "waiting")]))
        assert report.is_fatal == is_stalled, seconds


def test_midnight_is_passed_without_a_date():
    late = START.replace(hour=23, minute=59, second=55)
    report = log_report(log(steps(10), FORMATS["no date"], late))
    assert (report.headline, report.findings) == ("", ())
    report = log_report(log([*steps(10), *steps(3, first=10, begin=609)], FORMATS["no date"], late))
    assert stalls(report) == [({"seconds": 600, "step": 9}, 11)]


@pytest.mark.parametrize("form", [FORMATS["a date"], FORMATS["glog"]])
def test_with_a_date_days_are_counted(form):
    report = log_report(log([*steps(10), (2 * 86400 + 10, "waiting")], form))
    assert stalls(report) == [({"seconds": 2 * 86400 + 1, "step": 9}, 10)]
    late = datetime(2026, 12, 31, 23, 59, 55)
    assert log_report(log(steps(10), form, late)).findings == ()


def test_without_times_nothing_is_said():
    report = log_report([f"step {step} loss 2.1" for step in range(10)] + ["waiting"] * 10)
    assert (report.headline, report.findings) == ("", ())


@pytest.mark.parametrize("other", ["I0920 09:00:20.1     700 x.cc:1] waiting", "[09:00:20] waiting"])
def test_times_of_several_formats_make_no_stall(other):
    """Loggers with a year, without a year and without a date write to one file."""
    report = log_report([*log(steps(10)), other, *log(steps(3, first=10, begin=21)), other])
    assert (report.headline, report.findings) == ("", ())


def test_a_long_first_compilation_is_not_a_stall():
    begin = [(0, "starting"), (1, "compiling"), (601, "step 0 loss 2.1")]
    report = log_report(log([*begin, *steps(10, first=1, begin=602)]))
    assert (report.headline, report.findings) == ("", ())
    assert log_report(log([(0, "starting"), (601, "compiling")])).findings == ()


def test_a_second_compilation_before_the_third_step_is_not_a_stall():
    report = log_report(log([(0, "step 0"), (600, "step 1"), *steps(10, first=2, begin=601)]))
    assert (report.headline, report.findings) == ("", ())


def test_a_clock_that_is_set_back_is_not_a_stall():
    report = log_report(log([*steps(10), *steps(10, first=10, begin=-3600)]))
    assert (report.headline, report.findings) == ("", ())


@pytest.mark.parametrize("end", ["SIGTERM caught at 2026-09-20T12:00:00Z", "Terminated"])
def test_a_stall_that_a_signal_ends_is_the_stall(end):
    text = f"I0920 12:00:00.000001     700 preemption_notifier.cc:100] {end}" if "caught" in end else end
    lines = [*log([*steps(10), (10800, "still waiting")]), text]
    report = log_report(lines)
    kinds = {one.kind for one in report.findings}
    assert kinds == {"silent stall", "termination signal"}
    assert report.is_fatal


def test_a_log_that_ends_in_an_error_is_no_stall():
    report = log_report([*log([*steps(10), (3600, "still waiting")]), "ValueError: bad batch"])
    assert report.headline == "fatal, not interpreted: ValueError: bad batch"
    assert stalls(report) == []


def test_one_rank_stands_still(tmp_path):
    healthy = log(steps(3600))
    report = log_report(in_folder(tmp_path, [healthy, log([*steps(10), (3600, "waiting")]), healthy]))
    assert report.headline.startswith(
        "rank 1 failed first: stalled: no progress for 3,591 seconds after step 9"
    )
    assert [(one.rank, one.end, one.step, one.time) for one in report.ranks] == [
        ("0", "no error", 3599, "09:59:59"),
        ("1", "stalled", 9, "10:00:00"),
        ("2", "no error", 3599, "09:59:59"),
    ]


def test_all_ranks_stand_still(tmp_path):
    report = log_report(in_folder(tmp_path, [log([*steps(10), (3600, "waiting")])] * 3))
    assert report.headline == "all 3 ranks: stalled: no progress for 3,591 seconds after step 9 at 09:00:09"


def test_an_error_of_another_rank_is_the_root_of_a_stall(tmp_path):
    stalled = log([*steps(10), (3600, "waiting")])
    report = log_report(in_folder(tmp_path, [stalled, [*log(steps(10)), "ValueError: bad batch"], stalled]))
    assert report.headline.startswith("rank 1 failed first: ValueError: bad batch")


def test_times_in_a_collectors_json_are_read():
    lines = [json.dumps({"timestamp": line[:19], "textPayload": line[20:]}) for line in log(steps(10))]
    late = json.dumps({"timestamp": "2026-09-20 11:00:00", "textPayload": "waiting"})
    assert log_report([*lines, late]).headline.startswith(
        "stalled: no progress for 7,191 seconds after step 9"
    )


def test_a_stall_after_a_thousand_steps_in_one_piece_is_found():
    assert log_report(log([*steps(1200), (1200, "a"), (8399, "b")])).is_fatal
