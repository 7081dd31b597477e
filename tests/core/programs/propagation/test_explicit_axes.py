"""Plans of arrays on meshes without devices, and meshes with explicit axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import propagation_report, sharded_structs
from tests.core.programs.propagation.programs import (
    MESH,
    explicit_mesh,
    line_of,
    needs_shardy,
    origins,
    struct,
)

pytestmark = needs_shardy


@pytest.fixture
def explicit():
    return explicit_mesh()


def test_explicit_axes_are_followed_to_the_argument_and_to_the_reshard(explicit):
    def run(x, w):
        y = jnp.tanh(x @ w) * 2
        return jax.sharding.reshard(y, NamedSharding(explicit, P("model", None)))

    report = propagation_report(
        run, struct((32, 64), "data", mesh=explicit), struct((64, 256), None, "model", mesh=explicit)
    )
    [tanh] = [one for one in report.values if one.op == "tanh"]
    assert origins(tanh) == {"data": "argument x", "model": "argument w"}
    [axis] = report.outputs[0].axes
    assert (axis.kind, axis.origin.line) == ("constraint", line_of(run, 2))


EXPLICIT = {
    "scan": lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), x[0], x),
    "while_loop": lambda x: jax.lax.while_loop(
        lambda c: c[1] < 3, lambda c: (jnp.sin(c[0]) * 2, c[1] + 1), (x, 0)
    ),
    "gradient": jax.grad(lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c) * 2, None), x, None, 3)[0].sum()),
    "gelu": jax.nn.gelu,
}


@pytest.mark.parametrize("name", EXPLICIT)
def test_constraints_that_jax_adds_are_no_origins(name, explicit):
    report = propagation_report(EXPLICIT[name], struct((3, 32, 64), None, "data", mesh=explicit))
    found = {str(axis) for row in (*report.values, *report.outputs) for axis in row.axes}
    assert len(found) == 1
    assert next(iter(found)).startswith("argument ")


def test_random_numbers_have_their_axis_from_the_keys(explicit):
    keys = jax.ShapeDtypeStruct((32,), jax.random.key(0).dtype, sharding=NamedSharding(explicit, P("data")))
    report = propagation_report(jax.vmap(lambda key: jax.random.normal(key, (8,))), keys)
    found = {str(axis) for row in (*report.values, *report.outputs) for axis in row.axes}
    assert len(found) == 1
    assert next(iter(found)).startswith("argument ")


def test_the_sharding_that_an_operation_is_asked_for_is_an_origin(explicit):
    def product(x, w):
        return jnp.einsum("ij,jk->ik", x, w, out_sharding=NamedSharding(explicit, P("data", "model")))

    x, w = struct((32, 64), "data", mesh=explicit), struct((64, 16), mesh=explicit)
    [output] = propagation_report(product, x, w).outputs
    assert origins(output)["data"] == "argument x"
    [model] = [one for one in output.axes if one.mesh_axis == "model"]
    assert (model.kind, model.origin.line) == ("constraint", line_of(product))


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
