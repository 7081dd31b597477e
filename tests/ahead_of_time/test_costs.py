"""Costs by parameter on TPUs: products are convolutions in fusions, and collectives run asynchronously."""

import functools

import jax.numpy as jnp
import pytest

from jax_array_info_core import program_report
from tests.ahead_of_time import needs_tpu_compiler
from tests.costed import assert_complete, assert_layers, transformer

pytestmark = [pytest.mark.needs_devices(8), needs_tpu_compiler]


@functools.cache
def reported(**options):
    step, arguments = transformer(**options)
    return program_report(step, *arguments, topology="v5e:2x4", explain=False)


@pytest.mark.parametrize("remat", [False, True], ids=["saved", "remat"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def test_a_scanned_transformer_costs_what_is_counted_by_hand(dtype, remat):
    """TPU gathers the weights as bfloat16 in any case, and sums the gradients in their dtype."""
    report = reported(remat=remat, dtype=dtype)
    assert_complete(report)
    assert_layers(
        report,
        of_path=lambda name, _: f"params/layers/{name}",
        gathered_nbytes=2,
        reduced_nbytes=dtype(0).dtype.itemsize,
        has_remat=remat,
    )


def test_an_unrolled_transformer_costs_the_same_in_each_layer():
    report = reported(is_scanned=False, remat=True)
    assert_complete(report)
    assert_layers(
        report,
        of_path=lambda name, number: f"params/layers/{number}/{name}",
        gathered_nbytes=2,
        reduced_nbytes=4,
        has_remat=True,
        is_scanned=False,
    )
