"""A collective of a constraint inside a scanned layer has the line of the constraint, and it as its reason."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from tests.scanned import PROGRAMS, explained, struct

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"),
]


@pytest.mark.parametrize("axis_type", ["Explicit", "Auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_of_a_constraint_in_a_loop_and_its_reason_are_kept(name, axis_type):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(getattr(jax.sharding.AxisType, axis_type),))
    report = explained(name, mesh)
    assert [one.code for one in report.findings] == []


def test_the_call_of_a_constraint_that_another_operation_needs_too_keeps_its_line():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def layer(x, w):
        kept = jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return jnp.tanh(x @ kept), jnp.sort(w, 0)

    def function(weights, x):
        return jax.lax.scan(layer, x, weights)

    report = program_report(
        function,
        struct(mesh, (6, 64, 64), None, "data"),
        struct(mesh, (64, 64), "data"),
        explain=True,
    )
    line = inspect.getsourcelines(layer)[1] + 1
    assert report.collectives
    assert all(one.origin is None or one.origin.line != line or one.because for one in report.collectives)
