"""Views: live arrays that share the buffers of another."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.memory.views import bases_of_views
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
def test_a_shard_that_outlives_its_array_is_no_view(no_arrays):
    array = sharded((8, 4), mesh_of((8,), ("a",)), "a")
    shards = array.addressable_shards
    del array
    assert len(jax.live_arrays()) == len(shards) == 8
    assert bases_of_views(jax.live_arrays()) == {}


@pytest.mark.needs_devices(8)
def test_shards_of_keys_are_views_of_the_array_under_them(no_arrays):
    mesh = mesh_of((8,), ("a",))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, P("a")))
    before = {id(array) for array in jax.live_arrays()}
    shards = keys.addressable_shards
    made = [array for array in jax.live_arrays() if id(array) not in before]
    assert set(bases_of_views(jax.live_arrays())) == {id(array) for array in made}
    assert len(shards) == 8


def test_looking_for_views_adds_nothing(no_arrays):
    count = len(jax.devices())
    arrays = [jnp.ones(3), sharded((count,), mesh_of((count,), ("a",)), "a")]
    alive = jax.live_arrays()
    assert bases_of_views(alive) == {}
    assert len(jax.live_arrays()) == len(arrays)
