"""Moves of trees, compiled for a TPU."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import reshard_report, topology_mesh
from tests.ahead_of_time import needs_tpu_compiler


@needs_tpu_compiler
def test_a_transposition_of_shards_sends_the_least_and_reuses_the_donated_memory():
    """An all-to-all sends 3/4 of a shard over four devices, and needs no memory but the shard."""
    mesh = topology_mesh("v5e:2x4", {"x": 4, "y": 2})
    before, after = (NamedSharding(mesh, spec) for spec in (P("x"), P(None, "x")))
    w = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=before)
    report = reshard_report({"w": w}, {"w": after}, compiled=True)
    [donated] = [way for way in report.ways if way.name == "jit, donated"]
    shard_nbytes = 4096 * 4096 * 2 // 4
    assert (donated.device_nbytes, donated.bound) == (shard_nbytes, None)
    assert donated.sent_nbytes == report.device_nbytes == shard_nbytes * 3 // 4
