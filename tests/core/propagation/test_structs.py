import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import sharded_structs
from tests.core.propagation.programs import MESH, explicit_mesh, needs_shardy

pytestmark = needs_shardy


def test_sharded_structs_plan_a_tree_and_refuse_what_does_not_fit():
    tree = {"w": np.ones((8, 4), np.float32), "step": 3}
    found = sharded_structs(tree, mesh={"data": 4, "model": 2}, specs=P("data"))
    assert found["step"] == 3
    assert (found["w"].shape, found["w"].dtype, found["w"].sharding.spec) == ((8, 4), np.float32, P("data"))
    assert isinstance(found["w"].sharding.mesh, AbstractMesh)
    with pytest.raises(ValueError, match="'x' is not a mesh axis"):
        sharded_structs(tree, mesh={"data": 4}, specs=P("x"))
    with pytest.raises(ValueError, match="the size of mesh axis 'data' must be an integer, got True"):
        sharded_structs(tree, mesh={"data": True}, specs=P("data"))


@pytest.mark.needs_devices(8)
def test_a_leaf_in_host_memory_stays_there_in_a_plan():
    kinds = {one.kind for one in jax.devices()[0].addressable_memories()}
    if "pinned_host" not in kinds:
        pytest.skip("the CPU devices of this version of JAX have one memory")
    mesh = Mesh(np.reshape(jax.devices()[:8], (4, 2)), ("data", "model"))
    host = NamedSharding(mesh, P(), memory_kind="pinned_host")
    tree = {
        "host": jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=host),
        "device": jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(mesh, P())),
    }
    for on in (mesh, MESH):
        found = sharded_structs(tree, mesh=on, specs=P("data"))
        assert found["host"].sharding.memory_kind == "pinned_host"
        assert found["device"].sharding.memory_kind != "pinned_host"


def test_weak_types_of_a_plan_are_kept():
    weak = jax.eval_shape(lambda: 1.0)
    assert sharded_structs(weak, mesh={"data": 4}, specs=P()).weak_type


def test_sharded_structs_keep_unreduced_and_unconstrained_entries():
    leaf = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    unreduced = sharded_structs(leaf, mesh=explicit_mesh(), specs=P("data", unreduced={"model"}))
    assert unreduced.sharding.spec.unreduced == {"model"}
    free = sharded_structs(leaf, mesh=MESH, specs=P("data", P.UNCONSTRAINED))
    assert free.sharding.spec == P("data", P.UNCONSTRAINED)
