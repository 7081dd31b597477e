"""Properties of every layout, on meshes of simulated devices."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import sharding_layout, spec_layout
from jax_array_info_core.errors import SpecError
from jax_array_info_core.layouts import flat_grids
from tests.arrays import FakeDevice
from tests.conftest import DEVICE_COUNT

pytestmark = pytest.mark.newest

DEVICES = [FakeDevice(number) for number in range(4**4)]
# All examples once per version of JAX: the other test runs differ only in real devices, which are not used.
CASES = 2000 if DEVICE_COUNT == 8 else 100


@st.composite
def named_shardings(draw):
    """Return a shape, mesh sizes and a NamedSharding: permuted, over several mesh axes, replicated or empty."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    names = [f"axis{number}" for number in range(len(sizes))]
    rank = draw(st.integers(0, 5))
    entries = [[] for _ in range(rank)]
    for name in draw(st.permutations(names)):
        place = draw(st.integers(-1, rank - 1))
        if place >= 0:
            entries[place].append(name)
    by_name = dict(zip(names, sizes, strict=True))
    counts = [math.prod(by_name[name] for name in entry) for entry in entries]
    shape = tuple(count * draw(st.integers(0, 3)) for count in counts)
    order = np.random.default_rng(draw(st.integers(0, 2**32))).permutation(math.prod(sizes))
    devices = np.array([DEVICES[number] for number in order], object).reshape(sizes)
    spec = [tuple(entry) if len(entry) > 1 else entry[0] if entry else None for entry in entries]
    return shape, by_name, NamedSharding(Mesh(devices, names), P(*spec))


@settings(max_examples=CASES, deadline=None)
@given(named_shardings())
def test_shards_are_on_the_devices_on_which_jax_puts_them_also_in_a_plan(case):
    shape, mesh, sharding = case
    layout = sharding_layout(shape, sharding)
    seen = 0
    for device, index in sharding.devices_indices_map(shape).items():
        seen += 1
        expected = tuple(slice(*piece.indices(dim)[:2]) for piece, dim in zip(index, shape, strict=True))
        assert layout.index_of(device.id) == expected
    assert layout.shard_shape == sharding.shard_shape(shape)
    assert np.unique(layout.device_ids).size == layout.device_ids.size == seen, "every device appears once"
    numbering = [device.id for device in sharding.mesh.devices.flat]
    planned = spec_layout(shape, mesh, sharding.spec)
    assert np.array_equal(np.take(numbering, planned.device_ids), layout.device_ids)


@settings(max_examples=CASES // 4, deadline=None)
@given(named_shardings(), st.lists(st.integers(0, 20), min_size=5, max_size=5))
def test_shards_cover_the_array_exactly_once(case, lengths):
    shape, mesh, sharding = case
    layout = spec_layout(lengths[: len(shape)], mesh, sharding.spec, uneven=True)
    if math.prod(layout.shape) > 10_000:
        return
    covered = np.zeros(layout.shape, int)
    for position in np.ndindex(*layout.shard_counts):
        index = layout.shard_index(position)
        covered[index] += 1
        assert all(layout.index_of(device) == index for device in layout.devices_of(position))
    assert (covered == 1).all()


@settings(max_examples=CASES // 4, deadline=None)
@given(named_shardings())
def test_each_cell_of_the_grids_is_held_by_the_devices_of_its_shard(case):
    layout = sharding_layout(case[0], case[2])
    grids = flat_grids(layout)
    shape = grids.device_ids.shape[:-1]
    holders = grids.holders(*map(range, shape))
    seen = set()
    for facet, row, column in np.ndindex(*shape):
        shards = grids.position(facet, row, column)
        position = tuple(shards.get(axis, 0) for axis in range(len(layout.shape)))
        seen.add(position)
        assert holders[facet][row][column] == layout.devices_of(position)
        assert grids.facet_position(facet) == tuple(position[axis] for axis in grids.facet_axes)
    assert len(seen) == math.prod(layout.shard_counts), "every shard has a cell"


@settings(max_examples=CASES // 4, deadline=None)
@given(named_shardings(), st.lists(st.integers(0, 20), min_size=5, max_size=5))
def test_indivisible_axes_are_rejected_and_their_fixes_are_valid(case, lengths):
    shape, mesh, sharding = case
    shape = tuple(lengths[: len(shape)])
    uneven = spec_layout(shape, mesh, sharding.spec, uneven=True)
    indivisible = [axis for axis, count in enumerate(uneven.shard_counts) if shape[axis] % count]
    try:
        assert spec_layout(shape, mesh, sharding.spec) == uneven
        assert not indivisible
    except SpecError as error:
        assert [problem.split(" of ")[0] for problem in error.problems] == [
            f"axis {axis}" for axis in indivisible
        ]
        from jax_array_info_core import uneven_axes
        from jax_array_info_core.geometry.layouts.spec import as_spec

        for found in uneven_axes(shape, mesh, as_spec(sharding.spec)):
            assert found.padded % found.count == 0
            assert 0 < found.padded - shape[found.axis] < found.count
            assert shape[found.axis] % found.fitting_count == 0
