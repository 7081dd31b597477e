"""Descriptions of layouts against the device ids that they describe."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core import ShardingLayout, sharding_layout, spec_layout
from jax_array_info_core.layouts import describe_pattern
from tests.core.geometry.layouts.test_layout_laws import CASES, named_shardings

pytestmark = pytest.mark.newest

REGULAR = re.compile(
    r"axis (\d+): (\d+) shards, shard k on (?:devices?|(\d+) devices) ([\d,:.-]+?)(?: ([+-]) (\d*)k)?"
)
IRREGULAR = re.compile(r"axis (\d+): (\d+) shards of (\d+) (devices?), not evenly spaced")
REPLICAS = re.compile(
    r"(\d+) replicas of each shard, (on consecutive devices|(\d+) devices apart|not evenly spaced)"
)


def layout_of(ids):
    """Return a layout of two elements a shard with these device ids."""
    ids = np.array(ids)
    return ShardingLayout(shape=tuple(2 * count for count in ids.shape[:-1]), device_ids=ids)


def shards_along(layout, axis):
    """Return the sorted device ids of each shard along an axis."""
    return [sorted(layout.device_ids.take(shard, axis).ravel()) for shard in range(layout.shard_counts[axis])]


def expanded(text):
    """Return the device ids of a text such as ``0-3,8,10-18:2``."""
    ids = []
    for piece in text.split(","):
        start, stop, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", piece).groups()
        ids += range(int(start), int(stop or start) + 1, int(step or 1))
    return ids


def assert_describes_axis(line, layout, axis):
    """Check every number of a line against the device ids."""
    shards = shards_along(layout, axis)
    stride = int(shards[1][0] - shards[0][0])
    shifted = [[device + number * stride for device in shards[0]] for number in range(len(shards))]
    if irregular := IRREGULAR.fullmatch(line):
        assert shards != shifted
        assert [int(irregular[group]) for group in (1, 2, 3)] == [axis, len(shards), len(shards[0])]
        assert (irregular[4] == "device") == (len(shards[0]) == 1)
        return
    shown_axis, count, size, devices, sign, multiple = REGULAR.fullmatch(line).groups()
    assert (int(shown_axis), int(count)) == (axis, len(shards))
    assert shards == shifted
    assert stride == (0 if sign is None else int(multiple or 1) * (1 if sign == "+" else -1))
    first, _, last = devices.partition(",...,")
    if last:
        assert int(size) == len(shards[0])
        start, end = expanded(first), expanded(last)
        assert len(start) + len(end) < len(shards[0])
        assert shards[0][: len(start)] == start
        assert shards[0][-len(end) :] == end
    else:
        assert expanded(first) == shards[0]


def assert_describes(lines, layout):
    """Check the lines of a layout, one for each sharded axis and one for the replicas."""
    lines = list(lines)
    if layout.replicas > 1:
        count, words, apart = REPLICAS.fullmatch(lines.pop()).groups()
        assert int(count) == layout.replicas
        steps = set(np.diff(np.sort(layout.device_ids, -1)).ravel().tolist())
        expected = 1 if words == "on consecutive devices" else int(apart or 0)
        assert steps == {expected} if expected else len(steps) > 1
    assert len(lines) == len(layout.sharded_axes)
    for line, axis in zip(lines, layout.sharded_axes, strict=True):
        assert_describes_axis(line, layout, axis)


@settings(max_examples=CASES // 4, deadline=None)
@given(named_shardings())
def test_the_described_devices_are_those_of_the_layout_on_a_shuffled_mesh(case):
    layout = sharding_layout(case[0], case[2])
    assert_describes(describe_pattern(layout), layout)


@st.composite
def arranged_layouts(draw):
    """Return a layout on a grid of device ids that is transposed, reversed along some axes and strided."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    ids = np.arange(math.prod(sizes)).reshape(sizes).transpose(draw(st.permutations(range(len(sizes)))))
    ids = np.flip(ids, tuple(draw(st.sets(st.sampled_from(range(len(sizes)))))))
    ids = draw(st.integers(1, 3)) * ids + draw(st.integers(0, 9))
    kept = draw(st.integers(0, len(sizes) - 1))
    return layout_of(ids.reshape(*ids.shape[:kept], -1))


@settings(max_examples=CASES // 4, deadline=None)
@given(arranged_layouts())
def test_the_described_devices_are_those_of_a_transposed_reversed_or_strided_layout(layout):
    assert_describes(describe_pattern(layout), layout)


@pytest.mark.parametrize(
    ("ids", "lines"),
    [
        ([[0, 1], [2, 3]], ["axis 0: 2 shards, shard k on devices 0,1 + 2k", "on consecutive devices"]),
        ([[3], [2], [1], [0]], ["axis 0: 4 shards, shard k on device 3 - k"]),
        ([[6, 4], [2, 0]], ["axis 0: 2 shards, shard k on devices 4,6 - 4k", "2 devices apart"]),
        ([[7, 5], [6, 4]], ["axis 0: 2 shards, shard k on devices 5,7 - k", "2 devices apart"]),
        ([[10], [30], [50]], ["axis 0: 3 shards, shard k on device 10 + 20k"]),
        ([[0], [1], [3]], ["axis 0: 3 shards of 1 device, not evenly spaced"]),
        ([[0, 1], [2, 4]], ["axis 0: 2 shards of 2 devices, not evenly spaced", "not evenly spaced"]),
        ([[0, 3], [1, 4]], ["axis 0: 2 shards, shard k on devices 0,3 + k", "3 devices apart"]),
        # The ids of both shards begin 4 apart, but they are not shifted copies of each other.
        (
            [[0, 1, 2, 3], [4, 5, 6, 8]],
            ["axis 0: 2 shards of 4 devices, not evenly spaced", "not evenly spaced"],
        ),
        (
            [[[0], [1]], [[2], [3]]],
            ["axis 0: 2 shards, shard k on devices 0,1 + 2k", "axis 1: 2 shards, shard k on devices 0,2 + k"],
        ),
        (
            [[[3], [0]], [[2], [1]]],
            [
                "axis 0: 2 shards of 2 devices, not evenly spaced",
                "axis 1: 2 shards, shard k on devices 2,3 - 2k",
            ],
        ),
        ([[0, 1, 2, 3]], ["on consecutive devices"]),
        ([[5]], []),
        ([5], []),
    ],
)
def test_patterns_of_small_layouts(ids, lines):
    layout = layout_of(ids)
    replicas = f"{layout.replicas} replicas of each shard, "
    expected = [line if line.startswith("axis") else replicas + line for line in lines]
    assert list(describe_pattern(layout)) == expected


def test_many_ranges_of_ids_are_abbreviated_and_their_devices_counted():
    layout = spec_layout((8,), {"a": 64, "b": 8, "c": 2}, ("b",))
    assert describe_pattern(layout) == (
        "axis 0: 8 shards, shard k on 128 devices 0,1,16,17,...,1008,1009 + 2k",
        "128 replicas of each shard, not evenly spaced",
    )


def test_axes_and_replicas_are_named_by_the_caller():
    layout = layout_of([[0, 1], [2, 3]])
    assert describe_pattern(layout, ["rows"], copies="partial sums") == (
        "rows: 2 shards, shard k on devices 0,1 + 2k",
        "2 partial sums of each shard, on consecutive devices",
    )
