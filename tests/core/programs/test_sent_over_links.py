"""Bytes over each link between devices: totals, words, assertions and lower bounds of their time."""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    CheckError,
    assert_no_collective,
    assert_sent,
    from_json,
    program_report,
    to_json,
)
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.geometry.layouts.links import LINKS, as_bandwidths
from jax_array_info_core.programs import report_parts
from jax_array_info_core.programs.sent_totals import totals_of
from jax_array_info_core.reports import Collective, ProgramReport
from tests.programs import abstract, cube

pytestmark = pytest.mark.once_per_version

MIB = 2**20


def collective(link, sent_nbytes=MIB, **options):
    facts = {"kind": "all-reduce", "axes": ("data",), "group_size": 2, "dtype": "float32", "shape": (8,)}
    return Collective(**facts | {"link": link, "sent_nbytes": sent_nbytes} | options)


def report(*collectives, bandwidths=None):
    sent = totals_of(collectives, as_bandwidths(bandwidths))
    return ProgramReport(name="step", platform="tpu", collectives=collectives, sent=sent)


COLLECTIVES = st.builds(
    collective,
    st.sampled_from([*LINKS, None]),
    st.integers(0, 2**40),
    count=st.integers(1, 9),
    times=st.one_of(st.none(), st.integers(0, 9)),
    kind=st.sampled_from(["all-reduce", "all-gather"]),
)


@given(st.lists(COLLECTIVES), st.dictionaries(st.sampled_from(LINKS), st.integers(1, 2**40)))
def test_the_bytes_over_links_add_up_to_all_that_is_sent(rows, bandwidths):
    sent = totals_of(rows, bandwidths)
    assert sum(one.nbytes for one in sent.by_link) == sent.nbytes
    assert sum(one.unknown_count for one in sent.by_link) == sent.unknown_count
    order = [*reversed(LINKS), None]
    assert [order.index(one.link) for one in sent.by_link] == sorted({order.index(one.link) for one in rows})
    for one in sent.by_link:
        speed = bandwidths.get(one.link)
        assert one.least_seconds == (None if speed is None else one.nbytes / speed)


def test_a_bound_of_more_bytes_than_a_float_has_is_still_one():
    sent = totals_of([collective("dcn", 2**62, times=10**400)], {"dcn": 1})
    assert sent.by_link[0].least_seconds == float(2**63 - 1)
    assert "s) per call" in sent.over_links


@pytest.mark.parametrize(
    ("rows", "bandwidths", "words"),
    [
        (
            [collective("ici", 1288490189), collective("dcn", 96 * MIB)],
            {},
            "DCN 96.0 MiB, ICI 1.2 GiB per call",
        ),
        ([collective("same-host")], {}, ""),
        ([collective("ici"), collective(None, 0)], {}, ""),
        ([collective("other-host")], {}, "other host 1.0 MiB per call"),
        ([collective("other-process")], {}, "other process 1.0 MiB per call"),
        ([collective("same-chip"), collective("ici")], {}, "ICI 1.0 MiB, same chip 1.0 MiB per call"),
        ([collective("dcn", times=None), collective("ici")], {}, "DCN ?, ICI 1.0 MiB per call"),
        ([collective("dcn", times=None), collective("dcn")], {}, "DCN 1.0 MiB + ? per call"),
        ([], {"dcn": "1GB/s"}, ""),
        ([collective("ici", 90_000)], {"ici": "90GB/s"}, "ICI 87.9 KiB (at least 1.0 µs) per call"),
        (
            [collective("dcn", 100_999_999), collective("ici")],
            {"dcn": "6.25GB/s"},
            "DCN 96.3 MiB (at least 16.1 ms), ICI 1.0 MiB per call",
        ),
    ],
)
def test_the_answer_leads_with_the_bytes_over_links_where_they_tell_something(rows, bandwidths, words):
    found = report(*rows, bandwidths=bandwidths)
    assert found.sent.over_links == words
    assert found.answer == "; ".join(filter(None, (words, "no findings")))


def test_assertions_count_the_collectives_over_a_link():
    found = report(collective("dcn", kind="all-gather"), collective("ici", 4 * MIB))
    assert_no_collective(found, "all-gather", link="ici")
    assert_no_collective(found, "all-reduce", link="dcn")
    assert_sent(found, MIB, link="dcn")
    with pytest.raises(CheckError, match=r"all-gather by DCN in step:\n- all-gather over data: 1\.0 MiB"):
        assert_no_collective(found, "all-gather", link="dcn")
    with pytest.raises(CheckError, match=r"step sends 1\.0 MiB .* per device \(by DCN\), more than 9 bytes"):
        assert_sent(found, 9, link="dcn")
    with pytest.raises(CheckError, match=r"\(all-reduce over mesh axis 'data' by ICI\), more than 9 bytes"):
        assert_sent(found, 9, kind="all-reduce", mesh_axis="data", link="ici")


@pytest.mark.parametrize(("link", "asked"), [(None, "dcn"), (None, "ici"), ("unknown", "ici")])
def test_an_unknown_link_fails_an_assertion(link, asked):
    found = report(collective(link))
    for check in (
        lambda: assert_no_collective(found, "all-reduce", link=asked),
        lambda: assert_sent(found, 10 * MIB, link=asked),
    ):
        with pytest.raises(CheckError, match="all-reduce over data by unknown link"):
            check()


@pytest.mark.parametrize("asked", ["same-host", "other-host", "other-process"])
def test_another_process_may_be_on_the_same_host_or_on_another_one(asked):
    found = report(collective("other-process"))
    assert_sent(found, 0, link="dcn")
    assert_no_collective(found, "all-reduce", link="ici")
    with pytest.raises(CheckError, match="by other process"):
        assert_no_collective(found, "all-reduce", link=asked)
    with pytest.raises(CheckError, match="more than 0 bytes"):
        assert_sent(found, 0, link=asked)


def test_a_link_that_is_not_dcn_and_what_moves_nothing_pass():
    """An unknown link inside a slice is not DCN."""
    found = report(collective("unknown"), collective(None, 0))
    assert_no_collective(found, "all-reduce", link="dcn")
    assert_sent(found, 0, link="other-host")


def test_other_links_are_refused_with_those_that_there_are():
    problem = "'DCN' is not a link between devices: there are 'dcn', 'other-host', 'other-process', 'unknown', 'ici', 'same-host', 'same-chip'"
    for check in (
        lambda: assert_sent(report(), 0, link="DCN"),
        lambda: assert_no_collective(report(), "all-gather", link="DCN"),
        lambda: program_report(lambda x: x, 1.0, bandwidths={"DCN": "1GB/s"}),
    ):
        with pytest.raises(UnsupportedValueError) as caught:
            check()
        assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("given_bandwidth", "problem"),
    [
        ("6.25Gb/s", "is not in bytes: write B for bytes of 8 bits, such as 6.25GB/s, got '6.25Gb/s'"),
        ("50Gbps", "is not in bytes: write B for bytes of 8 bits, such as 6.25GB/s, got '50Gbps'"),
        ("6.25GB", "cannot be read: expected bytes per second, such as 6.25GB/s, got '6.25GB'"),
        ("/s", "cannot be read: expected bytes per second, such as 6.25GB/s, got '/s'"),
        ("0GB/s", "is less than a byte per second, got '0GB/s'"),
        ("6G/s", "cannot be read: write GB or GiB instead of G, got '6G'"),
        (0, 'must be bytes per second, an integer or a text such as "6.25GB/s", got 0'),
        (True, 'must be bytes per second, an integer or a text such as "6.25GB/s", got True'),
        (1.5, 'must be bytes per second, an integer or a text such as "6.25GB/s", got 1.5'),
    ],
)
def test_a_bandwidth_that_is_none_is_refused(given_bandwidth, problem):
    with pytest.raises(UnsupportedValueError) as caught:
        as_bandwidths({"dcn": given_bandwidth})
    assert str(caught.value) == f"the bandwidth of dcn {problem}"


def test_bandwidths_are_decimal_or_binary():
    texts = {"dcn": "6.25GB/s", "ici": " 1 GiB/s ", "other-host": "50GBps", "same-host": np.int64(7)}
    assert as_bandwidths(texts) == {
        "dcn": 6_250_000_000,
        "ici": 2**30,
        "other-host": 50 * 10**9,
        "same-host": 7,
    }


def test_a_report_of_before_is_read():
    """It has neither links nor their totals."""
    found = report(collective("dcn"))
    stored = json.loads(to_json(found))
    del stored["sent"]["by_link"]
    del stored["collectives"][0]["link"]
    read = from_json(json.dumps(stored))
    assert read.sent == replace(found.sent, by_link=())
    assert (read.collectives[0].link, read.sent.over_links) == (None, "")
    assert from_json(to_json(found)) == found


@pytest.mark.needs_devices(8)
def test_a_program_on_one_host_has_one_link_and_no_more_words():
    arguments = [abstract(cube(), P("data", "fsdp"), (64, 128))]
    function = jax.jit(lambda x: x @ x.T)
    for found in (program_report(function, *arguments), program_report(function.lower(*arguments).compile())):
        assert {one.link for one in found.collectives} == {"same-host"}
        assert [(one.link, one.nbytes) for one in found.sent.by_link] == [("same-host", found.sent.nbytes)]
        assert found.sent.over_links == ""
    timed = program_report(function, *arguments, bandwidths={"same-host": found.sent.nbytes})
    assert timed.answer.startswith("same host ")
    assert "(at least 1.0 s) per call" in timed.answer


@pytest.mark.needs_devices(8)
def test_groups_that_cross_processes_have_a_link_of_their_own(monkeypatch):
    """The devices of two processes, as the eight of this one in the order of the mesh."""
    hosts = [0] * 4 + [1] * 4
    devices = [SimpleNamespace(id=at, process_index=host, platform="cpu") for at, host in enumerate(hosts)]
    monkeypatch.setattr(report_parts, "program_devices", lambda stages, leaves: devices)

    def summed(x):
        return jax.lax.with_sharding_constraint(x.sum(0), jax.sharding.NamedSharding(cube(), P()))

    for axis, link in (("data", "other-process"), ("fsdp", "same-host"), ("tensor", "same-host")):
        found = program_report(summed, abstract(cube(), P(axis), (64, 128)))
        assert {(one.axes, one.link) for one in found.collectives} == {((axis,), link)}
        assert_no_collective(found, "all-reduce", link="dcn")
        assert found.answer.startswith("other process") == (link == "other-process")
