"""The comparison of specs, against the devices that hold each slice."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.shardings import describe_sharding
from jax_array_info_core.layouts.spec import MeshAxes, Spec, placement
from jax_array_info_core.reports.array import ShardingDescription, same_sharding

pytestmark = [pytest.mark.oldest_and_newest, pytest.mark.needs_devices(8)]

SHAPE = (16, 32)


@st.composite
def meshes_and_specs(draw):
    """Return a mesh of 8 devices, and two specs that divide the shape evenly."""
    sizes = draw(st.sampled_from([(8,), (4, 2), (2, 4), (2, 2, 2), (8, 1), (1, 4, 2), (4, 1, 2, 1)]))
    names = "abcd"[: len(sizes)]

    def spec():
        entries, left = [], list(draw(st.permutations(names)))
        for _ in range(draw(st.integers(0, 2))):
            taken = [left.pop() for _ in range(draw(st.integers(0, len(left))))]
            entries.append(
                draw(st.sampled_from([taken[0], (taken[0],)])) if len(taken) == 1 else tuple(taken) or None
            )
        return P(*entries)

    return Mesh(np.array(jax.devices()[:8]).reshape(sizes), tuple(names)), spec(), spec()


@given(meshes_and_specs())
def test_placements_are_equal_exactly_if_each_device_has_the_same_slice(case):
    mesh, *specs = case
    shardings = [NamedSharding(mesh, spec) for spec in specs]
    described = [describe_sharding(sharding, len(SHAPE)) for sharding in shardings]
    one, other = (
        {device.id: index for device, index in sharding.devices_indices_map(SHAPE).items()}
        for sharding in shardings
    )
    slices = [
        {
            device: tuple(piece.indices(dim) for piece, dim in zip(index, SHAPE, strict=True))
            for device, index in each.items()
        }
        for each in (one, other)
    ]
    assert same_sharding(*described, len(SHAPE)) == (slices[0] == slices[1])


def test_unreduced_axes_count_unless_their_size_is_1():
    plain, partial = Spec((("x",),)), Spec((("x",),), unreduced=("y",))
    assert placement(plain, {"x": 4, "y": 2}, 2) != placement(partial, {"x": 4, "y": 2}, 2)
    assert placement(plain, {"x": 4, "y": 1}, 2) == placement(partial, {"x": 4, "y": 1}, 2)


def test_shardings_without_specs_are_compared_by_their_text():
    tiled, other = (
        ShardingDescription(type="GSPMDSharding", text=text)
        for text in ("{devices=[8]<=[8]}", "{replicated}")
    )
    named = ShardingDescription(type="NamedSharding", spec=Spec(()), mesh=MeshAxes(("x",), (8,)))
    assert same_sharding(tiled, tiled, 1) is True
    assert same_sharding(tiled, other, 1) is False
    assert same_sharding(tiled, named, 1) is None, "XLA's notation is not read here"
    assert same_sharding(None, named, 1) is None
