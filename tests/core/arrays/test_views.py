"""Views: live arrays that share the buffers of another live array."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, label_array, live_array_report, to_json
from jax_array_info_core.arrays.labels import bases_of_views
from tests.arrays import mesh_of, sharded


@pytest.mark.needs_devices(8)
def test_a_shard_is_a_view_of_its_array(no_arrays):
    mesh = mesh_of((4, 2), ("a", "b"))
    array, other = sharded((8, 4), mesh, "a"), sharded((8, 4), mesh, "a")
    assert bases_of_views(jax.live_arrays()) == {}
    shards = array.addressable_shards
    alive = jax.live_arrays()
    bases = bases_of_views(alive)
    assert sorted(bases) == sorted(id(shard.data) for shard in shards)
    assert all(base is array for base in bases.values())
    assert len(alive) == len(jax.live_arrays()) == 10
    assert other is not None


@pytest.mark.needs_devices(8)
def test_a_shard_that_outlives_its_array_is_not_a_view(no_arrays):
    array = sharded((8, 4), mesh_of((8,), ("a",)), "a")
    shards = array.addressable_shards
    del array
    assert len(jax.live_arrays()) == len(shards) == 8
    assert bases_of_views(jax.live_arrays()) == {}


@pytest.mark.needs_devices(8)
def test_shards_of_keys_are_views_of_their_base_array(no_arrays):
    mesh = mesh_of((8,), ("a",))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, P("a")))
    before = {id(array) for array in jax.live_arrays()}
    shards = keys.addressable_shards
    made = [array for array in jax.live_arrays() if id(array) not in before]
    assert set(bases_of_views(jax.live_arrays())) == {id(array) for array in made}
    assert len(shards) == 8


def test_finding_views_creates_no_array(no_arrays):
    count = len(jax.devices())
    arrays = [jnp.ones(3), sharded((count,), mesh_of((count,), ("a",)), "a")]
    alive = jax.live_arrays()
    assert bases_of_views(alive) == {}
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
    assert (views.shard_nbytes, views.local_nbytes) == (0, 0)
    assert len(views.device_counts) == 8
    assert from_json(to_json(after)) == after
    label_array(array, "params")
    assert live_array_report().groups[1].views_of == "params"

    def refuse(backend=None):
        raise NotImplementedError("no profile on this backend")

    monkeypatch.setattr(jax.profiler, "device_memory_profile", refuse)
    summed = live_array_report()
    assert summed.nbytes_source == "arrays"
    assert summed.device_nbytes == before.device_nbytes
    del array, shards


@pytest.mark.needs_devices(8)
def test_views_of_different_arrays_are_different_groups(no_arrays):
    mesh = mesh_of((8,), ("a",))
    one, other = sharded((8, 4), mesh, "a"), sharded((8, 4), mesh, "a")
    label_array(one, "one")
    shards = [one.addressable_shards, other.addressable_shards]
    views = {group.views_of: group.count for group in live_array_report().groups if group.views_of}
    assert views == {"one": 8, "float32[8,4]": 8}
    assert len(shards) == 2


@pytest.mark.needs_devices(8)
def test_the_referrers_of_views_are_their_array_and_the_users_variables(no_arrays):
    array = sharded((8, 4), mesh_of((8,), ("a",)), "a")
    mine = {"third": array.addressable_shards[2]}
    again = array
    report = live_array_report(referrers=True, max_seconds=None)
    [views] = [group for group in report.groups if group.views_of]
    before = "test_the_referrers_of_views_are_their_array_and_the_users_variables() local"
    expected = [f"{before} array.addressable_shards[{number}]" for number in range(8) if number != 2]
    assert sorted(views.holders) == sorted([*expected, f"{before} mine['third']"])
    assert views.other_holder_count == 0
    assert views.unheld_count == 0
    assert mine
    assert again is array
