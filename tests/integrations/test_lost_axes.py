"""Gradients of libraries whose outputs have other paths than the parameters."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from tests.programs import cube

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]
SPECS = {"wi": P("fsdp", "tensor"), "wo": P("tensor", "fsdp")}


def arrays(mesh):
    shapes = {"wi": (256, 1024), "wo": (1024, 256)}
    return {name: jax.device_put(jnp.ones(shapes[name]), NamedSharding(mesh, SPECS[name])) for name in SPECS}


def squares(wi, wo, x):
    return jnp.mean((jax.nn.gelu(x @ wi) @ wo) ** 2)


def lost(report):
    """Return the axes that each output with the shape of a parameter has lost."""
    return [one.lost_axes for one in report.outputs if one.like]


@pytest.fixture
def mesh():
    return cube()


@pytest.fixture
def batch(mesh):
    return jax.device_put(jnp.ones((32, 64, 256)), NamedSharding(mesh, P(("data", "fsdp"))))


def test_gradients_of_nnx_have_lost_an_axis(mesh, batch):
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self):
            for name, value in arrays(mesh).items():
                setattr(self, name, nnx.Param(value))

    def gradients(model, x):
        return nnx.grad(lambda model: squares(model.wi[...], model.wo[...], x))(model)

    assert lost(program_report(nnx.jit(gradients), Model(), batch)) == [("fsdp",), ("fsdp",)]


def test_gradients_of_equinox_have_lost_an_axis(mesh, batch):
    eqx = pytest.importorskip("equinox")

    class Model(eqx.Module):
        wi: jax.Array
        wo: jax.Array

    @eqx.filter_jit
    def gradients(model, x):
        return eqx.filter_grad(lambda model: squares(model.wi, model.wo, x))(model)

    assert lost(program_report(gradients, Model(**arrays(mesh)), batch)) == [("fsdp",), ("fsdp",)]
