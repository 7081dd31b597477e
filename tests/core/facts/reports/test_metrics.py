"""Tests of the metrics of reports: their names, which never change, and their values."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from docs_hooks.metric_page import metric_page
from jax_array_info_core import (
    array_report,
    from_json,
    json_schema,
    live_array_report,
    metrics,
    program_report,
    track_arrays,
    tree_report,
)
from jax_array_info_core.errors import ReportFormatError, UnsupportedValueError
from jax_array_info_core.facts.reports.metrics import METRICS
from jax_array_info_core.facts.reports.timeline import TimelineGrowth, TimelineOutOfMemory, TimelinePeak
from jax_array_info_core.facts.reports.timeline_process import TimelineDevice, TimelineProcess
from jax_array_info_core.jobs.hosts.compare import Source, hosts_of
from jax_array_info_core.jobs.hosts.summaries import arrays_of
from jax_array_info_core.reports import (
    DeviceReport,
    DevicesReport,
    HostsReport,
    ProgramReport,
    SentTotals,
    TimelineReport,
    UnreadHost,
    WorkShare,
)
from tests.core.jobs.hosts import samples
from tests.schemas import admitted_by

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[4]
NAMES = [
    "bytes_in_use/device_{device}",
    "peak_bytes_in_use/device_{device}",
    "bytes_limit/device_{device}",
    "array_bytes/device_{device}",
    "unexplained_bytes/device_{device}",
    "live_arrays/count",
    "live_arrays/bytes/device_{device}",
    "live_arrays/host_bytes/device_{device}",
    "tree/leaf_count",
    "tree/element_count",
    "tree/parameter_count",
    "tree/bytes",
    "tree/fullest_device_bytes",
    "tree/emptiest_device_bytes",
    "tree/avoidable_bytes",
    "tree/host_bytes",
    "tree/numpy_bytes",
    "tree/foreign_bytes",
    "tree/nan_count",
    "tree/infinite_count",
    "program/argument_bytes",
    "program/output_bytes",
    "program/alias_bytes",
    "program/temporary_bytes",
    "program/code_bytes",
    "program/needed_bytes",
    "program/available_bytes",
    "program/saved_bytes",
    "program/live_at_backward_bytes",
    "program/host_bytes",
    "program/sent_bytes",
    "program/collective_count",
    "program/dot_flops",
    "program/work_share",
    "program/repeated_flops",
    "program/finding_count",
    "hosts/process_count",
    "hosts/missing_count",
    "hosts/unread_count",
    "hosts/different_count",
    "hosts/fullest_bytes",
    "hosts/emptiest_bytes",
    "hosts/peak_bytes",
    "timeline/bytes_in_use",
    "timeline/peak_bytes",
    "timeline/growth_bytes_per_minute",
    "timeline/out_of_memory_count",
    "timeline/process_count",
    "timeline/running_count",
    "growth/step_count",
    "growth/array_count",
    "growth/added_array_count",
    "growth/added_bytes/device_{device}",
    "growth/growing_count",
]
"""All names of earlier versions. Dashboards refer to them: add names, and never change or remove one."""

DEVICE = DeviceReport(id=0, name="cuda:0", platform="gpu", kind="a GPU", process=0, is_local=True)


def timeline(**fields):
    device = TimelineDevice(id=3, name="cuda:3", bytes_in_use=7, peak_nbytes=9)
    process = TimelineProcess(
        process=1,
        host_name="a",
        pid=1,
        platform="gpu",
        start=0,
        end=2,
        every=1,
        state="running",
        devices=(device,),
    )
    gone = replace(process, process=0, state="gone")
    return TimelineReport(folder="m", processes=(gone, process), process_count=2, **fields)


def test_no_name_of_an_earlier_version_changes_and_the_page_has_all():
    assert [metric.name for metric in METRICS] == NAMES
    assert (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8") == metric_page()


def test_trackers_accept_the_names_and_no_two_become_the_same_with_underscores():
    assert all(re.fullmatch(r"[a-z_]+(/[a-z_]+(\{device\})?)*", name) for name in NAMES)
    assert len({name.replace("/", "_") for name in NAMES}) == len(NAMES)
    assert all(re.search(metric.unit.split()[0].rstrip("s"), metric.name) for metric in METRICS)


def test_devices_have_the_figures_that_their_backend_reports():
    known = replace(DEVICE, bytes_in_use=5, peak_bytes_in_use=6, bytes_limit=8, array_nbytes=2)
    other = replace(DEVICE, id=131072, is_local=False)
    assert metrics(DevicesReport(devices=(replace(known, unexplained_nbytes=3), other))) == {
        "jax_array_info/bytes_in_use/device_0": 5.0,
        "jax_array_info/peak_bytes_in_use/device_0": 6.0,
        "jax_array_info/bytes_limit/device_0": 8.0,
        "jax_array_info/array_bytes/device_0": 2.0,
        "jax_array_info/unexplained_bytes/device_0": 3.0,
    }
    assert metrics(DevicesReport(devices=(other,))) == metrics(DevicesReport(devices=())) == {}


def test_live_arrays_have_their_number_and_the_bytes_of_each_device():
    report = replace(samples.live(samples.group(), nbytes=64), host_nbytes=((0, 32),))
    assert metrics(report, prefix="") == {
        "live_arrays/count": 1.0,
        "live_arrays/bytes/device_0": 64.0,
        "live_arrays/host_bytes/device_0": 32.0,
    }
    kept = jnp.zeros(3)
    assert metrics(live_array_report())["jax_array_info/live_arrays/count"] >= kept.ndim


def test_a_tree_has_its_bytes_and_with_statistics_its_nans():
    tree = {"params": {"w": jnp.array([[1.0, jnp.nan], [jnp.inf, jnp.nan]])}, "n": np.zeros(3, np.int8)}
    names = metrics(tree_report(tree, statistics=True), prefix="t")
    assert names["t/tree/leaf_count"] == 2
    assert names["t/tree/bytes"] == names["t/tree/fullest_device_bytes"] == 16
    assert (names["t/tree/parameter_count"], names["t/tree/element_count"]) == (4, 7)
    assert names["t/tree/numpy_bytes"] == 3
    assert (names["t/tree/nan_count"], names["t/tree/infinite_count"]) == (2, 1)
    assert not {"t/tree/nan_count", "t/tree/infinite_count"} & metrics(tree_report(tree), prefix="t").keys()


def test_totals_per_device_of_a_tree_with_unknown_leaves_are_absent():
    traced = []
    jax.jit(lambda x: traced.append(tree_report({"w": x})) or x)(jnp.zeros(4))
    names = metrics(traced[0], prefix="")
    assert traced[0].unknown_count == 1
    assert names["tree/leaf_count"] == 1
    assert not [name for name in names if "device" in name]


def test_an_empty_tree_has_zeros_that_are_known():
    names = metrics(tree_report({}), prefix="")
    assert names["tree/bytes"] == names["tree/leaf_count"] == 0
    assert "tree/parameter_count" not in names


def test_a_program_has_its_memory_and_flops():
    x = jnp.zeros((8, 8))
    names = metrics(program_report(jax.jit(lambda x: x @ x), x), prefix="")
    assert (names["program/argument_bytes"], names["program/output_bytes"]) == (256, 256)
    assert names["program/dot_flops"] == 2 * 8**3
    assert names["program/sent_bytes"] == names["program/collective_count"] == 0
    assert "program/available_bytes" not in names


def test_the_share_of_work_is_a_figure_if_it_is_known():
    report = ProgramReport(name="f", platform="cpu", work=WorkShare(share=4.0, repeated_flops=96))
    names = metrics(report, prefix="")
    assert (names["program/work_share"], names["program/repeated_flops"]) == (4.0, 96)
    unknown = metrics(replace(report, work=WorkShare(reason="there is one device")), prefix="")
    assert not {"program/work_share", "program/repeated_flops"} & {*unknown}


def test_unknown_bytes_of_collectives_are_absent():
    report = ProgramReport(name="f", platform="cpu", sent=SentTotals(nbytes=5, unknown_count=1))
    assert metrics(report, prefix="") == {"program/collective_count": 0, "program/finding_count": 0}
    assert metrics(replace(report, sent=SentTotals(nbytes=5)), prefix="")["program/sent_bytes"] == 5


def test_hosts_have_the_range_of_their_processes_and_no_name_for_each():
    reports = {0: samples.USUAL, 1: samples.OTHER, 2: samples.USUAL}
    sources = [Source(str(one), samples.summary(report, one, 5)) for one, report in reports.items()]
    unread = [UnreadHost(name="größe.json", reason="truncated"), UnreadHost(name="b", reason="c", process=4)]
    report = hosts_of(sources, lambda one: arrays_of(reports[one.process]), unread=unread)
    assert metrics(report, prefix="") == {
        "hosts/process_count": 5,
        "hosts/missing_count": 1,
        "hosts/unread_count": 2,
        "hosts/different_count": 1,
        "hosts/fullest_bytes": 2048,
        "hosts/emptiest_bytes": 1024,
    }
    assert "hosts/fullest_bytes" not in metrics(HostsReport(process_count=0), prefix="")


def test_a_timeline_has_the_use_of_its_device_the_peak_and_the_growth_that_goes_on():
    growth = TimelineGrowth(
        origin=None, content=None, start_nbytes=1, end_nbytes=9, nbytes_per_minute=2.5, nbytes_per_step=1
    )
    names = metrics(
        timeline(
            process=1,
            device=3,
            times=(0.0,),
            steps=(None,),
            in_use=(7,),
            peak=TimelinePeak(nbytes=9, time=0.0, sampled_at=0.0, sampled_nbytes=9),
            growth=(growth, growth, replace(growth, stopped_at=1.0)),
            out_of_memory=(TimelineOutOfMemory(process=1, time=2.0, message="RESOURCE_EXHAUSTED"),),
        ),
        prefix="",
    )
    assert names == {
        "timeline/bytes_in_use": 7,
        "timeline/peak_bytes": 9,
        "timeline/growth_bytes_per_minute": 5,
        "timeline/out_of_memory_count": 1,
        "timeline/process_count": 2,
        "timeline/running_count": 1,
    }


def test_a_timeline_without_samples_has_no_bytes():
    assert not [name for name in metrics(timeline()) if "bytes" in name]


def test_growth_has_the_arrays_and_bytes_added_since_entry():
    with track_arrays() as tracker:
        kept = []
        for _ in range(3):
            kept.append(jnp.ones(16))
            tracker.step()
    names = metrics(tracker.report(), prefix="")
    assert (names["growth/step_count"], names["growth/added_array_count"]) == (3, 3)
    assert names["growth/growing_count"] == 1
    added = {name: value for name, value in names.items() if "added_bytes" in name}
    assert sum(added.values()) == 3 * 16 * 4
    assert len(added) == len(jax.local_devices())


@given(admitted_by(json_schema(), "TreeReport") | admitted_by(json_schema(), "TimelineReport"))
def test_values_are_finite_whatever_a_report_that_was_read_has(fields):
    try:
        report = from_json(json.dumps(fields))
    except ReportFormatError:
        return
    assert all(math.isfinite(value) for value in metrics(report).values())


def test_another_report_is_refused_with_the_classes_that_have_metrics():
    with pytest.raises(UnsupportedValueError, match=r"expected .*\(DevicesReport, .*\), got .*ArrayReport"):
        metrics(array_report(3))
    with pytest.raises(UnsupportedValueError, match="got <class 'dict'>"):
        metrics({})


@pytest.mark.parametrize("prefix", ["a b", "a//b", "/a", "a/", "1a", "a-b", "größe", "a\n", 3, None])
def test_a_prefix_that_a_tracker_would_refuse_is_refused(prefix):
    with pytest.raises(UnsupportedValueError, match="prefix"):
        metrics(tree_report({}), prefix=prefix)
