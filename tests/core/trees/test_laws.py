"""Laws of tree reports, on random trees."""

import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import PathRules, from_json, to_json, tree_diff_report, tree_report
from tests.arrays import mesh_of

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

few = settings(max_examples=30)
AXES = ("x", "y", "z")
DTYPES = ("float32", "bfloat16", "int8", "int4", "bool")


@st.composite
def meshes(draw):
    """Return a mesh of up to three axes over some of 8 devices, in any order."""
    sizes = draw(
        st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3).filter(lambda s: math.prod(s) <= 8)
    )
    devices = draw(st.permutations(jax.devices()))
    return mesh_of(sizes, AXES[: len(sizes)], devices[: math.prod(sizes)])


@st.composite
def specs(draw, mesh):
    """Return a spec of up to three axes, which uses each mesh axis at most once."""
    names = list(draw(st.permutations(mesh.axis_names)))
    entries = []
    for _ in range(draw(st.integers(0, 3))):
        taken = [names.pop() for _ in range(min(len(names), draw(st.integers(0, 2))))]
        entries.append(
            draw(st.sampled_from([taken[0], tuple(taken)])) if len(taken) == 1 else tuple(taken) or None
        )
    return P(*entries)


@st.composite
def leaves(draw, mesh):
    """Return a shape that the spec divides, the spec and a dtype."""
    spec = draw(specs(mesh))
    sizes = dict(zip(mesh.axis_names, mesh.devices.shape, strict=True))
    groups = [(entry,) if isinstance(entry, str) else entry or () for entry in tuple(spec)]
    counts = [math.prod(sizes[name] for name in names) for names in groups]
    shape = [count * draw(st.integers(0, 3)) for count in counts] + draw(
        st.lists(st.integers(0, 3), max_size=1)
    )
    return tuple(shape), spec, draw(st.sampled_from(DTYPES))


@st.composite
def trees(draw, mesh_count=1):
    """Return a tree of ``(shape, sharding, dtype)``."""
    found = [draw(meshes()) for _ in range(mesh_count)]

    def leaf():
        return st.sampled_from(found).flatmap(
            lambda mesh: leaves(mesh).map(lambda one: (one[0], NamedSharding(mesh, one[1]), one[2]))
        )

    return draw(st.dictionaries(st.text("abc/'1", max_size=3), leaf(), min_size=1, max_size=4)), found


def placed(tree):
    return {
        key: jax.device_put(np.zeros(shape, jnp.dtype(dtype)), sharding)
        for key, (shape, sharding, dtype) in tree.items()
    }


def abstract(tree):
    return {key: jax.ShapeDtypeStruct(shape, dtype) for key, (shape, _, dtype) in tree.items()}


def facts(report):
    """Return the rows and the totals of a report, apart from the origin of the shardings and the devices."""
    names = ("path", "shape", "dtype", "spec", "shard_shape", "nbytes", "shard_nbytes", "replicas")
    names += ("avoidable_nbytes", "uneven", "mesh")
    rows = [tuple(getattr(row, name) for name in names) for row in report.rows]
    totals = report.nbytes, report.fullest_device_nbytes, report.emptiest_device_nbytes, report.ideal_nbytes
    others = report.elements, report.excess, report.avoidable_nbytes, report.device_count, report.parameters
    return rows, totals, others, [(mesh.axes, mesh.device_count) for mesh in report.meshes]


@few
@given(trees())
def test_the_report_of_a_planned_tree_is_that_of_the_same_tree_placed(made):
    tree, (mesh,) = made
    alive = tree_report(placed(tree))
    specs = {key: sharding.spec for key, (_, sharding, _) in tree.items()}
    shardings = {key: sharding for key, (_, sharding, _) in tree.items()}
    assert facts(tree_report(abstract(tree), mesh=mesh, specs=specs)) == facts(alive)
    assert facts(tree_report(abstract(tree), specs=shardings)) == facts(alive)
    sizes = dict(zip(mesh.axis_names, mesh.devices.shape, strict=True))
    plain = tree_report(abstract(tree), mesh=sizes, specs=specs)
    (rows, *totals, meshes), (known, *known_totals, known_meshes) = facts(plain), facts(alive)
    assert (rows, totals) == (known, known_totals)
    assert [mesh.shape for mesh, _ in meshes] == [mesh.shape for mesh, _ in known_meshes]
    # A plan for the mesh that a tree has changes nothing.
    assert facts(tree_report(placed(tree), mesh=mesh)) == facts(alive)
    assert facts(tree_report(alive, mesh=mesh)) == facts(alive)


@few
@given(trees(mesh_count=2))
def test_rows_add_up_to_the_totals(made):
    tree, _ = made
    arrays = placed(tree)
    report = tree_report(arrays)
    held = Counter()
    for array, row in zip([arrays[key] for key in sorted(arrays)], report.rows, strict=True):
        for device in array.sharding.device_set:
            held[device] += row.shard_nbytes
        assert row.shard_shape == array.sharding.shard_shape(array.shape)
        shards = len(array.sharding.device_set) // row.replicas
        assert shards * math.prod(row.shard_shape) == array.size
    assert report.nbytes == sum(row.nbytes for row in report.rows)
    assert report.elements == sum(array.size for array in arrays.values())
    assert report.device_count == len(held)
    assert (report.fullest_device_nbytes, report.emptiest_device_nbytes) == (
        max(held.values()),
        min(held.values()),
    )
    assert report.ideal_nbytes == -(-report.nbytes // len(held))
    assert sum(part.nbytes for part in report.excess) == report.fullest_device_nbytes - report.ideal_nbytes
    assert report.avoidable_nbytes <= report.fullest_device_nbytes
    for row in report.rows:
        assert 0 <= row.avoidable_nbytes <= row.shard_nbytes * (1 - 1 / row.replicas)


@st.composite
def uneven(draw):
    """Return a mesh, and leaves whose axes need not be divisible."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 7]), min_size=1, max_size=3))
    mesh = dict(zip(AXES, sizes, strict=False))
    found = {}
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.permutations(list(mesh)))
        entries = [draw(st.sampled_from([None, name])) for name in names]
        shape = draw(st.lists(st.integers(1, 20), min_size=len(entries), max_size=4))
        found[f"w{number}"] = (tuple(shape), P(*entries))
    return mesh, found


@settings(max_examples=100)
@given(uneven())
def test_the_causes_of_an_uneven_distribution_add_up(made):
    mesh, found = made
    tree = {key: jax.ShapeDtypeStruct(shape, np.float32) for key, (shape, _) in found.items()}
    report = tree_report(tree, mesh=mesh, specs={key: spec for key, (_, spec) in found.items()})
    for row, (shape, spec) in zip(report.rows, found.values(), strict=True):
        counts = [mesh.get(name, 1) for name in tuple(spec)] + [1] * (len(shape) - len(tuple(spec)))
        padded = [-(-dim // count) for dim, count in zip(shape, counts, strict=True)]
        assert row.shard_shape == tuple(padded)
        assert row.shard_nbytes == 4 * math.prod(padded)
        assert len(row.uneven) == sum(dim % count > 0 for dim, count in zip(shape, counts, strict=True))
    assert report.fullest_device_nbytes == sum(row.shard_nbytes for row in report.rows)
    assert report.ideal_nbytes == -(-report.nbytes // math.prod(mesh.values()))
    assert sum(part.nbytes for part in report.excess) == report.fullest_device_nbytes - report.ideal_nbytes
    assert from_json(to_json(report)) == report
    assert tree_diff_report(report, report).is_empty


KEYS = st.one_of(
    st.text(max_size=3),
    st.text("/'\"\\\x00\x1b\n a0", max_size=4),
    st.sampled_from(["", "0", "1", "'", '"', "''", "a/b", "'0'", "0#2", "\ud800", "\u202e", "True", "None"]),
    st.integers(0, 2),
    st.booleans(),
    st.none(),
    st.floats(0, 2),
    st.binary(max_size=2),
    st.tuples(st.integers(0, 1), st.text("0'", max_size=1)),
)
LEAF = jax.ShapeDtypeStruct((), np.float32)
ANY_TREE = st.recursive(
    st.just(LEAF),
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, max_size=4), st.lists(inner, max_size=3), st.tuples(inner, inner)
    ),
    max_leaves=12,
)


def count(tree):
    if tree is LEAF:
        return 1
    return sum(map(count, tree.values() if isinstance(tree, dict) else tree))


@settings(max_examples=150)
@given(ANY_TREE)
def test_no_two_paths_are_equal(tree):
    report = tree_report(tree)
    paths = [row.path for row in report.rows]
    assert len(set(paths)) == len(paths) == count(tree)
    assert all(path.isprintable() for path in paths)
    assert from_json(to_json(report)) == report
    assert tree_report(tree) == report
    for path in paths[:3]:
        rules = PathRules({path.replace("*", "?"): P(), "*": None})
        assert rules.spec_of(path) == P()


@settings(max_examples=60)
@given(ANY_TREE, ANY_TREE)
def test_a_tree_does_not_differ_from_itself(one, other):
    assert tree_diff_report(one, one).is_empty
    found = tree_diff_report(one, other)
    paths, other_paths = ({row.path for row in tree_report(tree).rows} for tree in (one, other))
    assert {row.path for row in found.removed} == paths - other_paths
    assert {row.path for row in found.added} == other_paths - paths
    assert found.unchanged_count == len(paths & other_paths)
    assert from_json(to_json(found)) == found


@few
@given(trees(mesh_count=2), trees())
def test_placed_trees_do_not_differ_from_their_reports(made, other):
    tree = placed(made[0])
    report = from_json(to_json(tree_report(tree)))
    for before, after in ((tree, tree), (tree, report), (report, tree)):
        assert tree_diff_report(before, after).is_empty
    forth, back = tree_diff_report(tree, placed(other[0])), tree_diff_report(placed(other[0]), tree)
    assert (forth.added, forth.removed, forth.unchanged_count) == (
        back.removed,
        back.added,
        back.unchanged_count,
    )
    assert from_json(to_json(forth)) == forth
