"""Reports on programs whose JSON contradicts itself."""

import json
from dataclasses import replace

import pytest

from jax_array_info_core import from_json, to_json
from jax_array_info_core.errors import ReportFormatError
from tests.sample_programs import DIFFERENCE, REPORTS, SCAN, STEP, TOO_LARGE

pytestmark = pytest.mark.oldest_and_newest


def changed(report, *keys, to):
    """Return the JSON of a report with the value at a path of keys replaced."""
    fields = json.loads(to_json(report))
    part = fields
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return json.dumps(fields)


@pytest.mark.parametrize("report", REPORTS, ids=["step", "scan", "too large", "difference", "equal"])
def test_a_report_without_contradictions_is_read(report):
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (changed(STEP, "sent", "nbytes", to=1), "1 bytes sent and 0 unknown, but collectives with 2883584"),
        (changed(SCAN, "sent", "unknown_count", to=0), "bytes sent and 0 unknown, but collectives with"),
        (changed(STEP, "sent", "by_kind", 0, "nbytes", to=1), "sent.by_kind is not the sum"),
        (changed(STEP, "sent", "by_axes", to=[]), "sent.by_axes is not the sum"),
        (changed(STEP, "sent", "by_kind_and_axes", 0, "axes", to=None), "sent.by_kind_and_axes is not"),
        (changed(STEP, "sent", "by_line", 0, "origin", to=None), "sent.by_line is not the sum"),
        (changed(STEP, "sent", "by_phase", 0, "phase", to="forward"), "sent.by_phase is not the sum"),
        (changed(STEP, "collectives", 0, "sent_nbytes", to=-1), "sent_nbytes is -1, less than 0"),
        (changed(STEP, "collectives", 0, "count", to=0), "count is 0, less than 1"),
        (changed(STEP, "collectives", 0, "group_size", to=0), "group_size is 0, less than 1"),
        (changed(STEP, "collectives", 0, "times", to=-1), "times is -1, less than 0"),
        (changed(STEP, "collectives", 0, "at_most", to=3), "at_most with a known number of executions"),
        (changed(STEP, "collectives", 0, "shape", to=[-1]), "an axis of negative length"),
        (changed(STEP, "mesh", "names", to=["a", "b", "c"]), "a spec with|the mesh axis 'fsdp' over a mesh"),
        (changed(STEP, "mesh", to=None), "the mesh axis 'fsdp' over a mesh with"),
        (changed(STEP, "device_count", to=0), "device_count is 0, less than 1"),
        (changed(STEP, "dot_flops", to=-1), "dot_flops is -1, less than 0"),
        (changed(SCAN, "dot_flops", to=1), "dot_flops without operations that are not counted"),
        (changed(STEP, "collectives", 0, "depends_on_data", to=True), "known bytes that depend on data"),
        (changed(STEP, "unread_local", to=["x"]), "unread lines that send nothing, which are not among"),
        (changed(STEP, "arguments", 0, "nbytes", to=-1), "nbytes is -1, less than 0"),
        (changed(STEP, "arguments", 0, "path", to="x"), "2 arguments have the path 'x'"),
        (changed(STEP, "outputs", 0, "path", to="outputs/wo"), "2 outputs have the path 'outputs/wo'"),
        (changed(STEP, "outputs", 0, "like", to="nothing"), "is like 'nothing', which is not an argument"),
        (changed(STEP, "outputs", 0, "replaces", to="w"), "replaces 'w', which is not an argument"),
        (changed(STEP, "outputs", 0, "lost_axes", to=[]), "lost axes without an argument"),
        (changed(SCAN, "donations", 0, "path", to="y"), "the donation 'y' is not an argument"),
        (changed(SCAN, "donations", 20, "output", to="y"), "'y' is not an output"),
        (changed(SCAN, "donations", 20, "reason", to="unused"), "is reused, with a reason why not"),
        (changed(SCAN, "constraints", 0, "count", to=0), "count is 0, less than 1"),
        (changed(SCAN, "rematerializations", 0, "nbytes", to=-1), "nbytes is -1, less than 0"),
        (changed(SCAN, "memory", "peak_nbytes", to=-1), "peak_nbytes is -1, less than 0"),
        (changed(SCAN, "memory", "temporaries", 0, "count", to=0), "count is 0, less than 1"),
        (changed(TOO_LARGE, "memory", to={}), "the memory of a program that does not fit"),
        (changed(TOO_LARGE, "out_of_memory", "required_nbytes", to=-1), "required_nbytes is -1"),
        (changed(DIFFERENCE, "sent", 0, "before", to=-1), "before is -1, less than 0"),
        (changed(DIFFERENCE, "figures", 0, "after", to=-1), "after is -1, less than 0"),
        (changed(DIFFERENCE, "shardings", 0, "path", to="x"), "2 leaves have the path 'x'"),
        (changed(DIFFERENCE, "donations", 0, "path", to="opt"), "2 donations have the path 'opt'"),
        (changed(DIFFERENCE, "donations", 0, "is_absent_before", to=True), "of an argument that is absent"),
    ],
)
def test_contradictions_are_named(text, problem):
    with pytest.raises(ReportFormatError, match=problem):
        from_json(text)


def test_a_program_that_does_not_fit_a_gpu_has_its_memory():
    """The compiler for GPUs refuses no program."""
    report = replace(TOO_LARGE, platform="gpu", memory=SCAN.memory)
    assert from_json(to_json(report)) == report
