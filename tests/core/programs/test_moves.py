"""Memory of devices and hosts while trees move."""

import dataclasses
import gc
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, to_json
from jax_array_info_core.compat.processes import compared_copies
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.programs.reshard import reshard_report
from jax_array_info_core.trees.tree_report import tree_report
from tests.arrays import mesh_of
from tests.core.programs.test_memory import has_pinned_host
from tests.core.programs.test_reshard import fake_mesh, leaf, planned

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]

KIB = 1024
SHAPE = (64, 64)
NBYTES = 16 * KIB
SHARDED = P("d")


def on(ids, spec=SHARDED, sizes=None, names=("d",)):
    """Return a sharding over some devices, in their order."""
    devices = [jax.devices()[number] for number in ids]
    return NamedSharding(mesh_of(sizes or (len(devices),), names, devices), spec)


def array(sharding):
    """Return an array that a program makes, so that its shards are memory of their own."""
    return jax.block_until_ready(jax.jit(lambda: jnp.ones(SHAPE, jnp.float32), out_shardings=sharding)())


def held(*arrays):
    """Return the bytes of the buffers of arrays on each device; buffers of two arrays count once."""
    buffers = {
        (shard.device.id, shard.data.unsafe_buffer_pointer(), shard.data.nbytes)
        for one in arrays
        for shard in one.addressable_shards
    }
    sums = dict.fromkeys((device.id for device in jax.devices()), 0)
    for device, _, nbytes in buffers:
        sums[device] += nbytes
    return list(sums.values())


def modeled(report, way):
    """Return the peak of each device for a way, by its place."""
    place = [one.name for one in report.ways].index(way)
    peaks = dict.fromkeys((device.id for device in jax.devices()), 0)
    for alike in report.peaks:
        for piece in alike.devices.split(","):
            first, _, last = piece.partition("-")
            peaks |= dict.fromkeys(range(int(first), int(last or first) + 1), alike.peaks[place])
    return list(peaks.values())


def way(report, name):
    """Return one way of a report."""
    return next(one for one in report.ways if one.name == name)


def with_replicas():
    """Return a sharding of four shards, with their first replicas on devices 0 to 3."""
    return on([0, 4, 1, 5, 2, 6, 3, 7], sizes=(4, 2), names=("d", "y"))


MOVES = {
    "other spec": lambda: (on(range(8)), on(range(8), P(None, "d"))),
    "replicated to sharded": lambda: (on(range(8), P()), on(range(8))),
    "other order": lambda: (on(range(8)), on(range(7, -1, -1))),
    "other order and spec": lambda: (on(range(8)), on(range(7, -1, -1), P(None, "d"))),
    "other devices": lambda: (on(range(4)), on(range(4, 8))),
    "other devices and spec": lambda: (on(range(4)), on(range(4, 8), P(None, "d"))),
    "overlap at other places": lambda: (on(range(4)), on(range(2, 6))),
    "overlap at the same places": lambda: (on(range(4)), on([0, 1, 4, 5])),
    "replicas at other places": lambda: (on(range(4), P()), on([4, 5, 0, 1], P())),
    "more replicas": lambda: (on(range(4), P()), on(range(8), P())),
    "replicas of shards": lambda: (on(range(4)), with_replicas()),
    "without replicas of shards": lambda: (with_replicas(), on(range(4))),
    "to more shards": lambda: (on(range(4)), on(range(8))),
    "one device to replicas": lambda: (SingleDeviceSharding(jax.devices()[0]), on(range(8), P())),
    "to one device": lambda: (on(range(8)), SingleDeviceSharding(jax.devices()[0])),
    "replicas to one device": lambda: (on(range(8), P()), SingleDeviceSharding(jax.devices()[0])),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_model_holds_what_jax_holds_when_both_trees_live(name):
    """Buffers that ``jax.device_put`` shares between the old and the new array are counted once."""
    source, target = MOVES[name]()
    before = array(source)
    report = reshard_report({"w": before}, {"w": target})
    after = jax.block_until_ready(jax.device_put(before, target))
    assert modeled(report, "at once") == held(before, after)
    assert from_json(to_json(report)) == report


def test_leaf_by_leaf_drops_each_old_leaf_before_the_next():
    """The peak of each device is the largest sum of the buffers after each step of the loop."""
    source, target = on(range(4)), on(range(2, 6), P(None, "d"))
    tree = [array(source) for _ in range(3)]
    report = reshard_report(tree, [target] * 3)
    assert modeled(report, "leaf by leaf")[2] == way(report, "leaf by leaf").device_nbytes
    peaks = held(*tree)
    for number, before in enumerate(tree):
        after = jax.block_until_ready(jax.device_put(before, target))
        peaks = list(map(max, peaks, held(*tree, after)))
        tree[number] = after
    assert modeled(report, "leaf by leaf") == peaks
    assert way(report, "leaf by leaf").device_nbytes == 4 * NBYTES // 4
    assert way(report, "at once").device_nbytes == 6 * NBYTES // 4


def test_a_move_by_way_of_the_host_holds_the_leaf_there_for_as_long_as_the_old_one():
    source, target = on(range(8)), on(range(8), P(None, "d"))
    tree = [array(source) for _ in range(3)]
    report = reshard_report(tree, [target] * 3)
    assert (way(report, "at once").host_nbytes, way(report, "at once").host_bound) == (3 * NBYTES, "at least")
    assert way(report, "leaf by leaf").host_nbytes == NBYTES
    whole = reshard_report(tree[0], on(range(7, -1, -1)))
    assert way(whole, "at once").host_nbytes == 0


def test_slices_of_an_array_on_one_device_are_all_there_at_once():
    one = SingleDeviceSharding(jax.devices()[0])
    report = reshard_report({"w": leaf(*SHAPE, sharding=one)}, {"w": on(range(8))})
    assert modeled(report, "at once") == [2 * NBYTES, *[NBYTES // 8] * 7]
    assert (way(report, "at once").bound, way(report, "leaf by leaf").bound) == (None, None)
    two = reshard_report([leaf(*SHAPE, sharding=one)] * 2, on(range(8)))
    assert (way(two, "at once").bound, way(two, "leaf by leaf").bound) == ("at least", None)


def test_nothing_moves_between_equal_shardings():
    report = reshard_report({"w": array(on(range(8)))}, {"w": on(range(8), P("d", None))})
    assert (report.ways, report.peaks, report.nbytes) == ((), (), 0)


def test_a_donated_identity_reuses_shards_of_as_many_bytes():
    """The least is the larger of the two; without equal shards it is their sum."""
    source, target = on(range(8)), on(range(8), P(None, "d"))
    tree = {"w": leaf(*SHAPE, sharding=source)}
    donated = way(reshard_report(tree, {"w": target}), "jit, donated")
    assert (donated.device_nbytes, donated.bound, donated.sent_nbytes) == (NBYTES // 8, "at least", None)
    smaller = {"w": leaf(*SHAPE, sharding=on(range(8), P()))}
    donated = way(reshard_report(smaller, {"w": target}), "jit, donated")
    assert donated.device_nbytes == NBYTES + NBYTES // 8


def test_a_compiled_identity_has_its_temporary_values_and_its_traffic():
    """An all-to-all sends 7/8 of the shard, and nothing moves from replicas."""
    tree = {"w": leaf(*SHAPE, sharding=on(range(8))), "b": leaf(8, sharding=on(range(8), P()))}
    report = reshard_report(tree, {"w": on(range(8), P(None, "d")), "b": on(range(8), P())}, compiled=True)
    donated = way(report, "jit, donated")
    assert donated.bound is None
    assert donated.sent_nbytes == report.device_nbytes == NBYTES // 8 * 7 // 8
    assert donated.device_nbytes >= NBYTES // 8 + 32  # the leaf that stays
    replicated = reshard_report({"w": leaf(*SHAPE, sharding=on(range(8), P()))}, on(range(8)), compiled=True)
    assert way(replicated, "jit, donated").sent_nbytes == 0


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (lambda: on(range(4)), lambda: on(range(4, 8)), "other devices than their targets"),
        (lambda: on(range(8)), lambda: on(range(7, -1, -1)), "or in another order"),
        (lambda: None, lambda: on(range(8)), "on no device"),
    ],
)
def test_jit_refuses_other_devices_than_those_of_its_arguments(source, target, reason):
    tree = {"w": leaf(*SHAPE, sharding=source()) if source() else np.ones(SHAPE, np.float32)}
    donated = way(reshard_report(tree, {"w": target()}, compiled=True), "jit, donated")
    assert donated.device_nbytes is None
    assert reason in donated.reason


def test_an_array_at_two_paths_is_two_arrays_after_the_move():
    """``jax.device_put`` puts each leaf; the old one is dropped with its last path."""
    before, target = array(on(range(8))), on(range(8), P(None, "d"))
    report = reshard_report({"a": before, "b": before}, target)
    after = jax.device_put([before, before], target)
    assert modeled(report, "at once") == held(before, *after)
    assert way(report, "leaf by leaf").device_nbytes == 3 * NBYTES // 8
    assert report.restored_nbytes == way(report, "from files").device_nbytes == held(*after)[0]
    assert "several paths" in way(report, "jit, donated").reason


def test_an_array_that_also_stays_at_another_path_is_not_donated():
    """Donation would delete the leaf that stays, whichever of the two is first."""
    before, target = array(on(range(8))), on(range(8), P(None, "d"))
    for moving in "ab":
        targets = {"a": None, "b": None, moving: target}
        report = reshard_report({"a": before, "b": before}, targets, compiled=True)
        assert "several paths" in way(report, "jit, donated").reason
        assert report.restored_nbytes == held(before, jax.device_put(before, target))[0]


def test_an_array_that_stays_at_two_paths_is_held_once():
    """A restore from files makes an array for each path."""
    tied, other, target = array(on(range(8))), array(on(range(8))), on(range(8), P(None, "d"))
    report = reshard_report({"a": tied, "b": tied, "c": other}, {"a": None, "b": None, "c": target})
    [alike] = report.peaks
    assert alike.after_nbytes == report.restored_nbytes == held(tied, jax.device_put(other, target))[0]
    assert way(report, "from files").device_nbytes == 3 * NBYTES // 8


def test_a_shared_buffer_outlives_the_last_path_of_the_old_array():
    """Leaf by leaf, the old array is dropped with its last path, but not the shards that others have."""
    replicated, columns = on(range(8), P()), on(range(8), P(None, "d"))
    old, other = array(replicated), array(on(range(8)))
    for first in (SingleDeviceSharding(jax.devices()[0]), replicated):
        targets = [first, columns, columns]
        report = reshard_report([old, old, other], targets)
        tree = [old, old, other]
        peaks = held(*tree)
        for number, target in enumerate(targets):
            after = jax.block_until_ready(jax.device_put(tree[number], target))
            peaks = list(map(max, peaks, held(*tree, after)))
            tree[number] = after
        assert modeled(report, "leaf by leaf") == peaks
        assert report.peaks[0].after_nbytes == held(*tree)[0]


def test_the_host_gathers_an_array_at_two_paths_once():
    old, target = array(on(range(8))), on(range(8), P(None, "d"))
    report = reshard_report([old, old], target)
    assert {way(report, name).host_nbytes for name in ("at once", "leaf by leaf")} == {NBYTES}


@pytest.mark.parametrize("target", [lambda: on(range(8)), lambda: SingleDeviceSharding(jax.devices()[3])])
def test_jit_does_not_donate_an_uncommitted_array_on_other_devices(target):
    """A jitted identity runs, but deletes nothing."""
    tree = [jnp.ones(SHAPE)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.jit(lambda leaves: leaves, donate_argnums=0, out_shardings=[target()])(tree)
    assert not tree[0].is_deleted()
    report = reshard_report(tree, target(), compiled=True)
    assert "not donated" in way(report, "jit, donated").reason
    both = reshard_report([*tree, array(on(range(7, -1, -1)))], on(range(8)))
    assert "other devices than their targets" in way(both, "jit, donated").reason


@pytest.mark.skipif(
    not hasattr(jax, "new_ref"),
    reason="this version of JAX has no Refs outside of kernels: jax.new_ref came later",
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_ref_is_refused_except_where_it_stays(compiled):
    """``jax.device_put`` takes it only with its own sharding, and a jitted function cannot return it."""
    ref, target = jax.new_ref(array(on(range(8)))), on(range(8), P(None, "d"))
    with pytest.raises(TypeError):
        jax.device_put(ref, target)
    report = reshard_report({"w": ref}, target, compiled=compiled)
    for name in ("at once", "leaf by leaf", "jit, donated"):
        assert "Ref" in way(report, name).reason
    report = reshard_report({"r": ref, "w": array(on(range(8)))}, {"r": None, "w": target}, compiled=compiled)
    assert [one.reason for one in report.ways] == [None] * 4


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.complex128, np.float32, np.int8])
def test_values_of_the_host_have_the_dtype_that_jax_gives_to_them(dtype):
    """Without x64, 64 bits are 32; also in a report of the tree."""
    tree, target = {"w": np.ones(SHAPE, dtype)}, on(range(8))
    after = jax.device_put(tree["w"], target)
    report = reshard_report(tree, target)
    assert way(report, "at once").device_nbytes == report.restored_nbytes == after.nbytes // 8
    assert (report.nbytes, report.rows[0].dtype) == (after.nbytes, str(after.dtype))
    assert reshard_report(tree_report(tree), target).nbytes == after.nbytes


def test_leaves_in_host_memory_are_bytes_of_the_host():
    tree = planned(P("d"), shape=SHAPE)
    [row] = tree.rows
    host = dataclasses.replace(row, memory_kind="pinned_host", is_in_host_memory=True)
    offloaded = dataclasses.replace(tree, rows=(host,))
    report = reshard_report(offloaded, tree)
    assert way(report, "at once").device_nbytes == NBYTES // 8
    report = reshard_report(tree, offloaded)
    assert (way(report, "at once").device_nbytes, way(report, "from files").device_nbytes) == (NBYTES // 8, 0)


HOST_MOVES = {
    "the same devices": lambda: (on(range(8)), on(range(8))),
    "other shards": lambda: (on(range(8)), on(range(8), P(None, "d"))),
    "other order": lambda: (on(range(8)), on(range(7, -1, -1))),
    "other order and shards": lambda: (on(range(7, -1, -1), P()), on(range(8))),
    "fewer replicas": lambda: (on(range(8), P()), on(range(4), P())),
    "one replica": lambda: (on(range(8), P()), on([5], P())),
    "some other replicas": lambda: (on(range(4), P()), on([2, 4], P())),
    "more replicas": lambda: (on(range(4), P()), on(range(8), P())),
    "without replicas of shards": lambda: (with_replicas(), on(range(4))),
    "other devices": lambda: (on(range(4)), on(range(4, 8))),
}


@pytest.mark.skipif(
    not has_pinned_host(), reason=f"jax {jax.__version__} has one memory kind on CPU, and none to move to"
)
@pytest.mark.parametrize("is_to_host", [True, False])
@pytest.mark.parametrize("name", HOST_MOVES)
def test_moves_to_another_memory_are_refused_where_jax_refuses_them(name, is_to_host):
    source, target = HOST_MOVES[name]()
    if is_to_host:
        target = NamedSharding(target.mesh, target.spec, memory_kind="pinned_host")
    else:
        source = NamedSharding(source.mesh, source.spec, memory_kind="pinned_host")
    before = jax.device_put(np.ones(SHAPE, np.float32), source)
    reason = way(reshard_report({"w": before}, {"w": target}), "at once").reason
    try:
        jax.device_put(before, target)
    except (ValueError, RuntimeError):
        assert "memory kind" in reason
    else:
        assert reason is None


def test_values_that_jax_has_no_dtype_for_are_left_out():
    """Their bytes on a device are not known: ``jax.device_put`` refuses them."""
    values = [np.array(["a"] * 8), np.array([None] * 8), np.ones(8, ">f4"), np.zeros(8, "datetime64[s]")]
    report = reshard_report([*values, np.ones(8, np.float32)], on(range(8)))
    assert (report.skipped_count, report.nbytes, [row.path for row in report.rows]) == (4, 32, ["4"])
    for value in values:
        with pytest.raises(TypeError, match="not a valid JAX array type"):
            jax.device_put(value, on(range(8)))


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.int8, jnp.float32])
def test_a_restore_reads_values_as_numpy_has_them(dtype):
    """A device packs two int4 into a byte, and NumPy none."""
    tree = {"w": jax.ShapeDtypeStruct(SHAPE, dtype, sharding=on(range(8)))}
    files = way(reshard_report(tree, on(range(8), P(None, "d"))), "from files")
    assert (files.host_nbytes, files.host_bound) == (np.zeros(SHAPE, dtype).nbytes, "at most")


def test_plans_have_bounds_since_their_processes_are_not_known():
    report = reshard_report(planned(P("d"), shape=SHAPE), P(None, "d"))
    put = way(report, "at once")
    assert (put.device_nbytes, put.bound, put.host_nbytes) == (2 * NBYTES // 8, "at least", None)
    assert [alike.devices for alike in report.peaks] == ["0-7"]
    with pytest.raises(UnsupportedValueError, match="compiled=True needs the devices"):
        reshard_report(planned(P("d"), shape=SHAPE), P(None, "d"), compiled=True)


def test_the_memory_of_a_device_says_what_fits():
    source, target = on(range(8)), on(range(8), P(None, "d"))
    tree = [leaf(*SHAPE, sharding=source)] * 4
    report = reshard_report(tree, target, hbm_nbytes=6 * KIB * 2)
    fits = {one.name: one.fits(report.hbm_nbytes) for one in report.ways}
    assert fits == {"at once": False, "leaf by leaf": True, "jit, donated": None, "from files": True}


def test_several_processes_compare_a_value_of_the_host_before_they_place_it():
    """Each device holds the values that it compares, on these simulated devices without its own."""
    target = NamedSharding(fake_mesh(range(8), ("d",), 4), P("d"))
    put = way(reshard_report({"w": np.ones(SHAPE, np.float32)}, {"w": target}), "at once")
    assert (put.bound, put.host_nbytes) == ("at least", 2 * NBYTES)
    assert put.device_nbytes >= (compared_copies(2) - 1) * NBYTES


def test_several_processes_move_leaves_by_a_program_or_not_at_all():
    both = fake_mesh(range(8), ("d",), 4)
    first = fake_mesh(range(4), ("d",), 4)
    tree = {"w": leaf(*SHAPE, sharding=NamedSharding(both, P("d")))}
    report = reshard_report(tree, {"w": NamedSharding(both, P(None, "d"))})
    put = way(report, "at once")
    assert (put.device_nbytes, put.bound, put.host_nbytes) == (2 * NBYTES // 8, "at least", 0)
    assert way(report, "from files").host_nbytes == NBYTES // 2
    refused = reshard_report(tree, {"w": NamedSharding(first, P("d"))})
    assert "several processes" in way(refused, "leaf by leaf").reason


def test_an_uncommitted_array_moves_to_other_processes_as_a_value_of_the_host():
    """Each process has it, so that none comes from others. A planned array is committed to its device."""
    both = NamedSharding(fake_mesh(range(8), ("d",), 4), P("d"))
    report = reshard_report({"w": jnp.ones(SHAPE)}, {"w": both})
    assert (way(report, "at once").host_nbytes, report.process_nbytes) == (2 * NBYTES, 0)
    planned = leaf(*SHAPE, sharding=SingleDeviceSharding(jax.devices()[0]))
    report = reshard_report({"w": planned}, {"w": both})
    assert "several processes" in way(report, "at once").reason
    assert report.process_nbytes == NBYTES // 2


def test_looking_at_a_move_keeps_and_makes_no_array():
    tree = {"w": array(on(range(8)))}
    gc.collect()
    before = len(jax.live_arrays())
    reshard_report(tree, on(range(8), P(None, "d")), compiled=True)
    gc.collect()
    assert len(jax.live_arrays()) == before
