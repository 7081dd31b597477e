"""Links of meshes on TPU topologies, by hand from the coordinates that libtpu gives."""

import pytest

from jax_array_info import planned_mesh_report, to_text
from jax_array_info_core.errors import TopologyError
from tests.ahead_of_time import needs_tpu_compiler

pytestmark = needs_tpu_compiler


def facts(mesh, topology, **options):
    report = planned_mesh_report(mesh, topology=topology, **options)
    return {
        each.axis: (
            each.leaves_host,
            each.form,
            "".join(each.sides),
            [(one.link, one.hops, one.pair_count) for one in each.neighbors],
        )
        for each in report.links
    }


def test_v5p_of_four_hosts_is_a_line_in_z():
    # A host has the 2x2 chips of one z. The four chips of a host are walked as 0, 2, 1, 3.
    assert facts({"a": 4, "b": 4}, "v5p:2x2x4") == {
        "a": ("always", "line", "z", [("ici", 1, 12)]),
        "b": ("never", None, "xy", [("ici", 2, 4), ("ici", 1, 8)]),
    }


def test_v5p_with_three_axes_splits_a_side():
    report = planned_mesh_report({"a": 2, "b": 2, "c": 4}, topology="v5p:2x2x4")
    assert "allow_split_physical_axes" in report.order
    assert facts({"a": 2, "b": 2, "c": 4}, "v5p:2x2x4") == {
        "a": ("always", None, "z", [("ici", 2, 8)]),
        "b": ("always", "line", "z", [("ici", 1, 8)]),
        "c": ("never", None, "xy", [("ici", 2, 4), ("ici", 1, 8)]),
    }


def test_tpu7x_has_two_cores_a_chip():
    found = facts({"a": 8, "b": 2}, "tpu7x:2x2x2")
    assert found["b"] == ("never", None, "", [("same-chip", None, 8)])
    # The chips of a host are walked in a ring; the way to the other host starts at another corner.
    assert found["a"] == ("always", None, "xyz", [("ici", 2, 2), ("ici", 1, 12)])


def test_v5e_has_lines_in_x_and_y():
    # Hosts have 2x2 chips, so that each line of 4 is on two hosts.
    assert facts({"a": 4, "b": 4}, "v5e:4x4") == {
        "a": ("always", "line", "y", [("ici", 1, 12)]),
        "b": ("always", "line", "x", [("ici", 1, 12)]),
    }


def test_the_side_of_16_chips_is_a_ring():
    found = facts({"a": 8, "b": 16}, "v6e-128")
    assert found["a"] == ("always", "line", "x", [("ici", 1, 112)])
    assert found["b"] == ("always", "ring", "y", [("ici", 1, 120)])
    assert facts({"a": 4, "b": 4, "c": 4}, "v5p-128")["a"][:2] == ("always", "ring")


def test_two_slices_are_connected_by_dcn():
    report = planned_mesh_report({"data": 2, "fsdp": 4}, topology="2*v5p:2x2x1", dcn={"data": 2})
    data, fsdp = report.links
    assert [(one.link, one.pair_count) for one in data.neighbors] == [("dcn", 4)]
    assert (data.leaves_slice, data.slice_count, fsdp.leaves_slice) == ("always", 2, "never")
    assert [len(devices) for _, devices in report.slices] == [4, 4]
    text = to_text(report)
    assert "data: DCN, 2 slices" in text
    assert "═ 2 slices" in text
    with pytest.raises(TopologyError, match="several axes of the mesh data=2,fsdp=4 can span all of them"):
        planned_mesh_report({"data": 2, "fsdp": 4}, topology="2*v5p:2x2x1")
