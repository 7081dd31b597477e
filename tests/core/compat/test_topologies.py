import importlib.metadata
import importlib.util
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report, topology_mesh
from jax_array_info_core.compat import lowering, mesh_orders, topologies
from jax_array_info_core.compat.accelerator_types import named_slices
from jax_array_info_core.compat.propagation import mesh_of_jax
from jax_array_info_core.compat.topology_names import GPUS, TPUS, misfit, parse_topology, topologies_with
from jax_array_info_core.errors import TopologyError
from jax_array_info_core.programs import compiled
from jax_array_info_core.programs import program_report as programs_report
from tests.core.compat.stand_ins import stand_ins
from tests.programs import cube

pytestmark = pytest.mark.once_per_version


def message(text):
    with pytest.raises(TopologyError) as caught:
        parse_topology(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    find = importlib.util.find_spec
    hidden = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in hidden else find(name, *rest)
    )


@pytest.mark.parametrize(
    ("text", "sides", "devices"),
    [
        ("v5p:2x2x2", (2, 2, 2), 8),
        ("v5e:2x4", (2, 4), 8),
        ("V5E:2X4", (2, 4), 8),
        ("v5e:2x4x1", (2, 4), 8),
        ("v4:2x2", (2, 2, 1), 4),
        ("v2:2x2", (2, 2), 8),
        ("tpu7x:2x2x1", (2, 2, 1), 8),
        ("h100:8", (8,), 8),
        ("a100:64", (64,), 64),
        ("v5p-128", (4, 4, 4), 64),
        ("v4-64", (2, 4, 4), 32),
        ("tpu7x-128", (4, 4, 4), 128),
        ("v3-32", (4, 4), 32),
        ("v5litepod-256", (16, 16), 256),
        ("V5e-8", (2, 4), 8),
        ("v6e-256", (16, 16), 256),
        ("2*v5p:2x2x1", (2, 2, 1), 8),
        ("4*v5p-128", (4, 4, 4), 256),
        ("2 * v5e:2x4", (2, 4), 16),
    ],
)
def test_a_topology_has_sides_and_devices(text, sides, devices):
    """The two cores of a v4 or v5p chip are one device, those of v2, v3 and tpu7x are two.

    A name counts cores, but chips of v5e and v6e, which have one core each.
    """
    found = parse_topology(text)
    assert (found.sides, found.device_count) == (sides, devices)


def test_an_unknown_chip_is_named_with_near_names_and_the_form():
    assert message("v9:2") == (
        "topology v9:2: v9 is not a known TPU or GPU (did you mean v4, v3, v2?): write a TPU and the chips along "
        "each side, such as v5p:2x2x2, its name, such as v5p-128, or a GPU and a number, such as h100:8. Known are "
        "v2, v3, v4, v5e, v5p, v6e, tpu7x, a100, h100, h200, b200"
    )
    assert "(did you mean v5e?)" in message("v5litepod:2x4")
    assert "(did you mean tpu7x?)" in message("v7x:2x2x1")
    assert "(did you mean tpu7x-128?)" in message("v7-128")
    assert "(did you mean a100, h100?)" in message("2*a10:8")


def test_a_topology_has_the_text_of_its_sides_and_the_name_that_is_written():
    named = parse_topology("4*v5p-128")
    assert (named.text, named.name, named.slice_count) == ("4*v5p:4x4x4", "4*v5p-128", 4)
    assert named == parse_topology("4*v5p:4x4x4") != parse_topology("v5p:4x4x4")
    assert parse_topology("1*v5p-128") == parse_topology("v5p-128")


@pytest.mark.parametrize("chip", TPUS)
def test_each_name_of_a_chip_is_a_topology_with_as_many_cores(chip):
    cores = {"v5e": 1, "v6e": 1}.get(chip, 2)
    for number, (name, sides) in named_slices(chip).items():
        topology = parse_topology(name)
        assert (topology.kind, topology.sides) == (chip, sides)
        assert math.prod(sides) * cores == number
        assert parse_topology(topology.text) == topology


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("v5e:8", "v5e has a torus of 2 sides, such as v5e:2x4"),
        ("v5e:2x4x2", "v5e has a torus of 2 sides, not 3"),
        ("v5e:3x3", "a host has 2x2 chips, so the first two sides are 1 or even"),
        ("v5e:0x1", "the number of devices is between 1 and 65536"),
        ("v5p:1000x1000x1000", "the number of devices is between 1 and 65536"),
        ("h100:0", "the number of GPUs is between 1 and 65536"),
        ("h100:12", "more than 8 GPUs are hosts with 8 each: use a multiple of 8"),
        ("h100:2x4", "GPUs have a number, such as h100:8"),
        ("h100-8", "GPUs have a number, such as h100:8"),
        ("2*h100:8", "only TPUs have slices: GPUs have a number, such as h100:16"),
        ("0*v5p:2x2x1", "the number of devices is between 1 and 65536"),
        ("9999*v5p-128", "the number of devices is between 1 and 65536"),
        (
            "v5p-100",
            "Google Cloud names v5p-64 (2x4x4) and v5p-128 (4x4x4); write any other slice with its sides, such as "
            "v5p:4x4x4",
        ),
        (
            "2*v5litepod-512",
            "Google Cloud names v5litepod-256 (16x16); write any other slice with its sides, such as v5e:16x16",
        ),
    ],
)
def test_a_topology_that_does_not_exist_has_a_reason(text, problem):
    """libtpu itself ends the process for some of them."""
    assert message(text) == f"topology {text} does not exist: {problem}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":",
        "*",
        "2*",
        "2*v5p",
        "*v5p:2x2x1",
        "v5p-",
        "v5p-128:2x2",
        "-8",
        "v5p",
        "v5p:",
        "v5p:x",
        "v5p:2x",
        "v5p:-2x2x2",
        "v5p:٢x2",
        "v5e:2x4;",
    ],
)
def test_other_text_is_one_line_of_error(text):
    assert "such as v5p:2x2x2" in message(text)


@pytest.mark.parametrize("value", [5, b"v5e:2x4", ["v5e:2x4"]])
def test_a_topology_must_be_a_text(value):
    assert message(value) == f"a topology is a text, such as 'v5p:2x2x2', got {type(value).__name__}"


def test_escapes_in_a_topology_are_printed():
    assert "\x1b" not in message("v9\x1b[31m:2")


@pytest.mark.parametrize("kind", [*TPUS, *GPUS])
def test_a_topology_that_fits_has_as_many_devices(kind):
    for count in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048):
        text = topologies_with(count, kind)
        assert not text or parse_topology(text).device_count == count
    assert topologies_with(8, "v5e", "v5p", "h100") == "v5e:2x4 or v5p:2x2x2 or h100:8"


@pytest.mark.parametrize(
    ("text", "count", "fix"),
    [
        ("v5p-128", 128, "v5p-256"),
        ("v5p-128", 24, "v5p:2x4x3"),
        ("2*v5p:2x2x1", 16, "4*v5p:2x2x1 or 2*v5p:2x2x2"),
        ("2*v5p:2x2x1", 4, "v5p:2x2x1 or 2*v5p:2x1x1"),
        ("4*v5p-128", 512, "8*v5p-128 or 4*v5p-256"),
        ("3*v5p:2x2x1", 8, "2*v5p:2x2x1"),
        ("3*v5p:2x2x1", 2, "v2:1x1 or v3:1x1 or v4:2x1x1 or v5e:2x1 or v5p:2x1x1 or v6e:2x1 or tpu7x:1x1x1"),
    ],
)
def test_a_mesh_of_another_size_is_told_topologies_that_fit(text, count, fix):
    topology = parse_topology(text)
    assert misfit(topology, count, "the mesh") == (
        f"topology {text} has {topology.device_count} devices, but the mesh has {count}: use {fix}, or a mesh of "
        f"{topology.device_count} devices"
    )


def doubled():
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(cube(), P("data")))
    return jax.jit(lambda x: x * 2), x


@pytest.mark.needs_devices(8)
def test_a_mesh_of_another_size_names_both_and_what_fits():
    with pytest.raises(TopologyError) as caught:
        program_report(*doubled(), topology="v5e:4x4")
    assert str(caught.value) == (
        "topology v5e:4x4 has 16 devices, but the mesh has 8: use v5e:2x4, or a mesh of 16 devices"
    )


@pytest.mark.needs_devices(8)
def test_without_libtpu_the_error_says_what_to_install_and_its_license(nothing_installed):
    with pytest.raises(TopologyError) as caught:
        program_report(*doubled(), topology="v5e:2x4")
    assert str(caught.value) == (
        "topology v5e:2x4 needs Google's compiler for TPUs, which is not installed: "
        f'pip install "{topologies._required("libtpu")}" (license: Google Cloud Platform Terms of Service). '
        "No TPU is needed"
    )
    assert topologies._required("libtpu").startswith("libtpu==0.0.")


@pytest.mark.needs_devices(8)
def test_without_the_cuda_plugin_the_error_says_what_to_install_and_its_license(nothing_installed):
    version = importlib.metadata.version("jax")
    with pytest.raises(TopologyError) as caught:
        program_report(*doubled(), topology="h100:8")
    if tuple(map(int, version.split(".")[:2])) < (0, 10):
        assert "Use JAX 0.10 or later, or a TPU" in str(caught.value)
        return
    assert str(caught.value) == (
        "topology h100:8 needs JAX's CUDA plugin, which is not installed: "
        f'pip install "jax-cuda12-plugin=={version}" (license: Apache-2.0). No GPU is needed'
    )


@pytest.mark.needs_devices(8)
def test_a_lowered_program_has_no_other_topology():
    f, x = doubled()
    with pytest.raises(
        TopologyError, match=r"topology v5e:2x4: the program is lowered for its own devices already"
    ):
        program_report(f.lower(x), topology="v5e:2x4")


def test_an_abstract_mesh_without_a_topology_has_no_devices_to_compile_for():
    mesh = mesh_of_jax({"x": 8})
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    with pytest.raises(TopologyError, match=r"no devices to compile for: .* print_propagation needs no"):
        program_report(lambda x: x * 2, x)


@pytest.mark.needs_devices(8)
def test_a_host_callback_cannot_be_compiled_for_a_topology():
    _, x = doubled()

    def printed(x):
        jax.debug.print("{}", x.sum())
        return x * 2

    with pytest.raises(TopologyError, match=r"remove jax\.debug\.print"):
        program_report(printed, x, topology="v5e:2x4")


CHIPS = [
    "v2:2x2",
    "v3:2x2",
    "v4:2x2x2",
    "v5e:4x4",
    "v5p:2x2x4",
    "v6e:2x4",
    "tpu7x:2x2x1",
    "h100:16",
    "b200:8",
    "2*v5p:2x2x1",
    "3*tpu7x:2x2x1",
]


@pytest.mark.parametrize("text", CHIPS)
def test_a_device_that_is_not_here_has_its_topology(text):
    devices = stand_ins(parse_topology(text))
    assert topologies.topology_of(devices[-1]) == parse_topology(text)


def test_a_device_that_is_here_has_no_topology():
    assert topologies.topology_of(jax.devices()[0]) is None
    assert topologies.topology_of(None) is None
    two_slices = stand_ins(parse_topology("v5p:2x2x1"))
    two_slices += two_slices  # the client's list of devices
    assert topologies.topology_of(two_slices[0]) is None  # some coordinates twice, without a slice


@pytest.fixture
def cpus_as_topology(monkeypatch):
    """The CPU devices stand for those of a topology."""
    for module in (lowering, mesh_orders):
        monkeypatch.setattr(module, "topology_devices", lambda topology: jax.devices())


@pytest.mark.needs_devices(8)
def test_a_topology_mesh_has_the_devices_in_the_order_of_make_mesh(cpus_as_topology):
    mesh = topology_mesh("v5p:2x2x2", {"data": np.int64(2), "model": 4})
    assert mesh == Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    split = topology_mesh("v5p:2x2x2", {"data": 8}, allow_split_physical_axes=True)
    assert dict(split.shape) == {"data": 8}
    if hasattr(jax.sharding, "AxisType"):
        explicit = (jax.sharding.AxisType.Explicit,)
        assert topology_mesh("v5e:2x4", {"x": 8}, axis_types=explicit).axis_types == explicit


@pytest.mark.needs_devices(8)
def test_a_topology_mesh_needs_a_topology_and_sizes_that_fit(nothing_installed):
    for axes, problem in (
        (
            {"data": 4},
            "topology v5e:2x4 has 8 devices, but the mesh has 4: use v5e:2x2, or a mesh of 8 devices",
        ),
        ({"data": 8}, 'pip install "libtpu'),
        ({"data": -2, "model": -4}, "mesh axis 'data' has no devices: its size is -2"),
        ({"data": "8"}, "the size of mesh axis 'data' must be an integer, got '8'"),
    ):
        with pytest.raises(ValueError, match=re.escape(problem)):
            topology_mesh("v5e:2x4", axes)
    with pytest.raises(TopologyError, match="v9 is not a known TPU or GPU"):
        topology_mesh("v9:2x4", {"data": 8})


@pytest.mark.needs_devices(8)
def test_axes_that_do_not_fit_the_torus_have_a_fix(cpus_as_topology, monkeypatch):
    def refused(*args, **options):
        raise NotImplementedError("Failed to find assignment for logical axis index 0 of size 2.")

    monkeypatch.setattr(mesh_orders, "mesh_order", refused)
    with pytest.raises(TopologyError) as caught:
        topology_mesh("v5p:2x2x2", {"data": 8})
    assert str(caught.value) == (
        "topology v5p:2x2x2: Failed to find assignment for logical axis index 0 of size 2: "
        "set allow_split_physical_axes=True, or change the sizes"
    )


@pytest.mark.needs_devices(8)
def test_a_program_for_a_topology_has_its_memory_and_says_on_what_it_was_traced(cpus_as_topology):
    """Code that asks for the platform of a device takes another branch than on the topology."""
    report = program_report(*doubled(), topology="v5p:2x2x2")
    assert report.memory.available_nbytes == round(95.73 * 2**30)
    assert report.memory.required_nbytes == 2 * 64 * 32 * 4 // 2
    assert report.caveats[0] == (
        "Traced with CPU devices: code that asks for their platform, such as mesh.devices.flat[0].platform, took "
        "the branch for CPU. With a mesh from topology_mesh, it takes the branch for TPU."
    )
    here = program_report(*doubled())
    assert (here.memory.required_nbytes, here.memory.available_nbytes) == (None, None)
    assert not any("Traced" in caveat for caveat in here.caveats)


@pytest.mark.needs_devices(8)
def test_a_program_on_the_devices_of_a_topology_is_compiled_for_it(monkeypatch):
    v5e = parse_topology("v5e:2x4")
    for module in (compiled, programs_report, lowering):
        monkeypatch.setattr(module, "topology_of", lambda device: v5e)
    f, x = doubled()
    for report in (
        program_report(f, x),
        program_report(f.lower(x)),
        program_report(f.lower(x).compile()),
        program_report(f, x, topology="v5e:2x4"),
    ):
        assert (report.topology, report.platform) == ("v5e:2x4", "tpu")
        assert report.memory.available_nbytes == v5e.memory_nbytes
        assert not any("Traced" in caveat for caveat in report.caveats)
