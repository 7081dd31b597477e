"""Text, SVG and HTML of a timeline."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jax_array_info import print_timeline, timeline_report, to_html, to_svg
from jax_array_info.reports import TimelineReport
from tests.core.jobs.timeline.samples import (
    START,
    record_group,
    record_mark,
    record_start,
    samples_of,
    write_record,
)

pytestmark = pytest.mark.newest

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


def test_a_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``print_timeline`` takes its number."""
    for run in range(2):
        start = record_start(started=START + run / 10, pid=run)
        samples = samples_of([LEAK], {1: lambda _, run=run: 1 + run}, 5)
        write_record(tmp_path, [start, LEAK, *samples], f"process-0-{run}.jsonl")
    print_timeline(tmp_path, process=0, run=0)
    assert "\nhighest of 5 samples: 1.0 MiB " in capsys.readouterr().out
