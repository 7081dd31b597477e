"""Variables and boxes of flax, shown as the arrays in them."""

import warnings

import jax.numpy as jnp
import pytest
from flax import linen, nnx

from jax_array_info_core import array_report
from jax_array_info_core.reports import ContainerLeaf


@pytest.mark.parametrize("box", [nnx.Param, lambda array: linen.Partitioned(array, ("a", None))])
def test_a_box_of_flax_is_shown_as_its_array(box):
    array = jnp.ones((2, 3))
    boxed = box(array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # flax warns where its properties are read
        assert array_report(boxed, "w") == array_report(array, "w")
        assert array_report([{"w": boxed}]).leaves == (ContainerLeaf(path="[0]['w']", type="float32[2,3]"),)


def test_the_state_of_a_module_has_its_parameters():
    state = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    assert array_report(state).leaves == (
        ContainerLeaf(path="['bias']", type="float32[3]"),
        ContainerLeaf(path="['kernel']", type="float32[2,3]"),
    )
