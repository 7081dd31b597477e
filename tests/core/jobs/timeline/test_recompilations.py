"""The recompilations of a record: alike ones of all processes are one."""

from dataclasses import replace

import pytest

from jax_array_info_core import timeline_report
from jax_array_info_core.facts.reports.record import RecordCompilation
from jax_array_info_core.reports import Origin

from .samples import START, report_of, segment, write_record

pytestmark = pytest.mark.newest

LINE = RecordCompilation(
    time=START + 11,
    function="step",
    origin=Origin(file="/home/me/train.py", line=88, function="train"),
    seconds=40.0,
    reason="x: shape (8,) became (7,)",
    step=12,
)


def test_alike_recompilations_are_one_with_the_process_of_the_longest(tmp_path):
    """The count and the seconds are those of one process, which all wait for."""
    other = replace(LINE, reason="rate: weak_type True became False", time=START + 10)
    for process, lines in (
        (0, [LINE, replace(LINE, seconds=1.5)]),
        (1, [replace(LINE, seconds=44.0), other]),
    ):
        write_record(
            tmp_path,
            [*segment(process=process), *sorted(lines, key=lambda line: line.time)],
            f"process-{process}-a.jsonl",
        )
    first, second = timeline_report(tmp_path).recompilations
    assert (first.reason, first.processes, first.count, first.seconds) == (other.reason, (1,), 1, 40.0)
    assert (second.processes, second.count, second.seconds) == ((0, 1), 2, 44.0)
    assert (second.time, second.step, second.origin) == (LINE.time, 12, LINE.origin)


def test_the_last_thousand_recompilations_of_a_process_are_kept(tmp_path):
    lines = [replace(LINE, time=START + 2 + number / 1000, reason=str(number)) for number in range(1002)]
    found = report_of(tmp_path, *segment(length=2)[1:], *lines).recompilations
    assert [one.reason for one in found] == [str(number) for number in range(2, 1002)]


def test_a_long_text_of_a_record_is_clipped(tmp_path):
    lines = [replace(LINE, function="f" * 10_000, reason="r" * 10_000)]
    (found,) = report_of(tmp_path, *segment(length=2)[1:], *lines).recompilations
    assert max(len(found.function), len(found.reason)) < 2000


def test_a_clock_that_is_set_back_moves_recompilations_too(tmp_path):
    early = replace(LINE, time=START - 100)
    (found,) = report_of(tmp_path, *segment(length=5)[1:], early).recompilations
    assert found.time == START + 4
