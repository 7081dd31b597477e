"""Programs for TPUs and GPUs that are not here. The session ahead-of-time installs their compilers."""

import importlib.util
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import TopologyError, program_report
from tests.programs import abstract, block, cube

pytestmark = pytest.mark.needs_devices(8)
needs_tpu_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"
)
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
    assert (report.unread, report.caveats) == (
        (),
        ("Values in VMEM are not among the temporaries that are listed.",),
    )
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
    assert capfd.readouterr().err == ""


@needs_tpu_compiler
def test_a_rematerialization_on_tpu_is_known_with_its_line():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))

    def moved(a):
        return lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P(None, ("x", "y")))) + 1

    report = program_report(moved, abstract(mesh, P("y", None, "x"), (16, 16, 16)), topology="v5e:2x4")
    (found,) = report.rematerializations
    assert report.rematerializations_known == "known"
    assert found.before.axes == (("y",), (), ("x",))
    assert found.after.axes == ((), ("x", "y"))
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
    with pytest.raises(TopologyError, match="has 8 devices, but the program has 1: use v5e:1x1"):
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


@needs_tpu_compiler
def test_nothing_of_this_process_changes(capfd):
    before = dict(os.environ)
    devices = jax.devices()
    program_report(lambda x: x @ x.T, abstract(cube(), P("data"), (64, 64)), topology="v5p:2x2x2")
    assert dict(os.environ) == before or set(os.environ) - set(before) == {"TPU_LIBRARY_PATH"}
    assert jax.devices() == devices
    assert jax.live_arrays() == []
    assert capfd.readouterr().err == ""
