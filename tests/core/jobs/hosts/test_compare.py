"""Comparison of the summaries of processes."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import from_json, to_json
from jax_array_info_core.jobs.hosts.compare import Source, UnreadError, hosts_of
from jax_array_info_core.jobs.hosts.summaries import arrays_of
from tests.core.jobs.hosts.samples import ARRAYS, OTHER, USUAL, group, live, summary

pytestmark = pytest.mark.newest


def compared(reports, *, count=None, **options):
    """Return the report on processes with some reports, by process index."""
    count = max(reports) + 1 if count is None else count
    sources = [
        Source(f"process {process}", summary(report, process, count)) for process, report in reports.items()
    ]
    return hosts_of(sources, lambda one: arrays_of(reports[one.process]), **options)


def test_equal_processes_have_no_findings():
    report = compared(dict.fromkeys(range(8), USUAL))
    assert report.answer == "8 hosts: 1.0 KiB of live arrays on each host"
    assert (report.passed, report.missing, report.differences) == (True, (), ())


@pytest.mark.parametrize(
    ("boot_ids", "names", "hosts"),
    [
        (("a", "a", "a", "a"), ("node", "node", "node", "node"), 1),
        (("a", "a", "a", "a"), ("container-0", "container-1", "container-2", "container-3"), 1),
        (("a", "b", "c", "d"), ("localhost", "localhost", "localhost", "localhost"), 4),
        (("a", "a", "b", "b"), ("node", "node", "node", "node"), 2),
        ((None, None, None, None), ("node-0", "node-0", "node-1", "node-1"), 2),
        (("a", "b", "c", None), ("node-0", "node-0", "node-1", "node-1"), 2),
    ],
)
def test_a_host_is_a_boot_id_where_each_process_has_one_else_a_name(boot_ids, names, hosts):
    summaries = [
        summary(USUAL, process, 4, boot_id=boot_id, host_name=name)
        for process, (boot_id, name) in enumerate(zip(boot_ids, names, strict=True))
    ]
    report = hosts_of([Source(one.host_name, one) for one in summaries], lambda _: arrays_of(USUAL))
    assert report.machine_count == hosts
    words = {1: "4 processes on 1 host", 2: "4 processes on 2 hosts", 4: "4 hosts"}[hosts]
    assert report.answer == f"{words}: 1.0 KiB of live arrays on each {report.unit}"
    assert from_json(to_json(report)) == report


def test_the_answer_has_the_range_the_difference_and_the_missing_process():
    report = compared({0: USUAL, 1: USUAL, 2: USUAL, 5: OTHER, 7: USUAL}, count=8)
    assert report.answer == (
        "5 hosts: 1.0 KiB to 2.0 KiB of live arrays on each host; process 5 differs in its arrays:"
        " 1 array more, 2 fewer; processes 3, 4, 6 are missing"
    )
    assert (report.fullest_nbytes, report.emptiest_nbytes) == (2048, 1024)
    assert [one.code for one in report.findings] == ["JAI411", "JAI412"]
    [difference] = report.differences
    assert [(one.type, one.count) for one in difference.extra] == [("float32[5]", 1)]
    assert [(one.type, one.count) for one in difference.lacking] == [("float32[3]", 2)]


@pytest.mark.parametrize(
    "other",
    [
        group((8, 5), label="w"),
        group(label="w", dtype="int8"),
        group(label="w", sharding="P() over data=2"),
        group(label="v"),
        group(label="w", count=2),
    ],
    ids=["shape", "dtype", "spec", "label", "number"],
)
def test_processes_differ_by_shape_dtype_spec_label_and_number(other):
    report = compared({0: USUAL, 1: USUAL, 2: live(other, ARRAYS[1])})
    assert [one.process for one in report.differences] == [2]
    assert "only here" in str(report)


def test_of_two_sets_as_frequent_the_one_of_the_first_process_is_expected():
    report = compared({0: OTHER, 1: USUAL})
    assert [one.process for one in report.differences] == [1]
    assert "Process 1 has another set of arrays than process 0." in str(report)


def test_the_arrays_of_few_processes_are_read_and_the_others_are_named():
    asked = []
    reports = dict.fromkeys(range(20), USUAL) | dict.fromkeys((3, 4, 11), OTHER)
    sources = [Source(str(one), summary(report, one, 20)) for one, report in reports.items()]

    def read(one):
        asked.append(one.process)
        return arrays_of(reports[one.process])

    report = hosts_of(sources, read, details=2)
    assert asked == [0, 3, 4]
    assert [one.words for one in report.differences] == ["1 array more, 2 fewer"] * 2 + [""]
    assert "processes 3, 4, 11 differ in their arrays" in report.answer
    asked.clear()
    assert [one.words for one in hosts_of(sources, read, details=0).differences] == [""] * 3
    assert asked == []


def test_arrays_that_are_not_read_are_a_difference_with_the_reason():
    def read(one):
        if one.process:
            raise UnreadError("gone")
        return arrays_of(USUAL)

    sources = [Source(str(one), summary(report, one, 3)) for one, report in enumerate((USUAL, USUAL, OTHER))]
    [difference] = hosts_of(sources, read).differences
    assert (difference.process, difference.unread_because, difference.words) == (2, "gone", "")


def test_reports_of_another_job_another_class_and_a_process_twice_are_left_out():
    reports = {process: summary(USUAL, process, 4) for process in range(4)}
    odd = {
        "other job": summary(USUAL, 1, 9),
        "tree": replace(reports[2], of="TreeReport"),
        "again": replace(reports[3], nbytes=0),
    }
    sources = [Source(str(key), one) for key, one in (reports | odd).items()]
    report = hosts_of(sources, lambda _: arrays_of(USUAL))
    assert [host.process for host in report.hosts] == [0, 1, 2, 3]
    assert {one.name: one.reason for one in report.unread} == {
        "other job": "of a job of 9 processes, not 4: keep one job in a folder",
        "tree": "a TreeReport, not a LiveArrayReport as most",
        "again": "process 3 again, after 3",
    }
    assert report.answer.endswith("3 reports not read")


@given(
    st.dictionaries(
        st.integers(0, 30), st.tuples(st.sampled_from([USUAL, OTHER]), st.integers(0, 5)), min_size=1
    ),
    st.integers(0, 3),
)
def test_every_process_is_a_host_or_missing_and_each_set_counts(chosen, more):
    count = max(chosen) + 1 + more
    reports = {process: report for process, (report, _) in chosen.items()}
    sources = [
        Source(str(process), replace(summary(report, process, count), nbytes=nbytes))
        for process, (report, nbytes) in chosen.items()
    ]
    report = hosts_of(sources, lambda one: arrays_of(reports[one.process]))
    assert sorted([*report.missing, *(host.process for host in report.hosts)]) == list(range(count))
    assert report.fullest_nbytes == max(nbytes for _, nbytes in chosen.values())
    assert report.emptiest_nbytes == min(nbytes for _, nbytes in chosen.values())
    most = Counter(map(id, reports.values())).most_common()[0][1]
    assert most == len(report.hosts) - len(report.differences)
    assert from_json(to_json(report)) == report
