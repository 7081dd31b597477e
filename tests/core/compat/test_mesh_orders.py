import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh

from jax_array_info_core import program_report, topology_mesh
from jax_array_info_core.compat import lowering, topologies
from jax_array_info_core.compat.topologies import ordered_devices, slices_along
from jax_array_info_core.compat.topology_names import parse_topology
from jax_array_info_core.errors import SpecError, TopologyError, UnsupportedValueError
from tests.core.compat.stand_ins import stand_ins

pytestmark = pytest.mark.once_per_version


@pytest.fixture
def no_compiler(monkeypatch):
    """Stand-ins are the devices of each topology."""
    monkeypatch.setattr(topologies, "topology_devices", stand_ins)


@pytest.mark.parametrize(
    ("text", "sizes", "dcn", "number", "numbers", "order"),
    [
        ("v5p:2x2x1", {"x": 2, "y": 2}, None, "id", [0, 2, 1, 3], "jax.make_mesh"),
        ("2*v5p:2x2x1", {"x": 1, "y": 8, "z": 1}, None, "slice_index", [0] * 4 + [1] * 4, "y=2"),
        ("2*v5p:2x2x1", {"x": 2, "y": 4}, {"y": 2}, "slice_index", [0, 0, 1, 1] * 2, "y=2"),
        ("2*v5p:2x2x1", {"x": 2, "y": 4}, {"x": 2}, "slice_index", [0] * 4 + [1] * 4, "x=2"),
        (
            "4*v5p:2x2x1",
            {"x": 2, "y": 2, "z": 4},
            {"x": 2, "y": 2},
            "slice_index",
            [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4,
            "x=2,y=2",
        ),
    ],
    ids=["one slice", "the only axis that can", "in part", "a whole axis", "several axes"],
)
def test_axes_span_the_slices_in_the_order_of_jax(no_compiler, text, sizes, dcn, number, numbers, order):
    devices, found = ordered_devices(parse_topology(text), sizes, dcn)
    assert devices.shape == tuple(sizes.values())
    assert [getattr(device, number) for device in devices.ravel()] == numbers
    hybrid = "mesh_utils.create_hybrid_device_mesh with slices along "
    assert found == (order if number == "id" else hybrid + order)


@pytest.mark.parametrize(
    ("text", "sizes", "dcn", "problem"),
    [
        (
            "2*v5p:2x2x1",
            {"data": 2, "fsdp": 4},
            None,
            " has 2 slices, and several axes of the mesh data=2,fsdp=4 can span all of "
            "them: name the axes that span them with dcn, with the number of slices along each",
        ),
        (
            "4*v5p-8",
            {"a": 2, "b": 2, "c": 2, "d": 2},
            None,
            " has 4 slices, and no axis of the mesh a=2,b=2,c=2,d=2 can span all of them: name the "
            "axes that span them with dcn, with the number of slices along each",
        ),
        ("2*v5p-8", {"a": 8}, {"b": 2}, ": dcn names 'b', and the mesh has a"),
        *(
            (
                "2*v5p-8",
                {"a": 8},
                {"a": count},
                f": dcn has {count} slices along mesh axis a, whose size 8 is not a multiple of it",
            )
            for count in (3, 0)
        ),
        ("2*v5p-8", {"a": 8}, {"a": 4}, ": dcn a=4 has 4 slices, and the topology has 2"),
        ("v5p-8", {"a": 4}, {"a": 2}, ": dcn a=2 has 2 slices, and the topology has 1"),
    ],
)
def test_slices_that_do_not_fit_the_mesh_have_a_reason_and_a_fix(no_compiler, text, sizes, dcn, problem):
    with pytest.raises(TopologyError) as caught:
        topology_mesh(text, sizes, dcn=dcn)
    assert str(caught.value) == f"topology {text}{problem}"


def test_slices_are_numbers_and_need_a_topology():
    with pytest.raises(SpecError, match="the size of mesh axis 'a' must be an integer, got '2'"):
        topology_mesh("2*v5p-8", {"a": 8}, dcn={"a": "2"})
    with pytest.raises(UnsupportedValueError, match="dcn needs a topology of several slices"):
        program_report(lambda x: x, 1.0, dcn={"a": 2})


@pytest.mark.needs_devices(8)
def test_a_mesh_of_cpus_is_placed_on_slices(monkeypatch):
    """In the order of JAX; devices that are not in the order of their ids keep their order."""
    topology = parse_topology("2*v5p:2x2x1")
    devices = stand_ins(topology)
    cpus = np.array(jax.devices()[:8])

    def ids(mesh, dcn=None):
        return [
            one.id for one in lowering._in_mesh_order(devices, mesh.devices.ravel(), [mesh], topology, dcn)
        ]

    mesh = Mesh(cpus.reshape(2, 4), ("data", "fsdp"))
    assert ids(mesh, {"data": 2}) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert ids(mesh, {"fsdp": 2}) == [0, 2, 4, 6, 1, 3, 5, 7]
    with pytest.raises(TopologyError, match="several axes of the mesh data=2,fsdp=4 can span all of them"):
        ids(mesh)
    turned = Mesh(cpus[::-1].reshape(2, 4), ("data", "fsdp"))
    assert ids(turned) == [7, 6, 5, 4, 3, 2, 1, 0]
    odd = Mesh(cpus[[0, 1, 2, 4, 3, 5, 6, 7]].reshape(2, 4), ("data", "fsdp"))
    with pytest.raises(
        TopologyError, match="axes have unequal parts of the slices, which libtpu does not compile"
    ):
        ids(odd)
    with pytest.raises(TopologyError, match="dcn needs a mesh of all devices in order of their ids"):
        ids(turned, {"data": 2})


@pytest.mark.parametrize(
    ("slices", "is_regular"),
    [
        ([[0, 0, 0, 0], [1, 1, 1, 1]], True),
        ([[0, 1, 0, 1], [0, 1, 0, 1]], True),
        ([[0, 1, 0, 1], [1, 0, 1, 0]], True),
        ([[0, 0, 0, 1], [0, 1, 1, 1]], False),
        ([[[0, 1], [2, 3]], [[0, 1], [2, 3]]], True),
        ([[[0, 1], [2, 3]], [[1, 0], [3, 2]]], True),
        ([[[0, 1], [0, 2]], [[1, 3], [2, 3]]], False),
        ([0, 0, 1], False),
    ],
)
def test_slices_are_regular_if_each_group_has_equal_parts_of_its_slices(slices, is_regular):
    assert topologies.has_regular_slices(np.array(slices)) == is_regular


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_slices_along_axes_are_all_slices(within, data):
    """Whether they are given or found: along each axis, they divide its size."""
    across = data.draw(st.lists(st.integers(1, 3), min_size=len(within), max_size=len(within)))
    sizes = {
        f"axis{at}": inside * outside for at, (inside, outside) in enumerate(zip(within, across, strict=True))
    }
    given_slices = {name: count for name, count in zip(sizes, across, strict=True) if count > 1}
    count = math.prod(across)
    topology = parse_topology(f"{count}*v5p:1x1x{math.prod(within)}")
    for dcn in (given_slices, None):
        try:
            found = slices_along(topology, sizes, dcn)
        except TopologyError as error:
            assert dcn is None
            assert "name the axes that span them with dcn" in str(error)
            continue
        if count == 1:
            assert found is None
            continue
        assert math.prod(found.values()) == count
        assert all(sizes[name] % slices == 0 for name, slices in found.items())
