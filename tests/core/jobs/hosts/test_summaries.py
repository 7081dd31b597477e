"""Summaries of the reports of a process."""

import json
import random
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    devices_report,
    hosts_report,
    live_array_report,
    planned_mesh_report,
    tree_report,
)
from jax_array_info_core.base.quantities import LARGEST
from jax_array_info_core.errors import ReportFormatError, UnsupportedValueError
from jax_array_info_core.facts.reports.json import summary_from_json, summary_to_json
from jax_array_info_core.jobs.hosts.files import LONGEST_SUMMARY
from jax_array_info_core.jobs.hosts.summaries import arrays_of, summary_of
from jax_array_info_core.reports import DevicesReport, HostSummary
from tests.core.jobs.hosts.samples import ARRAYS, OTHER, USUAL, group, live, summary

pytestmark = pytest.mark.newest

TREE = {"w": jax.ShapeDtypeStruct((8, 4), jnp.float32), "b": jax.ShapeDtypeStruct((4,), jnp.int8)}


def test_a_summary_of_live_arrays_has_the_bytes_on_all_devices_of_the_process():
    kept = jnp.zeros((64, 8))
    report = live_array_report()
    made = summary_of(report)
    assert (made.process, made.process_count, made.of) == (0, 1, "LiveArrayReport")
    assert made.nbytes == sum(nbytes for _, nbytes in report.device_nbytes) >= kept.nbytes
    assert made.device_count == len(jax.local_devices())
    assert made.device.nbytes == report.fullest_nbytes
    assert made.array_count == sum(one.count for one in report.groups if one.views_of is None)


def test_a_summary_of_a_tree_has_the_bytes_of_its_fullest_device():
    report = tree_report(TREE, mesh={"d": 2}, specs=P("d"))
    made = summary_of(report)
    assert (made.of, made.nbytes, made.array_count) == ("TreeReport", report.fullest_device_nbytes, 2)


def test_a_summary_of_devices_has_their_memory_and_no_arrays():
    report = devices_report()
    memory = replace(report.devices[0], bytes_in_use=300, peak_bytes_in_use=700, bytes_limit=1000)
    other = replace(memory, id=99, bytes_in_use=900, is_local=False)
    made = summary_of(DevicesReport(devices=(memory, other)))
    assert (made.nbytes, made.device_count, made.array_count, made.digest) == (300, 1, None, "")
    assert (made.device.bytes_limit, made.peak_nbytes) == (1000, 700)


@pytest.mark.parametrize("value", [None, 3, planned_mesh_report({"a": 2}), summary()])
def test_other_values_are_an_error_with_the_functions_that_return_the_reports(value):
    with pytest.raises(UnsupportedValueError, match=r"expected a LiveArrayReport, .* live_array_report\(\)"):
        hosts_report(value)


@given(
    name=st.text(max_size=200),
    platform=st.text(max_size=200),
    devices=st.lists(st.tuples(st.integers(), st.integers(0, LARGEST)), max_size=40),
    groups=st.lists(st.tuples(st.text(), st.integers(0, LARGEST), st.text()), max_size=40),
)
def test_a_summary_has_at_most_4_kib_and_round_trips(name, platform, devices, groups):
    report = replace(
        live(*(group((1,), label=label, count=count, sharding=text) for label, count, text in groups)),
        platform=platform,
        device_nbytes=tuple(devices),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: name)
        text = summary_to_json(summary_of(report))
    assert len(text.encode()) <= LONGEST_SUMMARY
    assert summary_to_json(summary_from_json(text)) == text


def test_the_longest_summary_has_at_most_4_kib():
    class Device:
        """A device whose numbers are as long as can be."""

        def __init__(self, number):
            self.id = LARGEST - number

        def memory_stats(self):
            return dict.fromkeys(("bytes_in_use", "peak_bytes_in_use", "bytes_limit"), LARGEST)

    devices = [Device(number) for number in range(2048)]
    report = replace(
        live(group(count=LARGEST)), device_nbytes=tuple((device.id, LARGEST) for device in devices)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "\N{GRINNING FACE}" * 10**6)
        patch.setattr("jax_array_info_core.compat.processes.local_devices", lambda _: devices)
        patch.setattr("jax_array_info_core.compat.processes.process_count", lambda: 2**20)
        text = summary_to_json(summary_of(replace(report, platform="\N{GRINNING FACE}" * 100)))
    assert 2048 < len(text.encode()) <= LONGEST_SUMMARY
    assert summary_from_json(text).device_count == 2048


_groups = st.lists(
    st.builds(
        group,
        st.sampled_from([(), (1,), (2, 3)]),
        label=st.sampled_from([None, "a", "b"]),
        count=st.integers(1, 3),
        dtype=st.sampled_from(["int8", "float32"]),
    ),
    max_size=6,
)


@given(_groups, _groups)
def test_digests_are_equal_if_and_only_if_no_array_differs(one, other):
    first, second = arrays_of(live(*one)), arrays_of(live(*other))
    differs = bool(first.without(second) or second.without(first))
    assert (first.digest != second.digest) == differs
    more = sum(array.count for array in first.without(second))
    fewer = sum(array.count for array in second.without(first))
    assert more - fewer == first.counts.total() - second.counts.total()


@settings(max_examples=20)
@given(_groups, st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_the_order_or_the_origins(groups, chance):
    mixed = random.Random(chance.random()).sample(groups, len(groups))
    assert arrays_of(live(*groups)).digest == arrays_of(live(*mixed)).digest
    split = [part for one in groups for part in [replace(one, count=1)] * one.count]
    assert arrays_of(live(*groups)).digest == arrays_of(live(*split)).digest


def test_views_are_left_out():
    view = replace(ARRAYS[0], views_of="w", shard_nbytes=0)
    assert summary(live(*ARRAYS, view)) == summary(USUAL)
    assert summary(OTHER).digest != summary(USUAL).digest


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"process": 3, "process_count": 3}, "process 3 of 3"),
        ({"process_count": 10**12}, "process 0 of 1,?000,?000,?000,?000"),
        ({"process": -1}, "Expected `int` >= 0"),
        ({"schema_version": 1}, "schema_version 1 cannot be read, only 3"),
        ({"report": "TreeReport"}, "must name one of HostSummary, got 'TreeReport'"),
    ],
)
def test_an_impossible_summary_is_an_error(fields, problem):
    text = json.dumps(json.loads(summary_to_json(summary())) | fields)
    with pytest.raises(ReportFormatError, match=problem):
        summary_from_json(text)
    assert isinstance(summary(), HostSummary)
