"""Sums, fractions and remainders in reports."""

import dataclasses
from fractions import Fraction

import pytest

from jax_array_info_core import spec_layout
from jax_array_info_core.facts.pages.live import live_array_rows, rest_row
from jax_array_info_core.facts.reports.devices import lines_together
from jax_array_info_core.facts.reports.growth import collected_together, origins_together
from jax_array_info_core.layouts import LocalPart
from jax_array_info_core.reports import (
    ArrayReport,
    CollectedArrays,
    GrowthReport,
    LiveArrayGroup,
    LiveArrayReport,
    MemoryProfileReport,
    OriginGrowth,
    ProfileRow,
)

BIAS = LiveArrayGroup(
    shape=(8,),
    dtype="float32",
    nbytes=32,
    shard_nbytes=16,
    device_count=2,
    replicas=1,
    label=None,
    count=2,
    device_counts=((0, 2), (1, 2)),
    sharding="P('x',) over x=2",
)
WEIGHTS = dataclasses.replace(
    BIAS, shape=(256, 8), nbytes=8192, shard_nbytes=8192, device_count=1, count=1, device_counts=((0, 1),)
)
STEP = dataclasses.replace(
    BIAS, shape=(), dtype="int32", nbytes=4, shard_nbytes=4, device_count=1, device_counts=((1, 2),)
)
LIVE = LiveArrayReport(
    platform="cpu",
    visible_devices=2,
    groups=(WEIGHTS, BIAS, STEP),
    array_count=5,
    device_nbytes=((0, 8192), (1, 40)),
    nbytes_source="profile",
)


def test_rows_of_live_arrays_have_bytes_fractions_and_a_remainder():
    [largest, other], _, scalars = live_array_rows(LIVE)
    rest = rest_row(LIVE, "shape", [other])
    assert (largest.count, largest.nbytes, largest.share) == (1, 8192, "100.0%")
    assert (rest.count, rest.nbytes, rest.total_nbytes, rest.words) == (2, 32, 64, "2 more arrays")
    assert [(row.count, row.nbytes, row.share) for row in scalars] == [(2, 8, "0.0%")]
    _, [small], _ = live_array_rows(LIVE, hide_small_arrays=True)
    assert (small.count, small.nbytes, small.share) == (2, 32, "0.4%")
    assert LIVE.is_shared, "device 0 has 8,224 bytes of arrays in 8,192"
    assert LIVE.fullest_nbytes == 8192


def test_groups_that_agree_in_all_columns_share_a_row_and_others_show_their_specs():
    other = dataclasses.replace(BIAS, sharding="P(('x',),) over x=2", holder="a")
    report = dataclasses.replace(LIVE, groups=(BIAS, dataclasses.replace(BIAS, holder="b"), other))
    [first, second], *_ = live_array_rows(report)
    assert (first.count, [group.holder for group in first.groups], first.spec) == (
        4,
        [None, "b"],
        "P('x',)",
    )
    assert (second.count, second.groups, second.spec) == (2, (other,), "P(('x',),)")


def test_totals_have_fractions_and_the_remainder_is_that_of_the_fullest_device():
    rows, *_ = live_array_rows(LIVE, by="dtype")
    assert [(row.words, row.nbytes, row.count) for row in rows] == [("float32", 8224, 3), ("int32", 8, 2)]
    rest = rest_row(LIVE, "dtype", rows)
    assert (rest.nbytes, rest.total_nbytes, rest.count, rest.words) == (8224, 8264, 5, "2 more")
    rest = rest_row(LIVE, "device", live_array_rows(LIVE, by="device")[0])
    assert (rest.nbytes, rest.share) == (8192, "")


def test_growth_and_collected_arrays_add_up_per_device():
    growth = OriginGrowth(
        origin=None,
        content="int8[4]",
        count=2,
        device_nbytes=((0, 4), (1, 4)),
        freed_count=1,
        freed_device_nbytes=((1, 2),),
        count_per_step=1.5,
    )
    both = origins_together([growth, dataclasses.replace(growth, device_nbytes=((1, 3),))])
    assert (both.count, both.nbytes, both.freed_nbytes, both.count_per_step) == (4, 7, 4, 3)
    freed = CollectedArrays(origin=None, content="int8[4]", count=1, device_nbytes=((0, 4),))
    assert dataclasses.astuple(collected_together([freed, freed])) == (None, "", 2, ((0, 8),), 1)
    report = GrowthReport(
        platform="cpu",
        steps=0,
        origins=(growth,),
        count_before=1,
        count=2,
        nbytes_before=((0, 1),),
        nbytes=((0, 5), (1, 4), (2, 4)),
        nbytes_source="profile",
        origins_known="known",
    )
    assert report.device_growth == (((0,), 5, 4), ((1, 2), 4, 4))
    assert not report.is_shared
    assert dataclasses.replace(report, nbytes=((0, 4),)).is_shared


def test_profile_rows_of_devices_that_agree_are_merged():
    row = ProfileRow(device="cpu:0", kind="buffer", origin=None, nbytes=4, count=1)
    more = dataclasses.replace(row, nbytes=2, device="cpu:1")
    report = MemoryProfileReport(
        rows=(row, dataclasses.replace(row, device="cpu:1"), more), device_nbytes=(("cpu:0", 4), ("cpu:1", 6))
    )
    first, second = report.lines["buffer"]
    assert (first.devices, first.nbytes) == (("cpu:0", "cpu:1"), 4)
    rest = lines_together([first, second])
    assert (rest.devices, rest.nbytes, rest.count) == (("cpu:1",), 6, 2)


@pytest.mark.parametrize(("shape", "elements", "share"), [((4,), 1, Fraction(1, 4)), ((0,), 0, Fraction(1))])
def test_local_share_is_the_fraction_of_the_elements(shape, elements, share):
    part = LocalPart(
        process=0,
        devices=(0,),
        shard_count=1,
        element_count=elements,
        index=None,
        nbytes=None,
        device_nbytes=None,
    )
    layout = spec_layout(shape, {"x": 2}, ())
    report = ArrayReport(name=None, kind="array", type_name="ArrayImpl", layout=layout, local_part=part)
    assert report.local_share == share
    assert report.replicas == 2
