"""Traced values inside the transformations of Flax."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen

from jax_array_info import collect_reports, sharding_info, sharding_vis, tap_sharding


@pytest.mark.parametrize(
    "inspect", [sharding_info, tap_sharding, sharding_vis, lambda x: sharding_info({"x": x, "y": x * 2})]
)
def test_values_in_a_linen_scan_with_broadcast_variables_are_reported(inspect):
    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x, _):
            x = linen.Dense(8)(x)
            inspect(x)
            return x, None

    layers = linen.scan(Layer, variable_broadcast="params", split_rngs={"params": False}, length=3)()
    x = jnp.ones((2, 8))
    variables = layers.init(jax.random.key(0), x, None)
    loss = jax.jit(jax.grad(lambda variables: layers.apply(variables, x, None)[0].sum()))
    with collect_reports() as reports:
        loss(variables)
    # A tap whose result is unused is no part of the program.
    assert {getattr(report, "source", None) or report.rows[0].source for report in reports} == (
        set() if inspect is tap_sharding else {"compiler"}
    )
