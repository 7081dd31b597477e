"""``report_on_oom`` around functions compiled by flax and equinox."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from jax_array_info import report_on_oom

OUT_OF_MEMORY = jax.errors.JaxRuntimeError


class Layer(nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.ones(()))

    def __call__(self, x):
        return self.scale * x

    @report_on_oom()
    @nnx.jit
    def fill(self, x):
        return jnp.zeros((2**25, 2**25)) + self.scale * x


class Scale(eqx.Module):
    scale: jax.Array

    @report_on_oom()
    @eqx.filter_jit
    def fill(self, x):
        return jnp.zeros((2**25, 2**25)) + self.scale * x


@report_on_oom()
@nnx.jit
def apply(layer, x):
    layer.scale[...] += 1
    return layer(x)


@report_on_oom()
@eqx.filter_jit
def scale(factor, x):
    return factor.scale * x


def unit_scale():
    return Scale(jnp.ones(()))


@pytest.mark.parametrize("make", [Layer, unit_scale], ids=["nnx.jit", "eqx.filter_jit"])
def test_live_arrays_are_printed_on_an_out_of_memory_error(make, capsys):
    held = jnp.zeros((30, 40))
    with pytest.raises(OUT_OF_MEMORY):
        make().fill(held[0, 0])
    err = capsys.readouterr().err
    assert err.startswith("live arrays at RESOURCE_EXHAUSTED")
    assert "(30, 40)" in err


@pytest.mark.parametrize(
    ("function", "make", "result"),
    [(apply, Layer, 4.0), (scale, unit_scale, 2.0)],
    ids=["nnx.jit", "eqx.filter_jit"],
)
def test_decorated_functions_compute_and_lower_as_before(function, make, result):
    assert "multiply" in function.lower(make(), 2.0).as_text()
    assert function(make(), 2.0) == result


def test_nnx_functions_keep_their_trace_method():
    assert "multiply" in apply.trace(Layer(), 2.0).lower().as_text()


@pytest.mark.parametrize("jit", [nnx.jit, eqx.filter_jit], ids=["nnx.jit", "eqx.filter_jit"])
def test_inside_jit_a_warning_recommends_the_outside(jit):
    function = jit(report_on_oom()(lambda x: x + 1))
    with pytest.warns(UserWarning, match="put it outside") as warned:
        assert function(jnp.ones(())) == 2
    assert {warning.filename for warning in warned} == {__file__}
