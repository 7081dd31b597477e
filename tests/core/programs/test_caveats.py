"""Sentences about what differs on another platform, and what is left out."""

import pytest

from jax_array_info_core.hlo.read import read_module
from jax_array_info_core.programs.program_report import caveats_of
from jax_array_info_core.reports import FlopTotals

pytestmark = pytest.mark.once_per_version


def module(layout):
    return read_module(
        "HloModule m\n\nENTRY %main {\n"
        f"  %p = f32[8]{{0}} parameter(0)\n  %t = f32[8]{{{layout}}} negate(%p)\n"
        "  ROOT %r = f32[8]{0} negate(%t)\n}"
    )


def test_values_in_vmem_of_a_tpu_are_said_to_be_left_out():
    assert caveats_of("tpu", (), (), module("0:T(8)S(1)"), FlopTotals(), FlopTotals()) == (
        "Values in VMEM are not among the temporaries that are listed.",
    )


@pytest.mark.parametrize(("platform", "layout"), [("tpu", "0:T(8)"), ("tpu", "0:S(5)"), ("gpu", "0:S(1)")])
def test_an_accelerator_without_values_in_vmem_has_no_caveats(platform, layout):
    assert caveats_of(platform, (), (), module(layout), FlopTotals(), FlopTotals()) == ()
