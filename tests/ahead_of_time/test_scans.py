"""Constraints inside a scanned layer, compiled for a TPU: their line and their reason."""

import importlib.util

import pytest
from jax.sharding import AxisType

from jax_array_info import topology_mesh
from tests.scanned import PROGRAMS, explained

pytestmark = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


@pytest.mark.parametrize("axis_type", ["Explicit", "Auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_of_a_constraint_in_a_loop_and_its_reason_are_kept(name, axis_type):
    mesh = topology_mesh("v5p:2x2x2", {"data": 8}, axis_types=(getattr(AxisType, axis_type),))
    report = explained(name, mesh)
    # A reshard also shards its gradient, which XLA makes in one fusion with the update of the stack: no array of
    # the shape of the shard has the line.
    is_fused = axis_type == "Explicit" and name in ("gradient", "checkpoint")
    assert ("JAI204" in [one.code for one in report.findings]) == is_fused
