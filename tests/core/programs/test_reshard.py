"""Traffic of resharding trees."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, to_json
from jax_array_info_core.arrays.plans import uneven_axes
from jax_array_info_core.errors import SpecError
from jax_array_info_core.programs.reshard import reshard_report
from jax_array_info_core.reports import TreeMesh
from jax_array_info_core.trees.specs import PathRules
from jax_array_info_core.trees.tree_report import tree_report
from tests.arrays import FakeDevice, mesh_of, sharded

pytestmark = pytest.mark.once_per_version


def leaf(*shape, dtype=jnp.float32, sharding=None):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def planned(spec, mesh=None, shape=(8192, 8192), dtype=jnp.float32):
    return tree_report({"w": leaf(*shape, dtype=dtype)}, mesh=mesh or {"d": 8}, specs={"w": spec})


def fake_mesh(ids, names, per_process=None):
    """Return a mesh of simulated devices with these ids, the process of each from its id."""
    ids = np.asarray(ids)
    devices = [
        FakeDevice(number, number // per_process if per_process else 0) for number in ids.ravel().tolist()
    ]
    return Mesh(np.array(devices).reshape(ids.shape), names)


@pytest.mark.parametrize(
    ("before", "after", "device_nbytes", "nbytes"),
    [
        (P("d"), P(None, "d"), 29_360_128, 234_881_024),
        (P("d"), P(), 234_881_024, 8 * 234_881_024),
        (P(), P("d"), 0, 0),
        (P(), P(None, "d"), 0, 0),
        (P("d"), P("d", None), 0, 0),
    ],
)
def test_slices_that_a_device_already_holds_are_not_received(before, after, device_nbytes, nbytes):
    report = reshard_report(planned(before), after)
    assert (report.device_nbytes, report.nbytes, report.process_nbytes) == (device_nbytes, nbytes, None)
    assert report.device_count == 8
    assert (len(report.rows), report.unmoved_count) == ((1, 0) if nbytes else (0, 1))


@pytest.mark.needs_devices(8)
def test_a_device_that_held_nothing_receives_its_whole_shard():
    first, last = (mesh_of((4,), ("d",), part) for part in (jax.devices()[:4], jax.devices()[4:]))
    tree = {"w": sharded((16, 4), first, "d"), "b": jax.device_put(jnp.zeros(4), jax.devices()[0])}
    report = reshard_report(tree, {"w": NamedSharding(last, P("d")), "b": NamedSharding(first, P())})
    assert [(row.path, row.device_nbytes, row.nbytes) for row in report.rows] == [
        ("b", 16, 48),
        ("w", 64, 256),
    ]
    assert (report.device_count, report.device_nbytes, report.nbytes) == (8, 64, 304)


@pytest.mark.needs_devices(8)
def test_all_leaves_of_a_device_add_up():
    mesh = mesh_of((8,), ("d",))
    tree = {name: sharded((8, 8), mesh, "d") for name in "ab"}
    report = reshard_report(tree, {"a": P(None, "d"), "b": P()})
    assert [row.device_nbytes for row in report.rows] == [7 * 4, 7 * 8 * 4]
    assert report.device_nbytes == 7 * 4 + 7 * 8 * 4
    assert (report.rows[0].before, report.rows[0].after) == tuple(
        row.spec
        for row in tree_report(
            {"a": tree["a"], "b": leaf(8, 8, sharding=NamedSharding(mesh, P(None, "d")))}
        ).rows
    )


def test_numpy_arrays_and_leaves_without_a_sharding_are_received_as_whole_shards():
    mesh = fake_mesh(range(8), ("d",))
    target = NamedSharding(mesh, P("d"))
    report = reshard_report({"n": np.zeros((16, 2), np.float32), "s": leaf(16, 4)}, target)
    assert [(row.path, row.device_nbytes, row.process_nbytes) for row in report.rows] == [
        ("n", 16, 0),
        ("s", 32, 0),
    ]


def test_leaves_without_a_target_stay():
    mesh = fake_mesh(range(8), ("d",))
    tree = {"a": leaf(8, sharding=NamedSharding(mesh, P("d"))), "b": leaf(8), "c": np.zeros(8), "n": None}
    report = reshard_report(tree, {"a": P(), "b": None, "c": None, "n": None})
    assert [row.path for row in report.rows] == ["a"]
    assert report.unmoved_count == 2
    assert reshard_report(tree, {"a": leaf(8)}).rows == ()


def test_slices_in_host_memory_are_received_by_the_device():
    """Nothing of them comes from other processes."""
    tree = planned(P("d"))
    [row] = tree.rows
    host = dataclasses.replace(row, memory_kind="pinned_host", is_in_host_memory=True)
    offloaded = dataclasses.replace(tree, rows=(host,))
    assert reshard_report(offloaded, tree).device_nbytes == row.shard_nbytes
    assert reshard_report(tree, offloaded).device_nbytes == row.shard_nbytes
    assert reshard_report(offloaded, offloaded).nbytes == 0
    assert reshard_report(offloaded, P(None, "d")).device_nbytes == 29_360_128


def test_an_array_at_two_paths_counts_once():
    mesh = mesh_of((1,), ("d",))
    array = sharded((8, 4), mesh, "d")
    target = NamedSharding(fake_mesh([70, 71], ("d",)), P("d"))
    tree = {"a": array, "b": array}
    report = reshard_report(tree, target)
    assert [row.path for row in report.rows] == ["a"]
    assert (report.nbytes, report.unmoved_count) == (array.nbytes, 1)
    other = NamedSharding(target.mesh, P(None, "d"))
    assert reshard_report(tree, {"a": target, "b": other}).nbytes == 2 * array.nbytes
    saved = tree_report(tree)
    assert [row.path for row in reshard_report(saved, target).rows] == ["a"]


def test_deleted_arrays_and_unknown_shardings_are_left_out():
    array = jnp.zeros(4)
    array.delete()
    target = NamedSharding(fake_mesh([70, 71], ("d",)), P("d"))
    assert reshard_report({"x": array}, target).skipped_count == 1
    found = []
    jax.eval_shape(lambda tree: found.append(reshard_report(tree, target)), {"x": leaf(4)})
    assert (found[0].skipped_count, found[0].nbytes) == (1, 0)


def test_a_deleted_array_is_a_target_as_its_sharding_is_known():
    mesh = mesh_of((1,), ("d",), jax.devices()[-1:])
    like = sharded((4,), mesh)
    like.delete()
    assert reshard_report({"x": np.zeros(4, np.int8)}, {"x": like}).nbytes == 4


def test_keys_and_packed_dtypes_are_received_in_bytes():
    target = NamedSharding(fake_mesh([70, 71], ("d",)), P("d"))
    keys = jax.random.split(jax.random.key(0), 4)
    report = reshard_report({"k": keys}, target)
    assert (report.device_nbytes, report.nbytes) == (16, 32)
    assert reshard_report(planned(P(), {"d": 3}, (6,), jnp.int4), P("d")).nbytes == 0
    report = reshard_report(planned(P("d"), {"d": 3}, (6,), jnp.int4), P())
    assert (report.device_nbytes, report.nbytes) == (2, 6)


def test_targets_are_trees_prefixes_rules_and_reports():
    tree = {"p": {"w": leaf(8, 8), "b": leaf(8)}, "step": leaf()}
    before = tree_report(tree, mesh={"d": 8}, specs={"p": {"w": P("d"), "b": P()}, "step": P()})
    after = tree_report(tree, mesh={"d": 8}, specs={"p": P(), "step": P()})
    expected = reshard_report(before, after)
    assert [row.path for row in expected.rows] == ["p/w"]
    for target in (P(), {"p": P(), "step": None}, PathRules({"*/w": P(), "*": None})):
        assert reshard_report(before, target).rows == expected.rows
    assert from_json(to_json(expected)) == expected


@pytest.mark.needs_devices(8)
def test_a_tree_and_its_own_report_need_no_traffic():
    """The devices of a report are positions in the mesh, also where a mesh is permuted."""
    mesh = mesh_of((4, 2), ("x", "y"), np.random.RandomState(0).permutation(jax.devices()))
    tree = {"w": sharded((8, 4), mesh, "x", "y"), "b": sharded((4,), mesh), "s": jnp.zeros(3)}
    for source, target in itertools.product([tree, tree_report(tree)], repeat=2):
        assert reshard_report(source, target).nbytes == 0


def test_invalid_targets_are_listed_with_their_paths():
    tree = {"a": leaf(8), "b": leaf(8)}
    report = tree_report(tree, mesh={"d": 8}, specs=P("d"))
    with pytest.raises(SpecError) as caught:
        reshard_report(report, {"a": P("x"), "b": P(None, "d")})
    assert [problem[:25] for problem in caught.value.problems] == [
        "a: 'x' is not a mesh axis",
        "b: the spec has 2 entries",
    ]
    with pytest.raises(SpecError, match="the leaf has no mesh for its spec: pass a NamedSharding"):
        reshard_report(tree, P())
    with pytest.raises(SpecError, match="none of the paths of the tree: it has 'c', not 'a'"):
        reshard_report(report, {"c": leaf(8)})
    with pytest.raises(SpecError, match=r"a: shape \(9,\) of the target is not \(8,\)"):
        reshard_report(report, {"a": leaf(9)})
    with pytest.raises(SpecError, match="matches no leaf"):
        reshard_report(report, PathRules({"w": P()}))
    too_long = NamedSharding(fake_mesh(range(8), ("d",)), P(None, "d"))
    with pytest.raises(SpecError, match=r"b: .*2 entries"):
        reshard_report(tree, {"a": None, "b": too_long})


def test_a_target_that_does_not_divide_a_leaf_is_refused_with_the_facts():
    """As JAX refuses it, however the target is passed."""
    mesh, spec = fake_mesh(np.arange(8).reshape(4, 2), ("d", "e")), P(("d", "e"))
    even = tree_report({"a": leaf(12, 4), "b": leaf(16)}, mesh={"d": 4, "e": 2}, specs=P())
    alive = {"a": leaf(12, 4), "b": leaf(16)}
    problem = (
        r"axis 0 of shape \(12, 4\) is not divisible by mesh axes \('d', 'e'\) of size 8: 12 % 8 = 4. "
        r"Pad it to 16, or shard it over 'd' of size 4"
    )
    uneven = tree_report(alive, mesh={"d": 4, "e": 2}, specs=spec)
    for tree, target in [
        (even, spec),
        (even, PathRules({"*": spec})),
        (even, uneven),
        (alive, NamedSharding(mesh, spec)),
        (alive, {"a": leaf(12, 4, sharding=NamedSharding(mesh, spec)), "b": leaf(16)}),
    ]:
        with pytest.raises(SpecError, match=f"^a: {problem}"):
            reshard_report(tree, target)


def test_the_report_has_the_meshes_before_and_after():
    tree = {"w": leaf(8, 8), "n": np.zeros(8)}
    before = tree_report(tree, mesh={"d": 4, "e": 2}, specs={"w": P("d", "e"), "n": P()})
    report = reshard_report(before, tree_report(before, mesh={"d": 2, "e": 1}))
    meshes = (report.meshes_before, report.meshes_after)
    assert [[(mesh.axes.shape, mesh.device_count) for mesh in found] for found in meshes] == [
        [({"d": 4, "e": 2}, 8)],
        [({"d": 2, "e": 1}, 2)],
    ]
    onto = reshard_report(tree, NamedSharding(fake_mesh(range(4), ("d",)), P("d")))
    assert (onto.meshes_before, [mesh.device_count for mesh in onto.meshes_after]) == ((), [4])
    alone = reshard_report({"x": jnp.zeros(4)}, {"x": None})
    assert alone.meshes_before == alone.meshes_after == (TreeMesh(axes=None, device_count=1),)


def test_65536_devices_and_100_leaves_need_no_object_per_device():
    tree = {str(number): leaf(4096, 256 * (1 + number % 7)) for number in range(100)}
    report = tree_report(tree, mesh={"a": 256, "b": 256}, specs=P("a", "b"))
    moved = reshard_report(report, P("b", "a"))
    assert (moved.device_count, len(moved.rows)) == (65536, 100)
    # The device that receives the most of one leaf receives the most of each.
    assert moved.device_nbytes == sum(row.device_nbytes for row in moved.rows)


def test_leaves_of_more_bytes_than_an_int64_that_receive_nothing_are_added_up():
    report = tree_report({"x": leaf(2**70)}, mesh={"a": 4}, specs=P("a"))
    assert reshard_report(report, P("a")).device_nbytes == 0


def test_shardings_without_a_spec_are_targets_too():
    report = reshard_report({"x": jnp.zeros(4)}, SingleDeviceSharding(jax.devices()[-1]))
    count = len(jax.devices())
    assert report.nbytes == (16 if count > 1 else 0)


@st.composite
def sharded_axes(draw, sizes, ndim):
    """Draw a spec over the axes of a mesh."""
    axes = [[] for _ in range(ndim)]
    for name in draw(st.permutations(list(sizes))):
        place = draw(st.integers(-1, ndim - 1))
        if place >= 0:
            axes[place].append(name)
    return P(*(tuple(names) or None for names in axes))


@st.composite
def reshardings(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))  # one that the target divides
    sizes = {name: draw(st.integers(1, 3)) for name in "xyz"[: draw(st.integers(1, 3))]}
    count = math.prod(sizes.values())
    meshes = [
        fake_mesh(
            np.reshape(draw(st.permutations(range(27)))[:count], tuple(sizes.values())), tuple(sizes), 4
        )
        for _ in range(2)
    ]
    before, after = (draw(sharded_axes(sizes, len(shape))) for _ in meshes)
    uneven = [axis.axis for axis in uneven_axes(shape, sizes, after)]
    after = P(*(None if axis in uneven else names for axis, names in enumerate(after)))
    return shape, list(map(NamedSharding, meshes, (before, after)))


def elements_on(shape, sharding):
    """Return the elements that each device holds, element by element."""
    mesh = sharding.mesh
    names = [
        (() if entry is None else entry if isinstance(entry, tuple) else (entry,)) for entry in sharding.spec
    ]
    names += [()] * (len(shape) - len(names))
    held = {}
    for position in np.ndindex(*mesh.devices.shape):
        where = dict(zip(mesh.axis_names, position, strict=True))
        parts = []
        for dim, used in zip(shape, names, strict=True):
            count, index = math.prod(mesh.shape[name] for name in used), 0
            for name in used:
                index = index * mesh.shape[name] + where[name]
            chunk = -(-dim // count)
            parts.append([number for number in range(dim) if number // chunk == index])
        held[mesh.devices[position].id] = set(itertools.product(*parts))
    return held


@settings(max_examples=60)
@given(reshardings())
def test_the_traffic_is_a_count_of_elements(case):
    shape, (source, target) = case
    report = reshard_report({"w": leaf(*shape, sharding=source)}, {"w": target})
    held, wanted = elements_on(shape, source), elements_on(shape, target)
    missing = {device: wanted[device] - held.get(device, set()) for device in wanted}
    foreign = [
        len(missing[device] - set().union(*(held[other] for other in held if other // 4 == device // 4)))
        for device in wanted
    ]
    counts = [len(elements) for elements in missing.values()]
    assert (report.device_nbytes, report.nbytes) == (4 * max(counts), 4 * sum(counts))
    assert report.process_nbytes == 4 * sum(foreign)
