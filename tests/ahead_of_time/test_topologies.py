"""Programs for TPUs and GPUs that are not here. The session ahead-of-time installs their compilers."""

import functools
import importlib.util
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    assert_no_collective,
    from_json,
    program_report,
    to_json,
    topology_mesh,
)
from jax_array_info_core.compat.topology_names import parse_topology
from jax_array_info_core.errors import TopologyError
from tests.ahead_of_time import needs_tpu_compiler
from tests.programs import abstract, block, cube
from tests.scanned import PROGRAMS, explained

pytestmark = pytest.mark.needs_devices(8)
needs_gpu_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="jax-cuda12-plugin is not installed"
)
V5E_HBM = round(15.75 * 2**30)


def spec_of(report, path):
    return next(one.got.spec.axes for one in report.outputs if one.path == path)


def parameters(mesh, layers, width, hidden):
    return {
        "wi": abstract(mesh, P(None, "fsdp", "tensor"), (layers, width, hidden)),
        "wo": abstract(mesh, P(None, "tensor", "fsdp"), (layers, hidden, width)),
    }


def batch(mesh, *shape):
    return abstract(mesh, P(("data", "fsdp")), shape)


def trained(weights):
    """Return a jitted step of a scanned MLP, with the shardings of its weights, which it donates."""

    def loss(params, x):
        return jnp.mean(lax.scan(block, x, params)[0] ** 2)

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    shardings = jax.tree.map(lambda one: one.sharding, weights)
    return jax.jit(step, out_shardings=shardings, donate_argnums=0)


def sent(report):
    return {(one.kind, one.axes): one.nbytes for one in report.sent.by_kind_and_axes}


@needs_tpu_compiler
@pytest.mark.parametrize("topology", ["v5p:2x2x2", "v5e:2x4"])
def test_a_scanned_step_on_tpu_reduces_and_scatters_its_gradients(topology, capfd):
    """Of bfloat16 operands: half the bytes of CPU. Gradients are reduced over fsdp by reduce-scatters."""
    weights = parameters(cube(), 4, 1024, 4096)
    report = program_report(trained(weights), weights, batch(cube(), 32, 256, 1024), topology=topology)
    assert (report.platform, report.topology, report.device_count) == ("tpu", topology, 8)
    assert sent(report) == {
        ("all-gather", ("fsdp",)): 33_554_432,
        ("all-reduce", ("tensor",)): 67_108_864,
        ("all-reduce", ("data",)): 33_554_432,
        ("reduce-scatter", ("fsdp",)): 33_554_432,
    }
    assert {one.times for one in report.collectives} == {4}
    assert report.dot_flops == 206_158_430_208
    assert report.unread == ()
    assert report.caveats == (
        "Traced with CPU devices: code that asks for their platform, such as mesh.devices.flat[0].platform, took "
        "the branch for CPU. With a mesh from topology_mesh, it takes the branch for TPU.",
        "Values in VMEM are not among the temporaries that are listed.",
    )
    assert report.memory.required_nbytes == report.memory.allocated_nbytes < report.memory.available_nbytes
    assert report.memory.argument_nbytes == 41_943_040
    kept = next(one for one in report.memory.temporaries if one.is_kept)
    assert (kept.shape, kept.origin is not None) == ((4, 8, 256, 2048), True)
    assert {one.path: one.output for one in report.donations} == {
        "params/wi": "outputs/wi",
        "params/wo": "outputs/wo",
    }
    assert spec_of(report, "outputs/wi") == ((), ("fsdp",), ("tensor",))
    assert capfd.readouterr().err == ""


@needs_tpu_compiler
def test_a_program_that_does_not_fit_is_a_finding_with_its_buffers(capfd):
    weights = parameters(cube(), 8, 4096, 16384)
    report = program_report(trained(weights), weights, batch(cube(), 160, 2048, 4096), topology="v5e:2x4")
    found = report.out_of_memory
    assert report.memory is None
    assert found.available_nbytes == V5E_HBM < found.required_nbytes
    assert "HBM" in found.message or "hbm" in found.message or "memory" in found.message
    assert found.buffers[0].shape == (8, 40, 2048, 8192)
    assert sum(one.nbytes for one in found.buffers) <= found.required_nbytes
    assert all(one.origin is not None for one in found.buffers[:4])
    assert report.dot_flops is not None
    assert report.caveats[0].startswith("Traced with CPU devices")
    assert capfd.readouterr().err == ""


@needs_tpu_compiler
@pytest.mark.parametrize(
    "name", ["v2:2x2", "v3:2x2", "v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4", "tpu7x:2x2x1"]
)
def test_the_memory_of_a_chip_is_what_libtpu_refuses_more_than(name):
    topology = parse_topology(name)
    mesh = topology_mesh(topology.text, {"x": 8})

    def doubled(factor):
        """Return a report on a program that needs a multiple of the memory of a device."""
        length = 8 * round(factor * topology.memory_nbytes / 2 / 4)
        return program_report(lambda x: x * 2, abstract(mesh, P("x"), (length,)))

    assert doubled(1.01).out_of_memory.available_nbytes == topology.memory_nbytes
    fits = doubled(0.99)
    assert fits.out_of_memory is None
    assert fits.memory.available_nbytes == topology.memory_nbytes
    assert fits.memory.required_nbytes == pytest.approx(0.99 * topology.memory_nbytes, rel=1e-3)


@needs_tpu_compiler
def test_what_a_program_needs_of_the_main_memory_does_not_count_vmem():
    """XLA accepts it, although it needs more than the memory of a device with the values in VMEM."""
    mesh = topology_mesh("v5e:2x4", {"x": 8})
    free = 2**22
    length = 8 * ((V5E_HBM - 10 * 2**20 - free) // 8)

    def step(large, weights, x):
        def loss(weights):
            return (functools.reduce(lambda y, weight: jnp.tanh(y @ weight), weights, x) ** 2).sum()

        return large * 2, jax.grad(loss)(weights)

    weights = [abstract(mesh, P(), (512, 512))] * 4
    memory = program_report(
        step, abstract(mesh, P("x"), (length,)), weights, abstract(mesh, P("x"), (8192, 512))
    ).memory
    assert memory.required_nbytes == pytest.approx(V5E_HBM - free, abs=2**20)
    assert memory.needed_nbytes == memory.required_nbytes < memory.available_nbytes
    assert memory.required_nbytes + memory.vmem_nbytes > memory.available_nbytes
    assert memory.peak_nbytes is None


def platform_of(mesh):
    """Return a function that asks its mesh for the platform, as attention with kernels does."""

    def chosen(x):
        if mesh.devices.flat[0].platform == "tpu":
            return lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("data")))
        return x @ x.T

    return chosen


@needs_tpu_compiler
def test_on_a_topology_mesh_code_that_asks_for_the_platform_takes_the_branch_of_the_topology(capfd):
    axes = {"data": 2, "model": 4}
    mesh = topology_mesh("v5p:2x2x2", axes)
    assert (mesh.devices.shape, mesh.axis_names) == ((2, 4), ("data", "model"))
    x = abstract(mesh, P("data", "model"), (64, 128))
    report = program_report(platform_of(mesh), x)
    assert (report.topology, report.platform, report.device_count) == ("v5p:2x2x2", "tpu", 8)
    assert report.dot_flops == 0
    assert report.memory.available_nbytes == parse_topology("v5p:2x2x2").memory_nbytes
    assert not any("Traced" in caveat for caveat in report.caveats)
    jitted = jax.jit(platform_of(mesh))
    for other in (
        program_report(jitted.lower(x)),
        program_report(jitted.lower(x).compile()),
        program_report(jitted, x, topology="v5p:2x2x2"),
    ):
        assert (other.topology, other.caveats) == ("v5p:2x2x2", report.caveats)
        assert [one.got for one in other.outputs] == [one.got for one in report.outputs]
    here = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), tuple(axes))
    traced_here = program_report(
        platform_of(here), abstract(here, P("data", "model"), (64, 128)), topology="v5p:2x2x2"
    )
    assert traced_here.dot_flops > 0
    assert traced_here.caveats[0].startswith("Traced with CPU devices: code that asks for their platform")
    elsewhere = program_report(platform_of(mesh), x, topology="v5e:2x4")
    assert elsewhere.caveats[0].startswith("Traced with v5p:2x2x2 devices")
    assert capfd.readouterr().err == ""


@needs_tpu_compiler
@pytest.mark.parametrize("topology", ["v5e:4x4", "v5p:2x2x4", "v6e:4x4"])
def test_a_topology_mesh_has_the_order_of_make_mesh(topology):
    mesh = topology_mesh(topology, {"data": 4, "model": 4})
    there = sorted(mesh.devices.flat, key=lambda device: device.id)
    assert mesh.devices.tolist() == jax.make_mesh((4, 4), ("data", "model"), devices=there).devices.tolist()


@needs_tpu_compiler
def test_axes_that_share_a_side_of_the_torus_are_allowed_on_request():
    axes = {"data": 2, "model": 32}
    with pytest.raises(
        TopologyError, match="a mesh of data=1,model=64 or data=4,model=16 or data=16,model=4 fits"
    ):
        topology_mesh("v5p:4x4x4", axes)
    assert topology_mesh("v5p:4x4x4", axes, allow_split_physical_axes=True).size == 64


@needs_gpu_compiler
def test_a_topology_mesh_of_gpus():
    mesh = topology_mesh("h100:8", {"data": 2, "model": 4})
    report = program_report(lambda x: x @ x.T, abstract(mesh, P("data", "model"), (64, 128)))
    assert (report.topology, report.platform, report.caveats) == ("h100:8", "gpu", ())
    assert report.memory.required_nbytes < report.memory.available_nbytes == 84_942_979_072


@needs_tpu_compiler
def test_a_value_that_is_replicated_on_tpu_has_its_line():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))

    def moved(a):
        return lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P(None, ("x", "y")))) + 1

    report = program_report(moved, abstract(mesh, P("y", None, "x"), (16, 16, 16)), topology="v5e:2x4")
    (found,) = report.rematerializations
    # XLA gathers over both mesh axes at once, along an axis that it then divides.
    assert (found.shape, found.whole_shape, found.axes) == ((8, 16, 4), (16, 16, 16), ("x", "y"))
    assert found.origin.line == moved.__code__.co_firstlineno + 1


def both_ways(topology):
    """Check a program with meshes in closures, of which one is permuted."""
    devices = np.array(jax.devices()[:8])
    mesh = cube()
    permuted = Mesh(devices[[3, 1, 0, 2, 7, 6, 4, 5]].reshape(4, 2), ("a", "b"))

    def inside(x):
        return lax.with_sharding_constraint(x * 2, NamedSharding(permuted, P("b", "a")))

    report = program_report(
        jax.jit(inside, out_shardings=NamedSharding(permuted, P("a"))),
        abstract(permuted, P("a", "b"), (64, 128)),
        topology=topology,
    )
    assert spec_of(report, "outputs") == (("a",),)
    assert all(one.axes for one in report.collectives)

    ring = getattr(jax, "shard_map", None)
    if ring is None:
        from jax.experimental.shard_map import shard_map as ring

    def passed(x):
        def send(a):
            return lax.ppermute(a, "data", [(0, 1), (1, 0)])

        return ring(send, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)

    report = program_report(passed, abstract(mesh, P("data"), (64, 128)), topology=topology)
    (permute,) = report.collectives
    assert (permute.kind, permute.axes, permute.sent_nbytes) == (
        "collective-permute",
        ("data",),
        32 * 128 * 4,
    )


@needs_tpu_compiler
@pytest.mark.parametrize("topology", ["v2:2x2", "v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4"])
def test_meshes_in_closures_are_placed_on_tpus(topology):
    both_ways(topology)


@needs_gpu_compiler
@pytest.mark.parametrize("topology", ["a100:8", "h100:8", "b200:8"])
def test_meshes_in_closures_are_placed_on_gpus(topology):
    both_ways(topology)


@needs_tpu_compiler
def test_a_program_is_lowered_for_its_topology():
    """Code for another platform, keys and constants are those of the TPU."""

    def chosen(x):
        return lax.platform_dependent(x, cpu=lambda a: a @ a.T, tpu=lambda a: a * 2)

    x = abstract(cube(), P("data"), (64, 64))
    report = program_report(chosen, x, topology="v5e:2x4")
    assert (report.dot_flops, report.collectives) == (0, ())


@needs_tpu_compiler
def test_a_program_without_a_mesh_runs_on_one_chip():
    x = jax.ShapeDtypeStruct((128, 128), jnp.bfloat16)
    report = program_report(lambda x: x @ x, x, topology="v5e:1x1")
    assert (report.device_count, report.dot_flops) == (1, 2 * 128**3)
    with pytest.raises(TopologyError, match="has 8 devices, but the program has 1: use a mesh of 8 devices"):
        program_report(lambda x: x @ x, x, topology="v5e:2x4")


@needs_gpu_compiler
def test_a_scanned_step_on_gpu():
    weights = parameters(cube(), 4, 1024, 4096)
    report = program_report(trained(weights), weights, batch(cube(), 32, 256, 1024), topology="h100:8")
    assert (report.platform, report.topology) == ("gpu", "h100:8")
    assert sent(report) == {
        ("all-gather", ("fsdp",)): 67_108_864,
        ("all-reduce", ("tensor",)): 67_108_864,
        ("all-reduce", ("data",)): 33_554_432,
        ("reduce-scatter", ("fsdp",)): 33_554_432,
    }
    assert report.dot_flops == 206_158_430_208
    assert report.unread == ()
    assert all(one.output for one in report.donations)


@needs_gpu_compiler
def test_a_program_that_does_not_fit_a_gpu_is_a_finding():
    """XLA's compiler for GPUs refuses no program."""
    weights = parameters(cube(), 8, 4096, 16384)
    report = program_report(trained(weights), weights, batch(cube(), 160, 2048, 4096), topology="h100:8")
    found = report.out_of_memory
    assert found.available_nbytes == 84_942_979_072 < found.required_nbytes
    assert found.message.startswith("the program needs ")
    assert found.buffers[0].shape == (8, 40, 2048, 8192)
    assert from_json(to_json(report)) == report


@needs_tpu_compiler
def test_nothing_of_this_process_changes(capfd):
    before = dict(os.environ)
    devices = jax.devices()
    program_report(lambda x: x @ x.T, abstract(cube(), P("data"), (64, 64)), topology="v5p:2x2x2")
    assert dict(os.environ) == before or set(os.environ) - set(before) == {"TPU_LIBRARY_PATH"}
    assert jax.devices() == devices
    assert jax.live_arrays() == []
    assert capfd.readouterr().err == ""


@needs_tpu_compiler
def test_the_bytes_of_a_pallas_kernel_that_copies_to_other_devices_are_unknown():
    from jax.experimental import pallas
    from jax.experimental.pallas import tpu

    mesh = topology_mesh("v5p:2x2x1", {"x": 4})

    def copy(source, target, sent, received):
        right = {"x": (jax.lax.axis_index("x") + 1) % 4}
        tpu.make_async_remote_copy(source, target, sent, received, device_id=right).start()

    def shift(x):
        anywhere = pallas.BlockSpec(memory_space=pallas.ANY)
        return pallas.pallas_call(
            copy, x, in_specs=[anywhere], out_specs=anywhere, scratch_shapes=[tpu.SemaphoreType.DMA] * 2
        )(x)

    shifted = jax.jit(jax.shard_map(shift, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    report = program_report(shifted, abstract(mesh, P("x"), (1024, 1024)))
    assert ["tpu_custom_call" in line for line in report.unread_sending] == [True]
    with pytest.raises(AssertionError, match="tpu_custom_call"):
        assert_no_collective(report, "collective-permute")


@needs_tpu_compiler
def test_a_pallas_kernel_is_read_and_its_flops_are_not_counted():
    """Its metadata spans lines."""
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask,
    )

    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((512, 512))])

    def attend(w, q):
        kernel = splash_attention_kernel.make_splash_mha(mask, head_shards=1, q_seq_shards=1)
        heads = jax.vmap(kernel)
        return jax.shard_map(heads, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)(
            q @ w, q, q
        )

    queries = abstract(mesh, P("x"), (8, 1, 512, 128))
    report = program_report(jax.jit(attend), abstract(mesh, P(), (128, 128)), queries, topology="v5p:2x2x2")
    assert (report.unread, report.sent.nbytes) == ((), 0)
    assert (report.dot_flops, report.known_dot_flops) == (None, 2 * 512 * 128 * 128)
    (kernel,) = report.uncounted_flops
    assert (kernel.reason, kernel.operation, kernel.count) == ("kernel", "tpu_custom_call", 1)


@needs_tpu_compiler
@pytest.mark.parametrize("axis_type", ["Explicit", "Auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_of_a_constraint_in_a_loop_and_its_reason_are_kept(name, axis_type):
    mesh = topology_mesh("v5p:2x2x2", {"data": 8}, axis_types=(getattr(AxisType, axis_type),))
    report = explained(name, mesh)
    # A reshard also shards its gradient, which XLA makes in one fusion with the update of the stack: no array of
    # the shape of the shard has the line.
    is_fused = axis_type == "Explicit" and name in ("gradient", "checkpoint")
    assert ("JAI204" in [one.code for one in report.findings]) == is_fused
