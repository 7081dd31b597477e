"""Hosts, slices and links of meshes of devices, and of planned ones."""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import array_report, check_report, from_json, mesh_report, planned_mesh_report, to_json
from jax_array_info_core.compat.lowering import mesh_of_jax
from jax_array_info_core.errors import SpecError, TopologyError, UnsupportedValueError
from tests.arrays import FakeDevice, mesh_of

pytestmark = pytest.mark.once_per_version


class FakeTpu(FakeDevice):
    """One chip of a TPU slice."""

    platform, device_kind = "tpu", "TPU v5"

    def __init__(self, number, process, coords, slice_index=0, core=0):
        super().__init__(number, process)
        self.coords, self.slice_index, self.core_on_chip = coords, slice_index, core


class BareTpu(FakeDevice):
    """A TPU without coordinates."""

    platform = "tpu"


class FakeGpu(FakeDevice):
    """A GPU with a process of its own."""

    platform, device_kind = "gpu", "NVIDIA H100"

    def __init__(self, number, process, slice_index=None):
        super().__init__(number, process)
        self.local_hardware_id = 0
        if slice_index is not None:
            self.slice_index = slice_index


def cpus():
    """Return 8 devices of two processes."""
    return [FakeDevice(number, number // 4) for number in range(8)]


def gpus():
    """Return 8 GPUs of two NVLink domains, each with a process of its own."""
    return [FakeGpu(number, number, number // 4) for number in range(8)]


def tpus():
    """Return the 8 chips of two slices of 2x2."""
    places = [(one, (x, y, 0)) for one in range(2) for y in range(2) for x in range(2)]
    return [FakeTpu(number, one, coords, one) for number, (one, coords) in enumerate(places)]


def swapped(devices, first, second):
    devices[first], devices[second] = devices[second], devices[first]
    return devices


def facts(report):
    return {
        links.axis: (
            links.leaves_process or links.leaves_host,
            [(each.link, each.pair_count) for each in links.neighbors],
        )
        for links in report.links
    }


def test_devices_of_one_process_are_on_one_host():
    report = mesh_report(mesh_of((len(jax.devices()),), ("a",)))
    assert facts(report)["a"][0] == "never"
    assert (report.hosts, report.slices, report.findings) == ((), (), ())


@pytest.mark.parametrize("make", [FakeDevice, lambda *at: FakeGpu(*at), lambda *at: BareTpu(*at)])
def test_an_axis_whose_groups_are_on_two_processes_may_be_on_one_host(make):
    devices = [make(number, number // 4) for number in range(8)]
    report = mesh_report(mesh_of((2, 4), ("data", "model"), devices))
    assert facts(report) == {
        "data": ("always", [("other-process", 4)]),
        "model": ("never", [("same-host", 6)]),
    }
    data, model = report.links
    assert (data.leaves_host, data.groups_over_hosts, data.host_count) == (None, None, None)
    assert (model.leaves_host, model.groups_over_hosts, model.host_count) == ("never", 0, 1)
    assert report.hosts == ()
    assert report.layout.processes == ((0, (0, 1, 2, 3)), (1, (4, 5, 6, 7)))
    assert report.findings == ()
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize(
    ("devices", "sizes", "noun", "remedy"),
    [
        (
            swapped(cpus(), 3, 7),
            (4, 2),
            "processes in 2 of 4 groups; in the order of jax.make_mesh it does not",
            "jax.make_mesh((4, 2), ('data', 'model'))",
        ),
        (
            swapped(tpus(), 1, 5),
            (2, 4),
            "slices in 2 of 2 groups",
            "mesh_utils.create_hybrid_device_mesh((1, 4), (2, 1))",
        ),
        (
            swapped(gpus(), 3, 7),
            (2, 4),
            "hosts in 2 of 2 groups",
            "mesh_utils.create_hybrid_device_mesh((1, 4), (2, 1))",
        ),
    ],
    ids=["processes", "slices", "hosts"],
)
def test_a_mesh_in_another_order_is_a_finding_where_the_usual_order_would_not_cross(
    devices, sizes, noun, remedy
):
    """Axis data crosses in the usual order, too."""
    report = mesh_report(mesh_of(sizes, ("data", "model"), devices))
    assert facts(report)["model"][0] in ("partly", "always")
    [finding] = report.findings
    assert (finding.code, finding.mesh_axes) == ("JAI401", ("model",))
    assert f"'model' crosses {noun}" in str(finding)
    assert finding.remedy == f"Order the devices with {remedy}."


def test_gpus_with_a_slice_index_are_on_one_host_whatever_their_process():
    report = mesh_report(mesh_of((2, 4), ("data", "model"), gpus()))
    assert facts(report) == {
        "data": ("always", [("other-host", 4)]),
        "model": ("never", [("same-host", 6)]),
    }
    assert report.links[0].leaves_slice is None
    assert [host for host, _ in report.hosts] == [0, 1]
    without = [FakeGpu(number, number) for number in range(8)]
    assert facts(mesh_report(mesh_of((8,), ("a",), without))) == {"a": ("always", [("other-process", 7)])}


def test_tpus_of_two_slices_are_connected_by_dcn():
    report = mesh_report(mesh_of((2, 2, 2), ("data", "y", "x"), tpus()))
    data, y, x = report.links
    assert [(each.link, each.hops) for each in data.neighbors] == [("dcn", None)]
    assert (data.leaves_slice, data.slice_count, x.leaves_slice) == ("always", 2, "never")
    assert [(each.link, each.hops) for each in (*x.neighbors, *y.neighbors)] == [("ici", 1), ("ici", 1)]
    assert (x.form, x.sides, y.sides) == ("line", ("x",), ("y",))
    assert [number for number, _ in report.slices] == [0, 1]
    assert from_json(to_json(report)) == report


def test_two_cores_of_a_chip():
    devices = [FakeTpu(2 * x + core, 0, (x, 0, 0), core=core) for x in range(4) for core in range(2)]
    x, core = mesh_report(mesh_of((4, 2), ("x", "core"), devices)).links
    assert [(each.link, each.pair_count) for each in core.neighbors] == [("same-chip", 4)]
    assert (x.neighbors[0].link, x.neighbors[0].hops, x.chip_count) == ("ici", 1, 4)


def test_tpus_without_coordinates_have_unknown_links_inside_a_slice():
    devices = [BareTpu(number, number) for number in range(2)]
    for device in devices:
        device.slice_index = 0
    assert facts(mesh_report(mesh_of((2,), ("a",), devices))) == {"a": ("always", [("unknown", 1)])}


def test_a_mesh_without_devices_has_no_links():
    for mesh in ({"a": 4}, mesh_of_jax({"a": 4})):
        report = mesh_report(mesh)
        assert (report.links, report.hosts, report.order) == ((), (), None)


def test_a_planned_mesh_on_hosts():
    report = planned_mesh_report({"data": 2, "model": 4}, hosts=4)
    assert facts(report) == {
        "data": ("always", [("other-host", 4)]),
        "model": ("always", [("other-host", 2), ("same-host", 4)]),
    }
    assert report.order == "ascending ids"
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"hosts": 3},
            SpecError,
            "8 devices cannot be divided among 3 hosts: use a divisor of 8, such as 1, 2",
        ),
        ({"hosts": 0}, SpecError, "8 devices cannot be divided among 0 hosts"),
        ({"hosts": 2.0}, UnsupportedValueError, "hosts is a number of hosts, got 2.0"),
        ({"hosts": True}, UnsupportedValueError, "hosts is a number of hosts, got True"),
        ({"hosts": 2, "topology": "v5p-8"}, UnsupportedValueError, "pass either topology or hosts"),
        ({"dcn": {"a": 2}}, UnsupportedValueError, "pass topology, too"),
        ({"topology": "v5p-129"}, TopologyError, "v5p-129"),
        ({"topology": "v5p-32"}, TopologyError, "v5p-32 has 16 devices, but the mesh has 8"),
    ],
)
def test_options_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        planned_mesh_report({"data": 2, "model": 4}, **options)


def test_a_large_mesh_of_devices_is_reported():
    devices = np.array([FakeDevice(number, number // 8) for number in range(65_536)])
    report = mesh_report(mesh_of((256, 256), ("data", "model"), devices))
    assert len(report.layout.processes) == 8192
    assert facts(report)["model"] == ("always", [("other-process", 7936), ("same-host", 57_344)])


@pytest.mark.parametrize("sizes", [{"a": 0}, {"a": 2, "b": 0}])
def test_an_array_on_a_mesh_without_devices_has_a_spec_and_no_mesh(sizes):
    is_new = jax.__version_info__ >= (0, 5)  # AbstractMesh takes sizes and names apart
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes)) if is_new else AbstractMesh((*sizes.items(),))
    array = jax.ShapeDtypeStruct((8,), "float32", sharding=NamedSharding(mesh, P("a")))
    report = array_report(array)
    assert (str(report.sharding), report.sharding.mesh, report.layout) == ("P('a',)", None, None)
    checked = check_report({"w": array})
    assert (checked.unsharded_count, [finding.code for finding in checked.findings]) == (0, ["JAI109"])
