"""The comparison of specs, against the devices that hold each slice."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.shardings import describe_sharding
from jax_array_info_core.facts.reports.array import ShardingDescription, same_sharding
from jax_array_info_core.facts.reports.tree import TreeMesh, TreeRow
from jax_array_info_core.geometry.layouts.spec import MeshAxes, Spec, placement
from jax_array_info_core.trees.same_sharding import differing_fields
from jax_array_info_core.trees.same_sharding import same_sharding as sharded_alike
from jax_array_info_core.trees.tree_report import tree_report

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

SHAPE = (16, 32)


@st.composite
def meshes_and_specs(draw):
    """Return a mesh of 8 devices, and two specs that divide the shape evenly."""
    sizes = draw(st.sampled_from([(8,), (4, 2), (2, 4), (2, 2, 2), (8, 1), (1, 4, 2), (4, 1, 2, 1)]))
    names = "abcd"[: len(sizes)]

    def spec():
        entries, left = [], list(draw(st.permutations(names)))
        for _ in range(draw(st.integers(0, 2))):
            taken = [left.pop() for _ in range(draw(st.integers(0, len(left))))]
            entries.append(
                draw(st.sampled_from([taken[0], (taken[0],)])) if len(taken) == 1 else tuple(taken) or None
            )
        return P(*entries)

    return Mesh(np.array(jax.devices()[:8]).reshape(sizes), tuple(names)), spec(), spec()


@given(meshes_and_specs())
def test_placements_are_equal_exactly_if_each_device_has_the_same_slice(case):
    mesh, *specs = case
    shardings = [NamedSharding(mesh, spec) for spec in specs]
    described = [describe_sharding(sharding, len(SHAPE)) for sharding in shardings]
    one, other = (
        {device.id: index for device, index in sharding.devices_indices_map(SHAPE).items()}
        for sharding in shardings
    )
    slices = [
        {
            device: tuple(piece.indices(dim) for piece, dim in zip(index, SHAPE, strict=True))
            for device, index in each.items()
        }
        for each in (one, other)
    ]
    is_same = slices[0] == slices[1]
    assert same_sharding(*described) is is_same
    structs = {
        name: jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=each)
        for name, each in zip("ab", shardings, strict=True)
    }
    report = tree_report(structs)
    (row, other), meshes = report.rows, report.meshes
    assert sharded_alike(row, meshes, other, meshes) is is_same
    for on_any_mesh in (False, True):
        fields = list(differing_fields(row, meshes, other, meshes, on_any_mesh=on_any_mesh))
        assert fields == ([] if is_same else ["spec"])


def row_of(spec=None, sizes=(4,), **facts):
    """Return a leaf, sharded over a mesh of axes named x and y, and its meshes."""
    types = facts.pop("types", ("Auto", "Auto"))[: len(sizes)]
    mesh = TreeMesh(axes=MeshAxes(("x", "y")[: len(sizes)], sizes, types), device_count=math.prod(sizes))
    if spec is None:
        mesh = replace(mesh, axes=None)
    facts = {"path": "w", "shape": (8, 8), "dtype": "float32", "kind": "array", "sharding": "A", **facts}
    return TreeRow(spec=spec, mesh=0, **facts), [mesh]


X = Spec((("x",),))
TILED = {"xla": "{devices=[4,1]<=[4]}", "shard_shape": (2, 8)}
ON_HOST = {"memory_kind": "pinned_host", "is_in_host_memory": True}
CASES = {
    "more devices": (row_of(X), row_of(X, (8,)), "spec", ""),
    "an axis that is not used": (row_of(X), row_of(X, (4, 2)), "spec", ""),
    "an axis of one device among more": (row_of(Spec((("x", "y"),)), (4, 1)), row_of(X, (8,)), "spec", ""),
    "an axis of one device": (row_of(X, (1,)), row_of(Spec(()), (1,)), "", ""),
    "an axis that was of one device": (row_of(X, (1,)), row_of(X, (8,)), "spec", ""),
    "an axis that is not used on one device": (row_of(X), row_of(Spec(()), (1,)), "spec", "spec"),
    "tiles of XLA": (row_of(X), row_of(**TILED), "", ""),
    "tiles on other devices": (row_of(X), row_of(sizes=(8,), **TILED), "spec", "spec"),
    "shards": (row_of(shard_shape=(2, 8)), row_of(sizes=(8,), shard_shape=(2, 8)), "spec", ""),
    "one device": (row_of(None, (1,), shard_shape=(8, 8)), row_of(X, (1,), shard_shape=(8, 8)), "", ""),
    "other shards": (row_of(shard_shape=(2, 8)), row_of(shard_shape=(4, 8)), "spec", "spec"),
    "one device and several": (row_of(None, (1,), shard_shape=(8, 8)), row_of(X), "spec", "spec"),
    "unknown": (row_of(X), row_of(unknown_because="not compiled"), "", ""),
    "types of axes": (row_of(X), row_of(X, types=("Explicit",)), "axis_types", "axis_types"),
    "types of a plan": (row_of(X), row_of(X, types=("Explicit",), kind="planned"), "", ""),
    "default memories": (row_of(X, memory_kind="tpu"), row_of(X, memory_kind="device"), "", ""),
    "host memory": (row_of(X), row_of(X, **ON_HOST), "memory_kind", "memory_kind"),
}


@pytest.mark.parametrize(("one", "other", "field", "field_on_any_mesh"), CASES.values(), ids=CASES)
def test_leaves_differ_in_what_is_known_of_both(one, other, field, field_on_any_mesh):
    for leaves in ((*one, *other), (*other, *one)):
        assert "".join(differing_fields(*leaves)) == field
        assert "".join(differing_fields(*leaves, on_any_mesh=True)) == field_on_any_mesh
        assert sharded_alike(*leaves) is (field in ("", "memory_kind"))


def test_the_types_of_a_plan_count_where_they_are_expected():
    planned = row_of(X, types=("Explicit",), kind="planned")
    assert list(differing_fields(*row_of(X), *planned, has_planned_types=True)) == ["axis_types"]


def test_unreduced_axes_count_unless_their_size_is_1():
    plain, partial = Spec((("x",),)), Spec((("x",),), unreduced=("y",))
    assert placement(plain, {"x": 4, "y": 2}) != placement(partial, {"x": 4, "y": 2})
    assert placement(plain, {"x": 4, "y": 1}) == placement(partial, {"x": 4, "y": 1})


def test_shardings_without_specs_are_compared_by_their_text():
    tiled, other = (
        ShardingDescription(type="GSPMDSharding", text=text)
        for text in ("{devices=[8]<=[8]}", "{replicated}")
    )
    named = ShardingDescription(type="NamedSharding", spec=Spec(()), mesh=MeshAxes(("x",), (8,)))
    assert same_sharding(tiled, tiled) is True
    assert same_sharding(tiled, other) is False
    assert same_sharding(tiled, named) is None, "XLA's notation is not read here"
    assert same_sharding(None, named) is None
