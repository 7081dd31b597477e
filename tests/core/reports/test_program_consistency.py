"""Reports on programs whose JSON contradicts itself."""

import json
from dataclasses import replace

import pytest

from jax_array_info_core import from_json, to_json
from jax_array_info_core.errors import ReportFormatError
from tests.sample_programs import DIFFERENCE, SCAN, STEP, TOO_LARGE

pytestmark = pytest.mark.oldest_and_newest


def changed(report, *keys, to):
    """Return the JSON of a report with the value at a path of keys replaced."""
    fields = json.loads(to_json(report))
    part = fields
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (changed(STEP, "collectives", 0, "sent_nbytes", to=-1), r"`int` >= 0 - at `\$\.collectives\[0\]"),
        (changed(STEP, "collectives", 0, "count", to=0), r"`int` >= 1 - at `\$\.collectives\[0\]\.count"),
        (changed(STEP, "collectives", 0, "shape", to=[-1]), r"`int` >= 0 - at `\$\.collectives\[0\]\.shape"),
        (changed(STEP, "device_count", to=2**63), r"`int` <= 9223372036854775807 - at `\$\.device_count"),
        (changed(STEP, "arguments", 0, "path", to="x"), "2 arguments have the path 'x'"),
        (changed(STEP, "outputs", 0, "path", to="outputs/wo"), "2 outputs have the path 'outputs/wo'"),
        (changed(SCAN, "memory", "peak_nbytes", to=-1), r"`int` >= 0 - at `\$\.memory\.peak_nbytes"),
        (changed(DIFFERENCE, "figures", 0, "after", to=-1), r"`int` >= 0 - at `\$\.figures\[0\]\.after"),
    ],
)
def test_contradictions_are_named(text, problem):
    with pytest.raises(ReportFormatError, match=problem):
        from_json(text)


def test_a_contradiction_cannot_be_made_either():
    value = STEP.arguments[0]
    with pytest.raises(ValueError, match=f"2 arguments have the path {value.path!r}"):
        replace(STEP, arguments=(value, value))


def test_a_program_that_does_not_fit_a_gpu_has_its_memory():
    """The compiler for GPUs refuses no program."""
    report = replace(TOO_LARGE, platform="gpu", memory=SCAN.memory)
    assert from_json(to_json(report)) == report
