"""Views: live arrays that share the buffers of another live array."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, label_array, live_array_report, to_json
from jax_array_info_core.arrays.labels import bases_of_views
from tests.arrays import mesh_of, sharded


def line():
    return mesh_of((8,), ("a",))


def keys():
    return jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(line(), P("a")))


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("make", [lambda: sharded((8, 4), mesh_of((4, 2), ("a", "b")), "a"), keys])
def test_the_shards_of_an_array_are_views_of_it_while_it_lives(make, no_arrays):
    other, array = sharded((8, 4), line(), "a"), make()
    before = jax.live_arrays()
    assert bases_of_views(before) == {}
    shards = array.addressable_shards
    alive = jax.live_arrays()
    bases = bases_of_views(alive)
    assert set(bases) == {id(one) for one in alive} - {id(one) for one in before}
    assert {id(base) for base in bases.values()} == {id(getattr(array, "_base_array", array))}
    assert len(alive) == len(jax.live_arrays()) == len(before) + len(shards) == len(before) + 8
    del array, alive, before, bases
    assert bases_of_views(jax.live_arrays()) == {}
    assert len([other, *shards]) == 9


def test_finding_views_creates_no_array(no_arrays):
    count = len(jax.devices())
    arrays = [jnp.ones(3), sharded((count,), mesh_of((count,), ("a",)), "a")]
    assert bases_of_views(jax.live_arrays()) == {}
    assert len(jax.live_arrays()) == len(arrays)


@pytest.mark.needs_devices(8)
def test_groups_of_views_have_no_bytes(no_arrays, monkeypatch):
    array = sharded((256, 64), mesh_of((4, 2), ("a", "b")), "a")
    before = live_array_report()
    shards = array.addressable_shards
    after = live_array_report()
    assert after.array_count == 9
    assert after.device_nbytes == before.device_nbytes
    base, views = after.groups
    assert (base,) == before.groups
    assert (views.views_of, views.shape, views.count) == ("float32[256,64]", (64, 64), 8)
    assert (views.shard_nbytes, views.local_nbytes, len(views.device_counts)) == (0, 0, 8)
    assert from_json(to_json(after)) == after

    def refuse(backend=None):
        raise NotImplementedError("no profile on this backend")

    monkeypatch.setattr(jax.profiler, "device_memory_profile", refuse)
    summed = live_array_report()
    assert summed.nbytes_source == "arrays"
    assert summed.device_nbytes == before.device_nbytes
    del array, shards


@pytest.mark.needs_devices(8)
def test_views_of_different_arrays_are_different_groups_with_the_labels_of_their_arrays(no_arrays):
    one, other = sharded((8, 4), line(), "a"), sharded((8, 4), line(), "a")
    label_array(one, "one")
    shards = [one.addressable_shards, other.addressable_shards]
    views = {group.views_of: group.count for group in live_array_report().groups if group.views_of}
    assert views == {"one": 8, "float32[8,4]": 8}
    assert len(shards) == 2


@pytest.mark.needs_devices(8)
def test_the_referrers_of_views_are_their_array_and_the_users_variables(no_arrays):
    array = sharded((8, 4), line(), "a")
    mine = {"third": array.addressable_shards[2]}
    again = array
    report = live_array_report(referrers=True, max_seconds=None)
    [views] = [group for group in report.groups if group.views_of]
    before = "test_the_referrers_of_views_are_their_array_and_the_users_variables() local"
    assert views.holder == f"{before} mine['third']"
    assert views.unheld_count == 0
    assert mine
    assert again is array
