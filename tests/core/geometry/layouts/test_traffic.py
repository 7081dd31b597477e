"""Elements that each device receives, compared with a count of single elements."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core import ShardingLayout
from jax_array_info_core.geometry.layouts.layout import mesh_layout
from jax_array_info_core.geometry.layouts.traffic import held_shards, missing_elements, missing_in_process

pytestmark = pytest.mark.newest


def elements_on(layout):
    """Return the set of elements that each device holds, by counting."""
    return {
        device: set(product(*(range(piece.start, piece.stop) for piece in layout.index_of(device))))
        for device in layout.device_ids.reshape(-1).tolist()
    }


@st.composite
def layouts(draw, shape):
    """Draw a layout over some devices, permuted, of a random mesh and spec; axes may be uneven."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3))
    names = draw(st.permutations([f"m{number}" for number in range(len(sizes))]))
    axes = [[] for _ in shape]
    for name in names:
        place = draw(st.integers(-1, len(shape) - 1))
        if place >= 0:
            axes[place].append(name)
    count = math.prod(sizes)
    ids = np.array(draw(st.permutations(range(30)))[:count]).reshape(sizes)
    mesh = {f"m{number}": size for number, size in enumerate(sizes)}
    return mesh_layout(shape, mesh, axes, ids)


@st.composite
def reshardings(draw):
    shape = draw(st.lists(st.integers(0, 7), max_size=3))
    owners = np.array(draw(st.lists(st.integers(0, 3), min_size=30, max_size=30)))
    return draw(layouts(shape)), draw(layouts(shape)), owners


@settings(max_examples=150)
@given(reshardings())
def test_the_closed_form_is_a_count_of_elements(case):
    source, target, owners = case
    held, wanted = elements_on(source), elements_on(target)
    of_process = {
        owner: set().union(*(held[device] for device in held if owners[device] == owner))
        for owner in range(4)
    }
    have, want = held_shards(source), held_shards(target)
    assert want.ids.tolist() == sorted(wanted)
    missing = missing_elements(source.shape, have, want)
    assert missing.tolist() == [len(wanted[device] - held.get(device, set())) for device in sorted(wanted)]
    foreign = missing_in_process(source.shape, have, want, owners[have.ids], owners[want.ids])
    assert foreign.tolist() == [
        len(wanted[device] - of_process[int(owners[device])]) for device in sorted(wanted)
    ]


def test_a_device_that_holds_nothing_receives_its_whole_shard():
    target = held_shards(mesh_layout((8, 4), {"x": 2}, [("x",)]))
    assert missing_elements((8, 4), None, target).tolist() == [16, 16]


def test_shapes_beyond_64_bits_are_exact():
    shape = (2**70, 3)
    source = held_shards(mesh_layout(shape, {"x": 4}, [("x",)]))
    target = held_shards(mesh_layout(shape, {"x": 4}, []))
    assert missing_elements(shape, source, target).tolist() == [3 * (2**70 - 2**68)] * 4


def test_pairs_of_shards_are_compared_in_parts(monkeypatch):
    """The result does not depend on how many pairs are compared at once."""
    monkeypatch.setattr("jax_array_info_core.geometry.layouts.traffic._MOST_PAIRS", 7)
    ids = np.arange(64).reshape(64, 1, 1)
    source = held_shards(ShardingLayout(shape=(64, 64), device_ids=ids))
    target = held_shards(ShardingLayout(shape=(64, 64), device_ids=ids.reshape(1, 64, 1)))
    owners = np.arange(64) // 8
    foreign = missing_in_process((64, 64), source, target, owners, owners)
    assert foreign.tolist() == [56] * 64
