"""Specs between two others, compared with the elements that each device lacks."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jax_array_info_core.geometry.layouts.layout import mesh_layout
from jax_array_info_core.geometry.layouts.spec import Spec
from jax_array_info_core.geometry.layouts.steps import spec_between
from jax_array_info_core.geometry.layouts.traffic import held_shards, missing_elements

pytestmark = pytest.mark.newest

SIZES = {"x": 2, "y": 4, "z": 3, "one": 1}
SHAPE = (24, 48, 24)


@st.composite
def specs(draw):
    axes = [[], [], []]
    for name in draw(st.permutations([*SIZES])):
        if (place := draw(st.integers(-1, 2))) >= 0:
            axes[place].append(name)
    return Spec(tuple(map(tuple, axes)))


@given(specs(), specs())
def test_each_device_sends_in_two_steps_what_each_lacks(before, after):
    between = spec_between(before, after, SHAPE, SIZES)
    assume(between is not None)
    first, middle, last = (
        held_shards(mesh_layout(SHAPE, SIZES, [*spec.axes, (), (), ()][:3]))
        for spec in (before, between.spec, after)
    )
    lacks = missing_elements(SHAPE, first, middle) + missing_elements(SHAPE, middle, last)
    assert set(lacks.tolist()) == {between.elements}


@pytest.mark.parametrize(
    ("before", "after"), [((("x", "y"),), (("y", "x"),)), ((("x",), ("y",), ("z",)), ((), ("x",), ("y",)))]
)
def test_there_is_none_where_more_steps_are_needed(before, after):
    assert spec_between(Spec(before), Spec(after), SHAPE, SIZES) is None


def test_no_step_pads():
    before, after = Spec((("x", "y"),)), Spec(((), ("x",), ("y",)))
    assert spec_between(before, after, (24, 48, 24), SIZES) is not None
    assert spec_between(before, after, (24, 48, 23), SIZES) is None
