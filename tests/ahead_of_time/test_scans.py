"""Constraints inside a scanned layer, compiled for a TPU: their line and their reason."""

import importlib.util

import jax
import pytest
from jax.sharding import AxisType

from jax_array_info import program_report, topology_mesh
from tests.scanned import PROGRAMS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


@pytest.mark.parametrize("axis_type", ["Explicit", "Auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_of_a_constraint_in_a_loop_and_its_reason_are_kept(name, axis_type):
    mesh = topology_mesh("v5p:2x2x2", {"data": 8}, axis_types=(getattr(AxisType, axis_type),))
    function, arguments, line = PROGRAMS[name](mesh)
    with jax.set_mesh(mesh):
        report = program_report(jax.jit(function), *arguments, explain=True)
    gathers = [one for one in report.collectives if one.kind == "all-gather"]
    assert {(str(one.origin), one.because[0].kind, one.because[0].origin.line) for one in gathers} == {
        (f"scanned.py:{line} kept", "constraint", line)
    }
    assert "JAI204" not in [one.code for one in report.findings]
