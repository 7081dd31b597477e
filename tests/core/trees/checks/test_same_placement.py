"""The law of comparisons: on one mesh, shardings are equal exactly if they map devices to the same slices."""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import check_report, tree_diff_report
from tests.arrays import mesh_of

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

ENTRIES = [None, "data", "model", ("data", "model"), ("model", "data"), ("data", "one")]


def in_xla_form(sharding):
    """Return the GSPMDSharding with the same placement, as JAX 0.4 to 0.6 gives to results of jit."""
    try:
        from jax._src.sharding_impls import GSPMDSharding
    except ImportError:
        pytest.skip(f"jax {jax.__version__} has no GSPMDSharding")
    return GSPMDSharding(tuple(sharding.mesh.devices.flat), sharding._to_xla_hlo_sharding(2))


@pytest.fixture(scope="module")
def arrays():
    mesh = mesh_of((4, 2, 1), ("data", "model", "one"))
    specs = [
        (first, second)
        for first, second in itertools.product(ENTRIES, ENTRIES)
        if not set(np.atleast_1d(first or ())) & set(np.atleast_1d(second or ()))
    ]
    named = [NamedSharding(mesh, P(*spec)) for spec in specs]
    zeros = np.zeros((64, 8), np.float32)
    shardings = [*named, *map(in_xla_form, named)]
    return [jax.make_array_from_callback((64, 8), one, zeros.__getitem__) for one in shardings]


def test_shardings_are_the_same_exactly_if_devices_hold_the_same_slices(arrays):
    maps = [one.sharding.devices_indices_map(one.shape) for one in arrays]
    for (one, held), (other, also) in itertools.product(zip(arrays, maps, strict=True), repeat=2):
        is_same = tree_diff_report({"w": one}, {"w": other}).is_empty
        found = check_report({"w": one}, expect={"w": other.sharding}).findings
        is_expected = "unexpected sharding" not in [finding.kind for finding in found]
        assert (is_same, is_expected) == (held == also, held == also), (one.sharding, other.sharding)
