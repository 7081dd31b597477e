"""Equivalent partition specs."""

import pytest

from jax_array_info_core.layouts import Spec
from jax_array_info_core.layouts.spec import effective_axes

pytestmark = pytest.mark.oldest_and_newest

SIZES = {"x": 8, "y": 1, "z": 2}


@pytest.mark.parametrize(
    "axes",
    [(("x",),), (("x",), ()), (("x",), (), ()), (("x", "y"),), (("y", "x"), ("y",)), (("x",), (), ("y",))],
)
def test_specs_that_shard_in_the_same_way_have_the_same_effective_axes(axes):
    """Trailing entries of None, and mesh axes of size 1, shard nothing."""
    assert effective_axes(Spec(axes), SIZES, 2) == (("x",), ())


def test_the_order_of_mesh_axes_in_an_entry_counts():
    """The first mesh axis of an entry is the most major."""
    both = [effective_axes(Spec((names,)), SIZES, 1) for names in (("x", "z"), ("z", "x"))]
    assert both == [(("x", "z"),), (("z", "x"),)]


def test_names_that_are_not_mesh_axes_and_surplus_entries_are_kept():
    """An invalid spec does not equal a valid one."""
    assert effective_axes(Spec((("w",), ("x",))), SIZES, 1) == (("w",), ("x",))


def test_a_scalar_has_no_effective_axes():
    """P() of a scalar is empty, and so is P(None)."""
    assert effective_axes(Spec(()), SIZES, 0) == effective_axes(Spec(((),)), SIZES, 0) == ()
