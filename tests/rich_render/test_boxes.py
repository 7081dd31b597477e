"""Boxes around arrays, such as Flax's, recognized by their attributes without importing Flax."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import sharding_info, sharding_vis, tap_sharding
from jax_array_info_core import array_report
from jax_array_info_core.reports import ContainerLeaf
from tests.arrays import mesh_of, sharded
from tests.core.arrays.test_boxes import Axis, NamedArray, penzai_array
from tests.rich_render.tables.test_array import lines_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Partitioned:
    """A box like ``flax.linen.Partitioned``: a pytree of a value, with names as static data."""

    value: object
    names: tuple = dataclasses.field(default=(), metadata={"static": True})


class Param:
    """A box like ``nnx.Param`` before Flax 0.12: a leaf that forwards the attributes of its value."""

    __slots__ = ("raw_value",)

    def __init__(self, value):
        self.raw_value = value

    @property
    def value(self):
        raise AssertionError("a property runs the hooks of a user")

    @property
    def shape(self):
        return self.raw_value.shape

    @property
    def dtype(self):
        return self.raw_value.dtype


class Metric(Param):
    """A box with both slots and a dict."""


@pytest.mark.parametrize("box", [Partitioned, Param, Metric, lambda value: Param(Partitioned(value))])
def test_a_box_is_shown_as_its_value(box):
    array = jnp.zeros((2, 3))
    assert array_report(box(array), "w") == array_report(array, "w")
    assert array_report(box(5)) == array_report(5)
    assert array_report({"w": box(array), "n": [box(None)]}).leaves == (
        ContainerLeaf(path="['n'][0]", type="None"),
        ContainerLeaf(path="['w']", type="float32[2,3]"),
    )
    assert array_report([box(array)]).leaves == (ContainerLeaf(path="[0]", type="float32[2,3]"),)


def test_a_container_with_one_value_is_not_a_box():
    @dataclasses.dataclass
    class Layer:
        value: object

    assert array_report(Layer(jnp.zeros(2))).leaves == (ContainerLeaf(path=".value", type="float32[2]"),)
    assert array_report({"value": 1}).leaves == (ContainerLeaf(path="['value']", type="int"),)


def test_a_box_without_a_value_is_an_object():
    assert array_report(Param.__new__(Param)).kind == "object"


def test_a_box_that_contains_itself_is_an_object():
    class Loop:
        def __init__(self):
            self.raw_value = self

    assert array_report(Loop()).kind == "object"
    assert array_report([Loop(), np.zeros(2)]).leaves == (
        ContainerLeaf(path="[0]", type="Loop"),
        ContainerLeaf(path="[1]", type="float64[2]"),
    )


def test_a_traced_value_in_a_box_is_inspected(capsys):
    from jax_array_info import sharding_info

    jax.jit(lambda x: sharding_info(Partitioned(x * 2), "inside") or x)(jnp.ones(3))
    assert "known from: the compiler" in capsys.readouterr().out
    assert lines_of(Param(jnp.ones(3)))[:2] == ["shape: (3,)", "dtype: float32"]


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda array: NamedArray(array, (Axis("batch", 8), Axis("embed", 4))),
        lambda array: penzai_array(array, named_axes={"batch": 8, "embed": 4}),
    ],
)
def test_a_named_array_is_described_and_drawn_as_its_array(wrap, capsys):
    array = sharded((8, 4), mesh_of((4, 2), ("a", "b")), "a", "b")

    def output(value):
        sharding_info(value, "x")
        sharding_vis(value)
        jax.jit(lambda value: tap_sharding(value, "y"))(value)
        return capsys.readouterr().out

    assert "P('a', 'b')" in output(array)
    assert output(wrap(array)) == output(array)
