"""Text, SVG and HTML of a timeline."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jax_array_info import print_timeline, timeline_report, to_html, to_svg, to_text
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import TimelineReport
from tests.core.timeline.samples import (
    MIB,
    START,
    record_group,
    record_mark,
    record_start,
    samples_of,
    write_record,
)

pytestmark = pytest.mark.oldest_and_newest

WEIGHTS, LEAK, BATCH = record_group(0, 3, mib=64), record_group(1, 7), record_group(2, 9, mib=4)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are printed in the time zone of the machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def report(tmp_path: Path) -> TimelineReport:
    """A leak below an evaluation each minute, for five minutes."""
    groups = [WEIGHTS, LEAK, BATCH]
    counts = {
        0: lambda _: 2,
        1: lambda number: number // 3,
        2: lambda number: 20 if number % 60 >= 40 else 0,
    }
    samples = samples_of(groups, counts, 300, steps_per_sample=4)
    lines: list[object] = [record_start(), *groups, record_mark(0, "train", in_use=samples[0].in_use)]
    for number, sample in enumerate(samples):
        if number % 60 == 40:
            lines.append(record_mark(number - 0.1, "eval", in_use=samples[number - 1].in_use))
        if number % 60 == 0 and number:
            lines.append(record_mark(number - 0.1, "eval", is_end=True, in_use=sample.in_use))
        lines.append(sample)
    write_record(tmp_path, lines)
    return timeline_report(tmp_path)


def test_the_report_is_printed(
    report: TimelineReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``print_timeline`` takes a folder or a report."""
    print_timeline(tmp_path, max_rows=1)
    printed = capsys.readouterr().out
    assert "growing: train.py:7 step float32[262144,2]" in printed
    assert "2 more" in printed
    print_timeline(replace(report, read_at=0.0), max_rows=1)
    assert capsys.readouterr().out == printed


def test_svg_and_html_have_the_areas(report: TimelineReport) -> None:
    """The picture has an area for each allocation site, marks, the peak and tooltips without scripts."""
    for text in (to_svg(report), to_html(report)):
        assert "script" not in text
        assert "train.py:7 step" in text
        assert "eval" in text
        assert len(text) < 200_000
    titles = [one.text for one in ElementTree.fromstring(to_svg(report)).iter() if one.tag.endswith("title")]
    assert any(title and "step 1,188" in title for title in titles)


def test_a_peak_between_samples_has_both_times(report: TimelineReport) -> None:
    """What was alive is that of the sample next to it."""
    assert report.peak is not None
    peak = replace(report.peak, nbytes=400 * MIB, since=START + 10, time=START + 11, sampled_at=START + 10)
    text = to_text(replace(report, peak=peak))
    assert "between 00:00:10 and 00:00:11" in text
    assert "alive at 00:00:10, the sample next to the peak" in text.replace("\n", " ")


def test_a_record_of_several_days_has_dates(report: TimelineReport) -> None:
    """Times of another day have their date."""
    times = tuple(START + 1000 * number for number in range(len(report.times)))
    text = to_text(replace(report, times=times))
    assert "2025-11-26 00:00:00 to 2025-11-29" in text
    assert "11-27" in text


def test_a_long_error_leaves_room_for_the_table(report: TimelineReport) -> None:
    """The table has the state, and a line below it the start of the error."""
    failed = replace(report.processes[0], process=1, state="raised", message="ValueError: " + "no " * 900)
    two = replace(report, processes=(report.processes[0], failed), process_count=2)
    lines = text_of(render(two, max_rows=None)).splitlines()
    assert any(re.search(r"│ +1 │ +307\.0 MiB", line) for line in lines)
    assert max(map(len, lines)) <= 80
    assert sum("no no" in line for line in lines) == 2


def test_rows_that_are_left_out_are_summed(report: TimelineReport) -> None:
    """The last row has their bytes and their arrays."""
    shown = text_of(render(report, width=80, max_rows=1))
    assert re.search(r"│ 128\.0 MiB │ +2 │ float32", shown)
    assert re.search(r"│ 179\.0 MiB │ +119 │ 2 more", shown)
    with pytest.raises(ValueError, match="max_rows must be at least 0"):
        render(report, max_rows=-1)
    with pytest.raises(TypeError, match="max_rows must be an integer"):
        render(report, max_rows="1")


def test_a_report_without_samples() -> None:
    """There is nothing to draw."""
    empty = TimelineReport(folder="memory")
    assert to_text(empty).strip() == "no samples"
    assert "no samples" in to_svg(empty)


def test_runs_of_a_process_are_told_apart(report: TimelineReport) -> None:
    """The first lines name the run, and the table has its host, process id and job."""
    first = replace(report.processes[0], run_count=2, job="123_0", host_name="h")
    other = replace(first, run=1, pid=18, job="123_1", state="raised", message="ValueError: no")
    several = replace(report, processes=(first, other), process_count=1)
    lines = [" ".join(line.split()) for line in to_text(several, width=200).splitlines()]
    name = "process 0 (run 0: host h, pid 17, job 123_0)"
    assert any(f" on cuda:0 of {name} at " in line for line in lines)
    assert any(line.endswith(f", {name} {first.ending}") for line in lines)
    assert any(line.startswith("┃ process ┃ run ┃ host ┃ pid ┃ job ┃ peak ┃") for line in lines)
    assert any(line.startswith("│ 0 │ 1 │ h │ 18 │ 123_1 │") for line in lines)
    assert "process 0 (run 1: host h, pid 18, job 123_1) ended with ValueError: no" in lines


def test_a_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``print_timeline`` takes its number."""
    for run in range(2):
        start = record_start(started=START + run / 10, pid=run)
        samples = samples_of([LEAK], {1: lambda _, run=run: 1 + run}, 5)
        write_record(tmp_path, [start, LEAK, *samples], f"process-0-{run}.jsonl")
    print_timeline(tmp_path, process=0, run=0)
    assert capsys.readouterr().out.startswith("peak 1.0 MiB ")
