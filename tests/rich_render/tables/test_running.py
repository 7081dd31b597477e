"""Tests of the page of a running job: it fits the terminal, and names what is full, grows and ended."""

import re
from dataclasses import replace
from itertools import cycle, product

import pytest
from rich.cells import cell_len

from jax_array_info.engine.render import text_of
from jax_array_info.engine.running import running_job
from jax_array_info_core.facts.reports.timeline import (
    TimelineMark,
    TimelineOutOfMemory,
    TimelineSeries,
    UnreadRecord,
)
from jax_array_info_core.facts.reports.timeline_process import TimelineDevice, TimelineProcess
from jax_array_info_core.reports import Origin, RecordStall, SourceLine, TimelineReport

pytestmark = pytest.mark.newest

GIB = 2**30
AT = 1_700_000_000.0
"""Time of the report."""
COUNT = 60
"""Number of samples, one a second."""


def origin(line, function="step"):
    return Origin(file="/home/me/train.py", line=line, function=function)


def device(number, in_use, peak=None, limit=80 * GIB):
    peak = in_use if peak is None else peak
    return TimelineDevice(
        id=number, name=f"cuda:{number}", bytes_in_use=in_use, peak_nbytes=peak, bytes_limit=limit
    )


def process(number, *devices, **fields):
    return TimelineProcess(
        **{
            "process": number,
            "host_name": f"host-{number // 4}",
            "pid": 100 + number,
            "platform": "gpu",
            "start": AT - COUNT,
            "end": AT,
            "every": 1.0,
            "state": "running",
            "sample_count": COUNT,
            "step": 1200,
            "mark": "eval",
            "in_use_source": "allocator",
            "devices": devices,
            **fields,
        }
    )


def series(line, first, last, **fields):
    """Return a line whose bytes change evenly from first to last."""
    values = tuple(first + (last - first) * place // (COUNT - 1) for place in range(COUNT))
    known = {"origin": origin(line), "content": "float32[4,4]", "nbytes": values, "count": 3}
    return TimelineSeries(**{**known, "nbytes_per_minute": (last - first) * 60 / (COUNT - 1), **fields})


REST = {"origin": None, "content": None, "count": None}
SERIES = (
    series(14, 12 * GIB, 12 * GIB, count=200),
    series(5, 2 * GIB, 3 * GIB, content=None),
    series(40, 4 * GIB, GIB, count=2),
    series(0, GIB, GIB, **REST, kind="other arrays"),
    series(0, 3 * GIB, 5 * GIB, **REST, kind="not arrays"),
)
EVAL = TimelineMark(
    name="eval", count=2, times=(AT - 50, AT - 7), added_nbytes=GIB, kept_nbytes=0, peak_nbytes=20 * GIB
)


def timeline(*processes, **fields):
    processes = processes or (process(0, device(0, 22 * GIB, 30 * GIB), device(1, 70 * GIB, 78 * GIB)),)
    return TimelineReport(
        **{
            "folder": "memory/",
            "processes": processes,
            "process_count": len(processes),
            "process": processes[0].process,
            "device": processes[0].devices[0].id,
            "times": tuple(AT - COUNT + 1 + place for place in range(COUNT)),
            "steps": (None,) * COUNT,
            "in_use": tuple(map(sum, zip(*(line.nbytes for line in SERIES), strict=True))),
            "series": SERIES,
            "marks": (EVAL,),
            "read_at": AT,
            **fields,
        }
    )


def large(process_count=64, devices=8):
    """Return a job of many processes; of each the devices are fuller than those of the one before."""
    return timeline(
        *(
            process(number, *(device(8 * number + one, (number + 1) * GIB) for one in range(devices)))
            for number in range(process_count)
        )
    )


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def page(report, *, width=80, encoding="utf-8", color=False, **options):
    screen = running_job(report, width=width, use_color=color, **{"height": None, **options})
    return text_of(screen, width=width, encoding=encoding, color=color)


def lines(report, **options):
    return [line.rstrip() for line in page(report, **options).splitlines()]


def test_a_page_has_the_devices_the_marks_and_the_allocation_sites_with_their_trend():
    assert (
        lines(timeline())
        == """\
memory/: 1 process, running, at 22:13:20
bytes in use on each device:
  22.0 GiB  cuda:0  28% of 80.0 GiB  peak 30.0 GiB
  70.0 GiB  cuda:1  88% of 80.0 GiB  peak 78.0 GiB
marks: eval 2 times, +1.0 GiB, at 22:13:13
arrays on cuda:0, step 1200, in eval
  12.0 GiB  train.py:14 step  float32[4,4]                       200 arrays
   3.0 GiB  train.py:5 step                 +1.0 GiB per minute  3 arrays
   1.0 GiB  train.py:40 step  float32[4,4]  -3.1 GiB per minute  2 arrays
   1.0 GiB  other arrays
   5.0 GiB  not in arrays                   +2.0 GiB per minute
""".splitlines()
    )


def test_a_small_page_leaves_out_rows_and_keeps_the_line_of_keys():
    shown = lines(timeline(), width=40, height=14, keys="q: quit   s: sort (bytes)")
    assert len(shown) == 14
    assert shown[-1] == "q: quit   s: sort (bytes)"
    assert any("more row" in line for line in shown)


def test_of_a_long_path_the_last_folder_is_named():
    report = timeline(folder="/home/me/experiments/2026/language-model/seed-1/memory/")
    assert lines(report, width=120)[0] == "memory: 1 process, running, at 22:13:20"


def test_of_many_devices_the_fullest_are_shown_and_the_range_of_the_others():
    shown = lines(large(), height=24)
    assert shown[0] == "memory/: 64 processes on 16 hosts, all running, at 22:13:20"
    assert shown[2] == "  64.0 GiB  63 cuda:504  80% of 80.0 GiB  peak 64.0 GiB  host-15"
    count = sum(" cuda:" in line and "peak" in line for line in shown)
    assert f"  {512 - count} more devices, 1.0 GiB to 63.0 GiB" in [
        line.replace("64.0", "63.0") for line in shown
    ]
    assert "arrays on cuda:0 of process 0, step 1200, in eval" in shown


@pytest.mark.parametrize("height", [10, 12, 15, 24])
def test_a_small_screen_has_the_fullest_device_and_the_largest_site(height):
    shown = lines(large(), height=height, keys="q: quit")
    assert any("63 cuda:504" in line for line in shown)
    assert any("train.py:14" in line for line in shown)


@pytest.mark.parametrize("report", [timeline(), large()], ids=["one process", "64 processes"])
def test_a_page_fits_exactly(report):
    wrong = [process(1, device(8, GIB, limit=None), host_name="größe" * 9, state="gone", message="x" * 99)]
    report = replace(report, processes=(*report.processes, *wrong), process_count=70)
    encodings = cycle(("utf-8", "ascii"))
    for (height, width), encoding in zip(product((1, 3, 10, 24, 60), (1, 30, 80)), encodings, strict=False):
        text = page(report, width=width, height=height, keys="q: quit", encoding=encoding)
        assert text.count("\n") + 1 == height
        assert max(map(cell_len, text.split("\n"))) <= width
        assert encoding == "utf-8" or text.isascii()


def test_without_a_limit_there_is_no_share():
    assert lines(timeline(process(0, device(0, GIB, limit=None))))[2] == "  1.0 GiB  cuda:0  peak 1.0 GiB"


def test_without_statistics_of_the_backend_the_bytes_are_those_in_arrays():
    report = timeline(process(0, device(0, GIB, limit=None), in_use_source="arrays"))
    assert lines(report)[1] == "bytes in arrays on each device:"


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("bytes", "14 5 40"), ("trend", "5 14 40"), ("name", "14 40 5")],
)
def test_allocation_sites_are_sorted_and_what_is_no_site_comes_last(sort, expected):
    rows = lines(timeline(), sort=sort)[-5:]
    assert " ".join(line.partition("train.py:")[2].split()[0] for line in rows[:3]) == expected
    assert ["other arrays" in rows[3], "not in arrays" in rows[4]] == [True, True]


def test_where_processes_stand_comes_before_the_devices():
    stall = RecordStall(
        time=AT,
        since=AT - 60,
        step=1199,
        origin=SourceLine(file="/home/me/data.py", line=41, function="make_array"),
    )
    waits = replace(stall, step=1200, origin=origin(88, "train"), waits_in="jax.block_until_ready")
    report = timeline(
        process(3, device(3, GIB), step=1199, stall=stall),
        *(process(number, device(number, GIB), stall=waits) for number in (0, 1, 2, 4, 5, 6, 7)),
        process_count=8,
    )
    words = (
        "process 3 has stood in make_array at data.py:41 since 22:12:20, step 1,199; "
        "7 processes wait in step 1,200"
    )
    assert lines(report, width=120)[1] == words
    assert " ".join(lines(report, width=60)[1:3]) == words
    for height in range(1, 40, 6):
        shown = lines(report, width=60, height=height)
        assert len(shown) <= height
        assert height <= 2 or shown[1].startswith("process 3 has stood in make_array")


def test_what_failed_ended_or_was_not_read_is_named():
    report = timeline(
        process(0, device(0, GIB)),
        process(1, device(8, GIB), state="gone"),
        process(2, device(16, GIB), state="raised", message="ValueError: größe"),
        process(3, device(24, GIB), state="not heard from"),
        process(4, device(32, GIB), state="exited"),
        process_count=8,
        out_of_memory=(TimelineOutOfMemory(process=2, time=AT - 3, message="x", requested_nbytes=8 * GIB),),
        unread=(UnreadRecord(name="a\x1b[31m.jsonl", reason="not a memory record"),),
    )
    shown = lines(report, width=140)
    assert shown[0].startswith(
        "memory/: 8 processes on 2 hosts, 1 running, 1 died, 1 failed, 1 not heard from, 1 exited, 3"
    )
    place = shown.index("process 2 ran out of memory at 22:13:17, 8.0 GiB requested")
    assert " ".join(shown[1:4]).startswith(
        "process 1 killed, or crashed, after 22:13:20, step 1,200 or later; process 2 ended at 22:13:20, step 1,200: "
        "ValueError: größe; process 4 ended at 22:13:20, step 1,200; processes 0,3 without a stall in step 1,200"
    )
    assert shown[place : place + 6] == [
        "process 2 ran out of memory at 22:13:17, 8.0 GiB requested",
        "process 1 was killed or crashed after 22:13:20 (process id 101 on host-0)",
        "process 2 ended with an exception at 22:13:20 (process id 102 on host-0): ValueError: größe",
        "process 3 was last heard from at 22:13:20 (process id 103 on host-0)",
        "process 4 exited at 22:13:20 (process id 104 on host-1)",
        r"a\x1b[31m.jsonl: not a memory record",
    ]
    assert re.search(r"\d more of such lines", page(report, height=24))


def test_untrusted_names_are_printed_and_never_interpreted():
    hostile = "[red]\x1b[31m</pre>\n"
    report = timeline(
        process(0, replace(device(0, GIB), name=hostile), mark=hostile),
        folder=hostile,
        series=(series(1, 0, GIB, origin=origin(1, hostile), content=None),),
    )
    text = page(report, height=24)
    assert "\x1b" not in text
    assert r"[red]\x1b[31m</pre>\n" in text


def test_arrays_without_an_allocation_site_have_their_type_and_small_changes_are_left_out():
    only = series(1, GIB, GIB, **{**REST, "content": "bf16[8]"}, nbytes_per_minute=0.3)
    assert lines(timeline(series=(only,), marks=()))[-1] == "  1.0 GiB  bf16[8]"


def test_a_device_without_arrays_says_so():
    assert lines(timeline(series=(), marks=()))[-1] == "arrays on cuda:0, step 1200, in eval: none"


def test_a_first_sample_has_a_page_without_a_trend():
    first = tuple(replace(one, nbytes=one.nbytes[:1], nbytes_per_minute=None) for one in SERIES)
    report = timeline(series=first, times=(AT,), steps=(None,), in_use=(1,))
    [row] = [line for line in lines(report) if "train.py:5" in line]
    assert row.split() == ["2.0", "GiB", "train.py:5", "step", "3", "arrays"]


def test_each_run_of_a_process_has_its_lines():
    runs = (
        process(
            0,
            device(0, (1 + run) * GIB),
            run=run,
            run_count=3,
            pid=100 + run,
            job=f"123_{run}",
            host_name="h",
        )
        for run in range(3)
    )
    first, second, last = runs
    stopped = replace(last, state="stopped")
    error = TimelineOutOfMemory(process=0, run=1, time=AT, message="no")
    report = timeline(first, second, stopped, run=1, process_count=1, out_of_memory=(error,))
    shown = lines(report, width=100)
    assert shown[0].startswith("memory/: 1 process in 3 runs, 2 running, 1 stopped, at ")
    text = "\n".join(shown)
    assert re.findall(r"0 run \d cuda:0", text) == [f"0 run {run} cuda:0" for run in range(3)]
    assert "process 0 (run 1: host h, pid 101, job 123_1) ran out of memory at 22:13:20" in shown
    assert "process 0 (run 2: host h, pid 102, job 123_2) stopped recording at 22:13:20" in shown
    title = "arrays on cuda:0 of process 0 (run 1: host h, pid 101, job 123_1), step 1200, in eval"
    assert title in " ".join(text.split())
