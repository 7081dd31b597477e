import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import propagation_report
from tests.core.propagation.programs import explicit_mesh, line_of, needs_shardy, origins, struct

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
