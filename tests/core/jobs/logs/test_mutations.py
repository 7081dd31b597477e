"""Samples behind prefixes, between other lines and cut off: the kind or "not interpreted", never silence."""

import json
import os

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jax_array_info_core import log_report
from jax_array_info_core.xla.logs.lines import read_line
from tests.core.jobs.logs.samples import SAMPLES

pytestmark = pytest.mark.newest

IS_LONG = "JAI_FUZZ" in os.environ
"""The session fuzz tries other examples in each run."""
EXAMPLES = settings(
    max_examples=200 if IS_LONG else 5,
    derandomize=not IS_LONG,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)

RANKS = ["[{}]: ", "[{}] ", "{}: ", "worker-{}: ", "[rank{}]: ", "train-{}: ", "node-{} | "]
PREFIXES = {
    "none": "{}",
    "a rank": "[3]: {}",
    "srun": "3: {}",
    "a worker": "worker-12: {}",
    "an engine": "(EngineCore_DP0 pid=26077) {}",
    "colors": "\x1b[31m{}\x1b[0m",
    "a time": "2026-09-20T09:00:00.123Z {}",
    "a time in brackets": "[2026-09-20 09:00:00] {}",
    "a time and a rank": "2026-09-20T09:00:00Z [3]: {}",
    "colors and a rank": "\x1b[2m[3]: \x1b[0m{}",
}
HEALTHY = [
    "step {} loss 2.31",
    "INFO:main:step {} loss 2.31",
    "epoch {} of 9",
    "WARNING:absl:slow batch {}",
    "ValueErrors so far: 0",
    "",
    "train:  10%|#     | {}/100 [00:10<01:30,  1.00it/s, loss=2.1, errors=0]",
]


def kubernetes(line):
    """Return a line as a collector of logs in a cluster stores it."""
    return json.dumps(
        {"insertId": "1x", "severity": "ERROR", "textPayload": line, "labels": {"pod": "train-3"}}
    )


def written(line, sample):
    """Return a line as glog writes it; unchanged if it has a level."""
    level = "W" if sample.role == "warning" else "E"
    return line if read_line(line.encode()).level else f"{level}0920 09:00:00.000001     140 x.cc:1] {line}"


def lines_of(sample):
    return sample.log.removesuffix("\n").split("\n")


def assert_read(report, sample, line, rank=None):
    """Assert that a report has the kind of a sample, at a line and in a rank.

    Between lines of many ranks, numbers of later lines may be absent, and the need is at least what is known.
    """
    found = [one for one in report.findings if one.kind == sample.kind]
    assert found, (report.headline, [one.kind for one in report.findings])
    assert (found[0].line, found[0].rank, found[0].role) == (line, sample.named or rank, sample.role)
    assert report.is_fatal == sample.is_fatal, report.headline
    numbers = dict(found[0].numbers)
    if rank is None:
        assert numbers == sample.numbers
    else:
        assert numbers.pop("needed_nbytes", 0) <= sample.numbers.get("needed_nbytes", 0)
        assert numbers.items() <= sample.numbers.items()


def prefixed(sample, data, before):
    """Each line has a prefix, and the lines end as on Windows."""
    prefix = data.draw(st.sampled_from([*PREFIXES, "kubernetes"]))
    wrap = kubernetes if prefix == "kubernetes" else PREFIXES[prefix].format
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    lines = [wrap(line) for line in (*before, *lines_of(sample))]
    report = log_report([f"{line}{end}" for line in lines])
    assert report.line_count == len(lines)
    assert_read(report, sample, len(before) + sample.line)


def after_a_progress_bar(sample, data, before):
    """The failure begins in the line of a progress bar."""
    lines = lines_of(sample)
    lines[sample.line - 1] = f"train:  10%|#     | 10/100 [00:10<01:30]\r{lines[sample.line - 1]}"
    assert_read(log_report([*before, *lines]), sample, len(before) + sample.line)


def with_a_level(sample, data, before):
    """A logger writes the line."""
    lines = lines_of(sample)
    lines[sample.line - 1] = written(lines[sample.line - 1], sample)
    assert_read(log_report([*before, *lines]), sample, len(before) + sample.line)


def interleaved(sample, data, before):
    """Lines of healthy ranks are between its lines."""
    prefix = data.draw(st.sampled_from(RANKS))
    lines, line = [f"{prefix.format(rank)}step 0" for rank in (0, 1, 3)], 0
    for number, text in enumerate(lines_of(sample), 1):
        for rank in data.draw(st.lists(st.sampled_from([0, 1, 17]), max_size=3)):
            lines.append(prefix.format(rank) + data.draw(st.sampled_from(HEALTHY[:4])).format(number))
        lines.append(prefix.format(3) + text)
        if number == sample.line:
            line = len(lines)
    report = log_report(lines)
    assert_read(report, sample, line, "3")
    assert "3" in {one.rank for one in report.ranks}


def cut(sample, data, before):
    """The log ends at a line's end after the beginning of the failure."""
    lines = lines_of(sample)
    kept = data.draw(st.integers(sample.line, len(lines)))
    prefix = PREFIXES[data.draw(st.sampled_from([*PREFIXES]))]
    report = log_report([prefix.format(line) for line in (*before, *lines[:kept])])
    assert report.findings, report.answer
    assert report.is_fatal or not sample.is_fatal or kept < len(lines)


def cut_inside(sample, data, before):
    """The log ends inside the line of an exception, as on a full disk."""
    lines = lines_of(sample)
    line = lines[sample.line - 1]
    name = line.find(": ")
    if sample.role == "warning" or name < 0 or not line[:name].endswith(("Error", "EXHAUSTED")):
        return
    kept = data.draw(st.integers(name + 3, len(line)))
    report = log_report([*before, *lines[: sample.line - 1], line[:kept]])
    assert report.is_fatal
    assert report.findings[0].line in {len(before) + place for place in range(1, sample.line + 1)}


MUTATIONS = (prefixed, after_a_progress_bar, with_a_level, interleaved, cut, cut_inside)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: f"{one.kind}: {one.text[:40]}")
@EXAMPLES
@given(data=st.data())
def test_a_mutated_sample_is_read(sample, data):
    mutation = data.draw(st.sampled_from(MUTATIONS))
    before = data.draw(st.lists(st.sampled_from(HEALTHY), max_size=5))
    mutation(sample, data, [line.format(number) for number, line in enumerate(before)])
