"""Remedies of findings that only the compiler of an accelerator makes, applied to a case of their page."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import program_report, topology_mesh
from tests.ahead_of_time import needs_tpu_compiler

ON_ACCELERATORS = {"JAI209"}
"""Codes whose remedies are tried here."""
pytestmark = needs_tpu_compiler


def finding(report):
    [found] = [one for one in report.findings if one.code == "JAI209"]
    return found


def codes(report):
    return [one.code for one in report.findings]


def test_more_devices_smaller_batches_or_sharding_make_a_program_fit():
    mesh = topology_mesh("v5e:2x2", {"x": 4})

    def step(mesh, rows, *spec):
        array = jax.ShapeDtypeStruct((rows, 65536), jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
        return program_report(jax.jit(lambda a: jnp.tanh(a) * 2, out_shardings=array.sharding), array)

    report = step(mesh, 65536)
    assert "Shard or recompute" in finding(report).remedy
    assert "use smaller batches, or use more devices" in finding(report).remedy
    assert "JAI209" not in codes(step(mesh, 65536, "x"))
    assert "JAI209" not in codes(step(mesh, 4096))
    large = topology_mesh("v5e:4x4", {"x": 16})
    assert "JAI209" in codes(step(mesh, 262144, "x"))
    assert "JAI209" not in codes(step(large, 262144, "x"))


def test_smaller_blocks_make_a_kernel_fit_vmem_and_more_devices_do_not():
    from jax.experimental import pallas

    def report(topology, size, **grid):
        mesh = topology_mesh(topology, {"x": size})

        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        def call(x):
            return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), **grid)(x)

        function = jax.shard_map(call, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
        array = jax.ShapeDtypeStruct((8192, 8192), jnp.float32, sharding=NamedSharding(mesh, P()))
        return program_report(jax.jit(function), array)

    found = finding(report("v5e:2x2", 4))
    assert "give pallas_call a grid and block shapes, or smaller blocks" in found.remedy
    assert "use more devices" not in found.remedy
    assert finding(report("v5e:4x4", 16)).remedy == found.remedy
    block = pallas.BlockSpec((512, 512), lambda i, j: (i, j))
    tiled = report("v5e:2x2", 4, grid=(16, 16), in_specs=[block], out_specs=block)
    assert "JAI209" not in codes(tiled)
