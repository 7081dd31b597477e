"""Axis types, Auto and Explicit, in panels and in tables of differences."""

import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info import to_text
from jax_array_info_core import array_report, program_diff_report, program_report, tree_diff_report
from tests.core.changes.test_axis_types import AxisType, auto, explicit, mixed, struct, tree

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


def test_the_line_is_below_the_spec():
    text = to_text(array_report(tree(explicit(P(None, ("data", "model"))))["w"], "w"))
    assert text.splitlines()[4:7] == [
        "│ NamedSharding: P(None, ('data', 'model'))   │",
        "│ axis types: Explicit                        │",
        "│ axis 1 is sharded: CPU 0 contains 0:1 (1/8) │",
    ]


def test_a_difference_of_trees_shows_both_types():
    text = to_text(tree_diff_report(tree(explicit()), tree(mixed())))
    assert "│ w    │ axis types │ Explicit │ data Explicit, model Auto │" in text


def test_a_difference_of_programs_shows_both_types():
    reports = [program_report(jnp.sin, struct(jnp.ones((8, 8)), placed)) for placed in (auto(), explicit())]
    text = to_text(program_diff_report(*reports), width=160)
    for name in ("Auto", "Explicit"):
        assert f"P('data',) over axes of type {name}" in text
