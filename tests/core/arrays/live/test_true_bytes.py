"""Bytes of live arrays, compared with sizes that are known by construction."""

import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import config, live_array_report
from jax_array_info_core.base import reading_lock
from tests.arrays import mesh_of, sharded, slow_program
from tests.growing import no_collector
from tests.threads import in_threads

MIB = 2**20


def device_nbytes(**options):
    return [nbytes for _, nbytes in live_array_report(**options).device_nbytes]


def on_first(nbytes):
    """Return the bytes on each device where all of them are on the first."""
    return [nbytes] + [0] * (jax.local_device_count() - 1)


def has_memory(memory_kind):
    return any(memory.kind == memory_kind for memory in jax.devices()[0].addressable_memories())


needs_host_memory = pytest.mark.skipif(
    not has_memory("pinned_host"), reason=f"jax {jax.__version__} has one memory kind on CPU"
)


@pytest.mark.needs_devices(8)
def test_a_sharded_and_a_replicated_array_take_36_mib_with_and_without_views(no_arrays):
    mesh = mesh_of((8,), ("a",))
    arrays = [sharded((MIB,), mesh, "a"), sharded((MIB,), mesh)]
    for count in (2, 2 + 2 * 8):
        report = live_array_report()
        assert report.device_nbytes == tuple((device.id, 4.5 * MIB) for device in jax.devices())
        assert (report.nbytes_source, report.array_count) == ("profile", count)
        for array in arrays:
            array.addressable_shards  # noqa: B018 - creates views


def test_a_report_adds_no_array(no_arrays):
    count = jax.local_device_count()
    mesh = mesh_of((count,), ("a",))
    arrays = [jnp.ones((3,)), sharded((count, 2), mesh, "a"), jnp.float32(2), jax.random.key(0)]
    arrays.append(jax.device_put(arrays[0], jax.devices()[0]))
    alive = len(jax.live_arrays())
    for _ in range(2):
        report = live_array_report(origins=True)
    assert report.array_count == alive == len(jax.live_arrays())
    report = live_array_report(origins=True, referrers=True, max_seconds=None)
    assert report.array_count == alive == len(jax.live_arrays())


def test_sub_byte_dtypes_are_counted_as_packed(no_arrays):
    array = jnp.zeros(1001, jnp.int4)
    (group,) = live_array_report().groups
    assert (group.nbytes, group.shard_nbytes) == (501, 501)
    # JAX 0.10 stores one element per byte on CPU devices.
    packed = jax.__version_info__[:2] != (0, 10)
    assert device_nbytes() == on_first(501 if packed else 1001)
    assert array is not None


def test_a_prng_key_takes_the_bytes_of_its_uint32_array(no_arrays):
    keys = jax.random.split(jax.random.key(0), 1000)
    assert device_nbytes() == on_first(8000)
    assert keys is not None


@needs_host_memory
def test_host_memory_is_reported_separately(no_arrays):
    count = jax.local_device_count()
    mesh = mesh_of((count,), ("a",))
    here = jnp.ones((1000,))
    single = jax.device_put(np.ones(500, np.float32), pinned())
    spread = jax.device_put(
        np.ones((count, 100), np.float32), NamedSharding(mesh, P("a"), memory_kind="pinned_host")
    )
    report = live_array_report()
    assert [nbytes for _, nbytes in report.device_nbytes] == on_first(4000)
    others = [(device.id, 400) for device in jax.devices()[1:]]
    assert report.host_nbytes == ((jax.devices()[0].id, 2400), *others)
    assert {group.shape: group.memory_kind for group in report.groups} == {
        here.shape: jax.devices()[0].default_memory().kind,
        single.shape: "pinned_host",
        spread.shape: "pinned_host",
    }


@needs_host_memory
def test_shared_buffers_in_host_memory_leave_the_device_bytes_unchanged(no_arrays):
    array = jnp.ones(1000)
    host = jax.device_put(np.ones(1000, np.float32), pinned())
    for _ in range(2):
        report = live_array_report()
        assert [nbytes for _, nbytes in report.device_nbytes] == on_first(4000)
        assert report.host_nbytes == ((jax.devices()[0].id, 4000),)
        shards = [shard.data for shard in host.addressable_shards]
    assert len(jax.live_arrays()) == 2 + len(shards)
    assert array is not None


def pinned():
    return SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")


def test_shared_buffers_are_counted_once(no_arrays):
    array = jnp.ones((100,))
    other, alias = jnp.zeros((100,)), jax.device_put(array, jax.devices()[0])
    report = live_array_report()
    # Default host memory counts as device memory.
    assert (report.array_count, report.host_nbytes) == (3, ())
    assert [nbytes for _, nbytes in report.device_nbytes] == on_first(800)
    assert None not in (other, alias)


def test_no_report_keeps_an_array_alive():
    array = jnp.ones((4,))
    alive = weakref.ref(array)
    with no_collector():
        report = live_array_report(origins=True, referrers=True)
        del array
        assert alive() is None
    assert report.array_count


@pytest.mark.needs_devices(8)  # on a single CPU device, a program with a callback runs synchronously
def test_no_report_waits_for_a_computation(no_arrays):
    with slow_program() as start:
        result = start()
        report = live_array_report(origins=True, referrers=True)
        assert not result.is_ready()
    assert report.array_count >= 2


def made_here():
    return [jnp.ones((6, 5)) for _ in range(2)]


def test_the_origin_is_the_innermost_line_of_user_code(no_arrays, tmp_path):
    arrays = [*made_here(), jax.random.split(jax.random.key(0), 3)[0], jax.device_put(2.5)]
    report = live_array_report(origins=True)
    assert report.origins == "known"
    names = {group.shape: (group.origin.file, group.origin.function) for group in report.groups}
    assert names[6, 5] == (__file__, "made_here")
    assert names[()] == (__file__, "test_the_origin_is_the_innermost_line_of_user_code")
    assert all(group.origin.file == __file__ for group in report.groups)
    assert all(group.origin is None for group in live_array_report().groups)
    assert len(arrays) == 4


def test_frames_of_hidden_modules_are_skipped(no_arrays):
    arrays = made_here()
    try:
        config.hidden_modules = ("tests",)
        (group,) = live_array_report(origins=True).groups
    finally:
        config.hidden_modules = ()
    assert group.origin is None or group.origin.file != __file__
    assert len(arrays) == 2


@pytest.mark.newest
@pytest.mark.needs_devices(8)  # takes seconds, so only once per JAX version
def test_reports_are_right_while_sixteen_threads_create_and_delete_arrays(no_arrays, monkeypatch):
    """No report exceeds the most arrays that can be alive, and the last one has the arrays that are left."""
    # On a busy machine, a thread could stop waiting for the lock and read at the same time as the others.
    monkeypatch.setattr(reading_lock, "_LONGEST_READING", threading.TIMEOUT_MAX)
    threads, kept, most = 16, 4, 8
    nbytes = 4 * 1000
    seen = []
    end = time.monotonic() + 3

    def work(number):
        mine = []
        is_late = False
        while not is_late:  # at least once, however late the thread begins
            is_late = time.monotonic() >= end
            mine += [jax.device_put(np.full(1000, number, np.float32)) for _ in range(most - len(mine))]
            report = live_array_report(origins=True, referrers=number == 0, max_seconds=0.2)
            seen.append((report.array_count, report.device_nbytes[0][1]))
            mine[0].delete()
            del mine[:kept]
        return mine[:kept]

    left = in_threads(work, range(threads))
    assert max(count for count, _ in seen) <= threads * most
    assert max(total for _, total in seen) <= threads * most * nbytes
    assert device_nbytes() == on_first(threads * kept * nbytes)
    assert sum(map(len, left)) == threads * kept
