"""Lines of a panel about the shards of one process."""

import numpy as np
import pytest

from jax_array_info import to_text
from jax_array_info.reports import ArrayReport
from jax_array_info_core.geometry.layouts.layout import local_part, mesh_layout

pytestmark = pytest.mark.newest


def lines(shape, sizes, axes, owners, process=1, bits=32):
    """Return the lines about the shards of one process, for an array on devices with the given processes."""
    ids = 10 * np.arange(len(owners))
    processes = tuple(
        (owner, tuple(ids[np.array(owners) == owner].tolist())) for owner in sorted(set(owners))
    )
    layout = mesh_layout(shape, sizes, axes, ids.reshape(tuple(sizes.values())), "gpu", processes)
    part = local_part(layout, process, bits)
    report = ArrayReport(
        name=None,
        kind="array",
        type_name="ArrayImpl",
        shape=shape,
        dtype="float32",
        is_fully_addressable=False,
        layout=layout,
        local_part=part,
    )
    shown = [line[1:-1].strip() for line in to_text(report, width=120).splitlines()]
    start = shown.index("!is_fully_addressable") + 1
    return [line for line in shown[start:-1] if not line.startswith(("axis", "Total"))]


TWO_EACH = [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((8, 16), [["a"]], ["process 1 holds 1/2: [4:8, 0:16]", "on GPU 20,30: 256.0 B"]),
        ((5,), [["a"]], ["process 1 holds 1/5: [4:5]", "on GPU 20,30: 4.0 B"]),
        ((8,), [], ["process 1 holds the whole array", "on GPU 20,30: 64.0 B, 32.0 B without replicas"]),
        ((), [], ["process 1 holds the whole array", "on GPU 20,30: 8.0 B, 4.0 B without replicas"]),
        ((0, 8), [[], ["a"]], ["process 1 holds the whole array", "on GPU 20,30: 0.0 B"]),
        ((2**20 - 1,), [["a"]], ["process 1 holds 50.00%: [524288:1048575]", "on GPU 20,30: 2.0 MiB"]),
    ],
)
def test_contiguous_shards_have_an_index_and_bytes(shape, axes, expected):
    assert lines(shape, {"a": 4}, axes, TWO_EACH) == expected


def test_shards_that_are_not_contiguous_are_counted():
    assert lines((8,), {"a": 4}, [["a"]], [1, 0, 1, 0]) == [
        "process 1 holds 2 of 4 shards, 1/2 of the elements",
        "on GPU 0,20: 16.0 B",
    ]


def test_a_process_may_hold_nothing():
    assert lines((8,), {"a": 4}, [["a"]], TWO_EACH, process=2) == ["process 2 holds no shards"]


def test_unknown_bytes_are_left_out():
    assert lines((8,), {"a": 4}, [["a"]], TWO_EACH, bits=None) == ["process 1 holds 1/2: [4:8]"]
