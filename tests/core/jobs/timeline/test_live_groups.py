"""Live arrays are counted from sample to sample, and none is kept alive."""

import random
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core.jobs.timeline.in_use import MOST_BYTES, MOST_RISEN, LiveGroups
from tests.arrays import mesh_of, sharded
from tests.growing import born, no_collector

pytestmark = pytest.mark.once_per_version


def nothing():
    pass


def updated(groups=None, pause=nothing):
    groups = groups or LiveGroups(jax.local_devices())
    groups.update(jax.live_arrays, pause)
    return groups


def found_by(groups, function):
    return {
        group.facts.type: group.count
        for group in groups.live
        if group.facts.origin and group.facts.origin.function == function
    }


def test_arrays_are_grouped_by_line_and_type(no_arrays):
    kept = born(3)
    groups = updated()
    assert found_by(groups, "born") == {"float32[10]": 3}
    assert (groups.count, groups.device_nbytes[0]) == (3, 120)
    kept += born(2)
    assert found_by(updated(groups), "born") == {"float32[10]": 5}
    del kept[1:]
    assert found_by(updated(groups), "born") == {"float32[10]": 1}
    kept[0].delete()
    assert updated(groups).live == set()
    assert (groups.count, sum(groups.device_nbytes)) == (0, 0)


@pytest.mark.needs_devices(8)
def test_bytes_are_those_of_each_device(no_arrays):
    kept = sharded((8, 4), mesh_of((2, 2), ("a", "b"), jax.devices()[4:]), "a")
    groups = updated()
    (group,) = groups.live
    assert (group.facts.devices, group.facts.shard_nbytes) == ((4, 5, 6, 7), 64)
    assert groups.device_nbytes == [0, 0, 0, 0, 64, 64, 64, 64]
    assert group.nbytes == 4 * 64
    assert kept.nbytes == 128


def test_an_array_at_the_address_of_another_is_a_new_one(no_arrays):
    groups = LiveGroups(jax.local_devices())
    for length in range(1, 300):
        kept = jax.device_put(np.zeros(length, np.int8))
        updated(groups)
        assert [group.facts.type for group in groups.live] == [f"int8[{length}]"]
        del kept


def test_no_array_is_alive_in_a_pause_that_the_program_has_dropped(no_arrays, monkeypatch):
    monkeypatch.setattr("jax_array_info_core.arrays.live.census._LONGEST", 0)
    with no_collector():
        kept = born(1200)
        references = list(map(weakref.ref, kept))
        pauses = []

        def pause():
            if kept:
                del kept[-100:]
            pauses.append(sum(reference() is not None for reference in references) - len(kept))

        groups = updated(pause=pause)
        assert set(pauses) == {0}
        assert len(pauses) > 12
        assert updated(groups).count == 0


def test_arrays_that_are_freed_before_they_are_read_are_told(no_arrays, monkeypatch):
    monkeypatch.setattr("jax_array_info_core.arrays.live.census._LONGEST", 0)
    kept = born(50)
    groups = LiveGroups(jax.local_devices())
    assert groups.update(jax.live_arrays, kept.clear) == 40
    assert groups.update(jax.live_arrays, nothing) == 0
    assert groups.count == 0


def test_counts_stay_right_while_arrays_come_and_go(no_arrays):
    rng = random.Random(0)
    kept, groups = [], LiveGroups(jax.local_devices())
    for _ in range(60):
        rng.shuffle(kept)
        del kept[: rng.randrange(12)]
        kept += [jax.device_put(np.zeros(rng.randrange(1, 6), np.int8)) for _ in range(rng.randrange(12))]
        updated(groups)
        again = updated()
        assert {group.facts: group.count for group in groups.live} == {
            group.facts: group.count for group in again.live
        }
        assert groups.device_nbytes == again.device_nbytes
        assert groups.count == len(kept)


@pytest.mark.needs_devices(8)
def test_views_are_left_out_until_they_hold_the_memory(no_arrays):
    kept = sharded((8, 4), mesh_of((8,), ("a",)), "a")
    groups = updated()
    view = kept.addressable_shards[0].data
    assert updated(groups).count == 1
    assert groups.device_nbytes == [16] * 8
    del kept
    assert updated(groups).count == 1
    assert groups.device_nbytes == [16] + [0] * 7
    del view
    assert updated(groups).count == 0


def test_the_largest_groups_come_first_then_those_that_increased_most_often(no_arrays):
    large = [jax.device_put(np.zeros(1000 + number, np.float32)) for number in range(MOST_BYTES)]
    small, groups = [], LiveGroups(jax.local_devices())
    for _ in range(2):
        small += [jax.device_put(np.zeros(1 + number, np.int8)) for number in range(30)]
        updated(groups)
    found = groups.largest(nothing)
    assert len(found) == MOST_BYTES + MOST_RISEN
    assert [group.nbytes for group in found[:MOST_BYTES]] == sorted((a.nbytes for a in large), reverse=True)
    assert [group.facts.shape for group in found[MOST_BYTES:]] == [
        (n,) for n in range(30, 30 - MOST_RISEN, -1)
    ]
    assert small


def test_a_leak_is_among_the_groups_of_a_model_that_is_built_later(no_arrays):
    groups = updated()
    model = [jax.device_put(np.zeros(1000 + number, np.float32)) for number in range(MOST_BYTES + 50)]
    leak = []
    for _ in range(3):
        leak += born(1)
        updated(groups)
    assert "born" in [group.facts.origin.function for group in groups.largest(nothing)]
    assert model


def test_more_kinds_of_arrays_than_are_remembered_are_counted(no_arrays, monkeypatch):
    monkeypatch.setattr("jax_array_info_core.arrays.live.census._MOST_KNOWN", 4)
    kept = [jnp.zeros((n % 9,)) for n in range(27)]
    groups = updated()
    kept += [jnp.zeros((n % 9,)) for n in range(9)]
    assert sorted(group.count for group in updated(groups).live) == [1] * 9 + [3] * 9
    del kept
    assert updated(groups).live == set()
