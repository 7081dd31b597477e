"""No peak and no rate is said that was not measured: laws over random samples."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core import timeline_report
from jax_array_info_core.base.quantities import format_bytes
from jax_array_info_core.facts.pages.timelines import timeline_page
from jax_array_info_core.facts.reports.record import RecordSample
from jax_array_info_core.facts.reports.timeline import LEAST_SAMPLES
from jax_array_info_core.reports import TimelineReport

from .samples import MIB, START, record_group, record_start, write_record

pytestmark = pytest.mark.newest

COUNTS = st.one_of(
    st.lists(st.integers(0, 50), min_size=1, max_size=100),
    st.lists(st.integers(0, 50), min_size=1, max_size=100).map(sorted),
)


def report_of_counts(
    folder: Path, counts: Sequence[int], *, every: float = 1.0, peak: int | None = None, sites: int = 1
) -> TimelineReport:
    """Return the report on samples with so many arrays of one MiB, of several lines.

    The peak of the backend is between the first two.
    """
    groups = [record_group(number, 7 + number) for number in range(sites)]
    samples = []
    for number, count in enumerate(counts):
        of_site = [count // sites + (site < count % sites) for site in range(sites)]
        alive = [site for site in range(sites) if of_site[site]]
        samples.append(
            RecordSample(
                time=START + every * number,
                step=number,
                in_use=(count * MIB,),
                peak=() if peak is None else (max(*counts[: number + 1], peak if number else 0, 0) * MIB,),
                groups=tuple(alive),
                counts=tuple(of_site[site] for site in alive),
            )
        )
    source = "arrays" if peak is None else "allocator"
    write_record(folder, [record_start(in_use_source=source, every=every), *groups, *samples])
    return timeline_report(folder)


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.sampled_from([0.1, 1.0, 30.0]), st.none() | st.integers(0, 90), st.integers(1, 3))
def test_what_is_printed_was_measured(counts: list[int], every: float, peak: int | None, sites: int) -> None:
    """The bytes are those of a sample, or of the backend; only the backend knows a peak."""
    with tempfile.TemporaryDirectory() as folder:
        report = report_of_counts(Path(folder), counts, every=every, peak=peak, sites=sites)
    most = max(*counts, peak or 0 if len(counts) > 1 else 0, 0)
    [line] = [one for one in report.answer if " on cuda:0 at " in one or " on cuda:0 between " in one]
    begin = (
        "peak" if peak is not None else f"highest of {len(counts)} sample{'s' if len(counts) > 1 else ''}:"
    )
    assert line.startswith(f"{begin} {format_bytes(most * MIB)} of 16.0 GiB")
    text = str([*timeline_page(report)])
    assert peak is not None or not re.search(r"\bpeak\b(?!')", "\n".join(report.answer))
    if len(counts) < LEAST_SAMPLES:
        assert "per minute" not in text
        assert report.growth == ()
        assert all(series.nbytes_per_minute is None for series in report.series)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 50), st.integers(0, 40))
def test_what_is_constant_after_the_first_third_has_no_rate(
    starting: list[int], count: int, more: int
) -> None:
    """However it began."""
    counts = [*starting, *[count] * (max(2 * len(starting), LEAST_SAMPLES) + more)]
    with tempfile.TemporaryDirectory() as folder:
        report = report_of_counts(Path(folder), counts)
    assert not any("growing:" in line or "per minute" in line for line in report.answer)
    assert all(not series.nbytes_per_minute for series in report.series)


def test_a_rate_is_that_after_the_first_third(tmp_path: Path) -> None:
    report = report_of_counts(tmp_path, [*range(0, 400, 40), *range(400, 440, 2)])
    [series] = report.series
    assert series.nbytes_per_minute == pytest.approx(120 * MIB)


@pytest.mark.parametrize(
    ("first", "last", "own", "words"),
    [
        (
            160,
            400,
            MIB,
            "400.0 MiB, +240.0 MiB since its first sample; the recorder's table of arrays has 1.0 MiB",
        ),
        (400, 160, 0, "160.0 MiB, -240.0 MiB since its first sample"),
        (400, 400, None, "400.0 MiB, 0.0 B since its first sample"),
        (None, None, None, ""),
    ],
)
def test_the_memory_of_the_process_stands_beside_that_of_the_devices(
    tmp_path: Path, first: int | None, last: int | None, own: int | None, words: str
) -> None:
    """Where it is known: older records and other systems have none."""
    numbers = [None, first, 300, last] if last else [None] * 4
    sample = RecordSample(time=START, in_use=(MIB,), own_nbytes=own)
    lines = [
        replace(sample, time=START + number, process_nbytes=None if mib is None else mib * MIB)
        for number, mib in enumerate(numbers)
    ]
    write_record(tmp_path, [record_start(), *lines])
    report = timeline_report(tmp_path)
    assert report.processes[0].host_words == words
    assert (f"memory of the process on its host: {words}" in str([*timeline_page(report)])) == bool(words)


def test_a_process_that_starts_again_has_its_own_first_sample(tmp_path: Path) -> None:
    for number, mib in enumerate((900, 100)):
        start = record_start(started=START + 60 * number, time=START + 60 * number, job="7", pid=number)
        sample = RecordSample(time=START + 60 * number, in_use=(MIB,), process_nbytes=mib * MIB)
        write_record(tmp_path, [start, sample], f"process-0-{number}.jsonl")
    [process] = timeline_report(tmp_path).processes
    assert process.host_words == "100.0 MiB, 0.0 B since its first sample"
