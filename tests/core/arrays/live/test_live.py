"""Groups of live arrays and the totals per device."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import label_array, live_array_report
from jax_array_info_core.arrays.live.census import Census
from jax_array_info_core.arrays.live.report import LiveArrays
from jax_array_info_core.reports import LiveArrayGroup
from tests.arrays import FakeDevice, mesh_of, sharded


def test_arrays_that_differ_only_in_values_are_one_group(no_arrays):
    arrays = [jnp.full((7,), float(number)) for number in range(120)]
    other = jnp.zeros((7,), jnp.int8)
    report = live_array_report()
    memory_kind = jax.devices()[0].default_memory().kind
    floats = LiveArrayGroup(
        shape=(7,),
        dtype="float32",
        nbytes=28,
        shard_nbytes=28,
        device_count=1,
        replicas=1,
        label=None,
        count=120,
        device_counts=((0, 120),),
        sharding="SingleDeviceSharding",
        memory_kind=memory_kind,
    )
    integers = replace(floats, dtype="int8", nbytes=7, shard_nbytes=7, count=1, device_counts=((0, 1),))
    assert report.groups == (floats, integers)
    assert report.array_count == 121
    for name in ("five", "six"):
        label_array(arrays[len(name)], name)
    assert [(group.label, group.count) for group in live_array_report().groups] == [
        (None, 118),
        ("five", 1),
        ("six", 1),
        (None, 1),
    ]
    assert other is not None


@pytest.mark.needs_devices(8)
def test_groups_are_sorted_by_their_bytes_per_device(no_arrays):
    mesh = mesh_of((4, 2), ("a", "b"))
    kept = [
        sharded((16, 16), mesh, "a", "b"),
        sharded((16, 16), mesh, "b"),
        jnp.zeros((8, 8)),
        sharded((16, 16), mesh),
    ]
    groups = live_array_report().groups
    assert [(group.shard_nbytes, group.replicas, group.device_count) for group in groups] == [
        (1024, 8, 8),
        (512, 4, 8),
        (256, 1, 1),
        (128, 1, 8),
    ]
    assert {group.nbytes for group in groups} == {1024, 256}
    assert len(kept) == 4


def test_deleted_arrays_are_not_listed(no_arrays):
    array = jnp.zeros((5, 5))
    array.delete()
    donated = jnp.zeros((6, 6))
    result = jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    expected = 1 if donated.is_deleted() else 2
    assert live_array_report().array_count == expected
    assert result is not None


def test_without_a_memory_profile_the_bytes_are_summed_over_the_arrays(no_arrays, monkeypatch):
    def refuse(backend=None):
        raise NotImplementedError("no profile on this backend")

    monkeypatch.setattr(jax.profiler, "device_memory_profile", refuse)
    count = len(jax.devices())
    array = sharded((count, 25), mesh_of((count,), ("a",)), "a")
    report = live_array_report()
    assert report.nbytes_source == "arrays"
    assert report.device_nbytes == tuple((device.id, 100) for device in jax.devices())
    assert array is not None


def test_a_report_without_live_arrays_has_zero_bytes(no_arrays):
    report = live_array_report("cpu")
    assert (report.platform, report.groups, report.array_count) == ("cpu", (), 0)
    assert report.device_nbytes == tuple((device.id, 0) for device in jax.local_devices())


def test_pmap_and_named_shardings_are_counted(no_arrays):
    count = len(jax.devices())
    by_pmap = jax.pmap(lambda x: x * 2)(np.ones((count, 3), np.float32))
    named = jax.device_put(jnp.zeros((4,)), NamedSharding(mesh_of((count,), ("a",)), P()))
    groups = {group.shape: group for group in live_array_report().groups}
    assert groups[by_pmap.shape].shard_nbytes == 12
    assert groups[named.shape].replicas == count


def test_a_group_has_the_number_of_arrays_on_each_device(no_arrays):
    arrays = [jax.device_put(np.ones(256, np.float32), device) for device in jax.devices()]
    (group,) = live_array_report().groups
    assert group.count == len(arrays)
    assert group.device_counts == tuple((device.id, 1) for device in jax.devices())


class State:
    def __init__(self, params):
        self.params = params


def test_a_group_has_the_shortest_reference_path_to_one_of_its_arrays(no_arrays):
    state = State([jnp.zeros((2, 3)), jnp.zeros((2, 3))])
    single = jnp.zeros(4)
    report = live_array_report(referrers=True, max_seconds=None)
    assert len(state.params) == 2
    here = f"{test_a_group_has_the_shortest_reference_path_to_one_of_its_arrays.__name__}() local"
    assert {group.shape: (group.holder, group.unheld_count) for group in report.groups} == {
        (2, 3): (f"{here} state.params[0]", 0),
        single.shape: (f"{here} single", 0),
    }
    assert report.holders == "complete"
    assert live_array_report(referrers=True, max_seconds=0).holders == "incomplete"
    assert live_array_report().holders == "not asked"


class StandIn(SimpleNamespace):
    """A stand-in for an array. Unlike a plain namespace, it may have weak references."""


def test_arrays_on_this_and_on_other_processes_are_two_groups():
    arrays = [
        StandIn(
            aval=None,
            shape=(4,),
            dtype=np.dtype("float32"),
            sharding=NamedSharding(mesh_of((1,), ("a",), [FakeDevice(process, process)]), P()),
        )
        for process in (0, 0, 1, 1, 1)
    ]
    groups = LiveArrays(arrays, origins=False).groups()
    assert [(group.count, group.local_nbytes, group.device_counts) for group in groups] == [
        (2, 16, ((0, 2),)),
        (3, 0, ()),
    ]


class Described:
    """An array whose aval is made anew each time."""

    def __init__(self, length, sharding):
        self.shape, self.dtype, self.sharding = (length,), jnp.dtype("int8"), sharding

    @property
    def aval(self):
        return jax.core.ShapedArray(self.shape, self.dtype)


def test_kinds_are_right_where_an_array_keeps_no_aval():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    kinds = Census(callers=None).kinds([Described(length, sharding) for length in range(1, 50)])
    assert [kind.template.shape for kind in kinds] == [(length,) for length in range(1, 50)]
