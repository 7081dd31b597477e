"""Axis types, Auto and Explicit, in panels and in tables of differences."""

import pytest

from jax_array_info import to_text
from jax_array_info_core import array_report
from tests.core.trees.test_axis_types import AxisType, auto, explicit, mixed, struct, tree

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(AxisType is None, reason="axis types are public from JAX 0.6 on"),
]


@pytest.mark.parametrize(
    ("placed", "words"), [(auto, None), (explicit, "Explicit"), (mixed, "data Explicit, model Auto")]
)
def test_panels_show_axis_types_unless_all_are_auto(placed, words):
    array = tree(placed())["w"]
    for value in (array, struct(array, placed()), placed(), placed().mesh):
        shown = [line for line in to_text(array_report(value)).splitlines() if "axis types" in line]
        assert [line.strip("│ ") for line in shown] == ([] if words is None else [f"axis types: {words}"])
