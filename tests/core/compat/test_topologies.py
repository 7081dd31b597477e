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
from jax_array_info_core.compat import lowering, topologies
from jax_array_info_core.compat.lowering import mesh_of_jax
from jax_array_info_core.compat.topology_names import NAMED_SLICES, TPUS, parse_topology
from jax_array_info_core.errors import TopologyError
from jax_array_info_core.programs import compiled
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


def test_a_text_that_names_no_topology_is_told_the_forms():
    assert message("v9:2") == (
        "topology v9:2 does not exist: write a TPU slice by the chips along each side, 1 or even along the first two, "
        "such as v5p:2x2x2, or by its name, such as v5p-128, several slices, such as 2*v5p:2x2x2, or GPUs by their "
        "number, at most 8 or a multiple of 8, such as h100:16; at most 65536 devices of "
        "v2, v3, v4, v5e, v5p, v6e, tpu7x, a100, h100, h200, b200"
    )


def test_a_topology_has_the_text_of_its_sides_and_the_name_that_is_written():
    named = parse_topology("4*v5p-128")
    assert (named.text, named.name, named.slice_count) == ("4*v5p:4x4x4", "4*v5p-128", 4)
    assert named == parse_topology("4*v5p:4x4x4") != parse_topology("v5p:4x4x4")
    assert parse_topology("1*v5p-128") == parse_topology("v5p-128")


@pytest.mark.parametrize(("name", "named"), NAMED_SLICES.items())
def test_each_name_of_a_chip_is_a_topology_with_as_many_cores(name, named):
    chip, sides = named
    topology = parse_topology(name)
    assert topology == parse_topology(f"{chip}:{sides}") == parse_topology(topology.text)
    cores = {"v5e": 1, "v6e": 1}.get(chip, 2)
    assert math.prod(topology.sides) * cores == int(name.partition("-")[2])


def test_every_chip_has_names():
    assert {chip for chip, _ in NAMED_SLICES.values()} == set(TPUS)


NO_SLICES = (
    "v5e:8 v5e:2x4x2 v5e:3x3 v5e:0x1 v5p:1000x1000x1000 0*v5p:2x2x1 9999*v5p-128 v5p-100 2*v5litepod-512"
)
NO_GPUS = "h100:0 h100:12 h100:2x4 h100-8 2*h100:8"
NO_CHIPS = "v5litepod:2x4 v7x:2x2x1"
NO_FORMS = ": * 2* 2*v5p *v5p:2x2x1 v5p- v5p-128:2x2 -8 v5p v5p: v5p:x v5p:2x v5p:-2x2x2 v5p:٢x2 v5e:2x4;"


@pytest.mark.parametrize("text", ["", " ", *f"{NO_SLICES} {NO_GPUS} {NO_CHIPS} {NO_FORMS}".split()])
def test_a_topology_that_does_not_exist_is_one_line_of_error(text):
    """libtpu itself ends the process for some of them."""
    shown = text.strip() or "''"
    assert message(text).startswith(
        f"topology {shown} does not exist: write a TPU slice by the chips along each"
    )


@pytest.mark.parametrize("value", [5, b"v5e:2x4", ["v5e:2x4"]])
def test_a_topology_must_be_a_text_whose_escapes_are_printed(value):
    assert message(value) == f"a topology is a text, such as 'v5p:2x2x2', got {type(value).__name__}"
    assert "\x1b" not in message("v9\x1b[31m:2")


def doubled():
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(cube(), P("data")))
    return jax.jit(lambda x: x * 2), x


def refusal(topology, *program):
    """Return the message of the error for a program on a topology."""
    with pytest.raises(TopologyError) as caught:
        program_report(*(program or doubled()), topology=topology)
    return str(caught.value)


@pytest.mark.needs_devices(8)
def test_without_libtpu_the_error_says_what_to_install_and_its_license(nothing_installed):
    assert refusal("v5e:2x4") == (
        "topology v5e:2x4 needs Google's compiler for TPUs, which is not installed: "
        f'pip install "{topologies._required("libtpu")}" (license: Google Cloud Platform Terms of Service). '
        "No TPU is needed"
    )
    assert topologies._required("libtpu").startswith("libtpu==0.0.")


@pytest.mark.needs_devices(8)
def test_without_the_cuda_plugin_the_error_says_what_to_install_and_its_license(nothing_installed):
    version = importlib.metadata.version("jax")
    if jax.__version_info__ < (0, 10):
        assert "Use JAX 0.10 or later, or a TPU" in refusal("h100:8")
        return
    assert refusal("h100:8") == (
        "topology h100:8 needs JAX's CUDA plugin, which is not installed: "
        f'pip install "jax-cuda12-plugin=={version}" (license: Apache-2.0). No GPU is needed'
    )


@pytest.mark.needs_devices(8)
def test_programs_that_cannot_be_compiled_for_a_topology_have_a_reason():
    f, x = doubled()
    assert refusal("v5e:4x4") == (
        "topology v5e:4x4 has 16 devices, but the mesh has 8: use a mesh of 16 devices, or another topology"
    )
    assert refusal("v5e:2x4", f.lower(x)).startswith(
        "topology v5e:2x4: the program is lowered for its own devices already"
    )

    def printed(x):
        jax.debug.print("{}", x.sum())
        return x * 2

    assert "remove jax.debug.print" in refusal("v5e:2x4", printed, x)


def test_an_abstract_mesh_without_a_topology_has_no_devices_to_compile_for():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh_of_jax({"x": 8}), P("x")))
    with pytest.raises(TopologyError, match=r"no devices to compile for: .* print_propagation needs no"):
        program_report(lambda x: x * 2, x)


SEVERAL = (
    "v2:2x2 v3:2x2 v4:2x2x2 v5e:4x4 v5p:2x2x4 v6e:2x4 tpu7x:2x2x1 h100:16 b200:8 2*v5p:2x2x1 3*tpu7x:2x2x1"
)


@pytest.mark.parametrize("text", SEVERAL.split())
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
    for module in (lowering, topologies):
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
@pytest.mark.parametrize(
    ("text", "axes", "problem"),
    [
        (
            "v5e:2x4",
            {"data": 4},
            "topology v5e:2x4 has 8 devices, but the mesh has 4: use a mesh of 8 devices",
        ),
        ("v5e:2x4", {"data": 8}, 'pip install "libtpu'),
        ("v5e:2x4", {"data": -2, "model": -4}, "mesh axis 'data' has no devices: its size is -2"),
        ("v5e:2x4", {"data": "8"}, "the size of mesh axis 'data' must be an integer, got '8'"),
        ("v9:2x4", {"data": 8}, "topology v9:2x4 does not exist: write a TPU slice"),
    ],
)
def test_a_topology_mesh_needs_a_topology_and_sizes_that_fit(nothing_installed, text, axes, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        topology_mesh(text, axes)


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    ("able", "fix"),
    [
        ((), "change the sizes"),
        ([(8, 1), (2, 4), (1, 8)], "a mesh of data=2,model=4 or data=8,model=1 or data=1,model=8 fits"),
    ],
)
def test_axes_that_do_not_fit_the_torus_have_sizes_that_do(cpus_as_topology, monkeypatch, able, fix):
    def ordered(devices, sizes, *args, **options):
        if (*sizes.values(),) not in able:
            raise NotImplementedError("Failed to find assignment of size 2. Set allow_split_physical_axes.")

    monkeypatch.setattr(topologies, "mesh_order", ordered)
    with pytest.raises(TopologyError) as caught:
        topology_mesh("v5p:2x2x2", {"data": 4, "model": 2})
    assert str(caught.value) == f"topology v5p:2x2x2: Failed to find assignment of size 2: {fix}"


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
    for module in (compiled, lowering):
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
