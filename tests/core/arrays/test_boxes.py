"""Logical axis names in the metadata of boxes. ``tests/integrations`` has the boxes of flax itself."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.arrays.boxes import content_of, logical_names
from jax_array_info_core.layouts import Spec

pytestmark = pytest.mark.once_per_version


@jax.tree_util.register_pytree_with_keys_class
@dataclass
class Box:
    """A box like ``nn.Partitioned``."""

    value: Any
    names: Any

    def tree_flatten_with_keys(self):
        return ((jax.tree_util.GetAttrKey("value"), self.value),), self.names

    @classmethod
    def tree_unflatten(cls, names, children):
        return cls(*children, names)


class Variable:
    """A leaf like an nnx variable before flax 0.12."""

    def __init__(self, raw_value, **metadata):
        self.raw_value = raw_value
        vars(self).update(metadata)


class SlotVariable:
    """A variable like that of flax 0.12, with its metadata in a dict."""

    __slots__ = ("_var_metadata", "raw_value")

    def __init__(self, raw_value, **metadata):
        self.raw_value = raw_value
        self._var_metadata = metadata


ARRAY = jax.ShapeDtypeStruct((8, 4, 2), "float32")
NAMES = ("embed", None, ("x", "y"))
SPEC = Spec((("embed",), (), ("x", "y")))


@pytest.mark.parametrize(
    "box",
    [
        Box(ARRAY, NAMES),
        Box(ARRAY, list(NAMES)),
        Box(ARRAY, jax.sharding.PartitionSpec(*NAMES)),
        Variable(ARRAY, sharding=NAMES),
        Variable(ARRAY, sharding_names=NAMES),
        Variable(ARRAY, out_sharding=NAMES),
        SlotVariable(ARRAY, sharding=None, sharding_names=NAMES),
        SlotVariable(ARRAY, out_sharding=jax.sharding.PartitionSpec(*NAMES)),
        Variable(Box(ARRAY, NAMES)),
        Box(Variable(ARRAY, sharding=("a",)), NAMES),
    ],
)
def test_the_names_are_those_that_the_box_stores(box):
    assert logical_names(box) == SPEC


def test_the_names_of_a_sharding_are_its_mesh_axes():
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    assert logical_names(Variable(ARRAY, sharding=sharding)) == Spec(((), ("data",)))


@pytest.mark.parametrize("names", [None, "embed", (1, 2), (("a", None),), {"embed": 1}, object(), 3])
def test_other_metadata_are_no_names(names):
    assert logical_names(Box(ARRAY, names)) is None
    assert logical_names(Variable(ARRAY, sharding=names)) is None
    assert logical_names(SlotVariable(ARRAY, out_sharding=names)) is None


@pytest.mark.parametrize("value", [ARRAY, {"value": ARRAY}, [ARRAY], None, 3, "value"])
def test_a_value_outside_a_box_has_no_names(value):
    assert logical_names(value) is None
    assert logical_names(Variable(value)) is None
    # The attribute of an array is its sharding, not its names.
    assert logical_names(jnp.zeros(3)) is None


def test_properties_are_not_run():
    class Computed(Variable):
        @property
        def sharding(self):
            raise AssertionError

        names = sharding_names = _var_metadata = sharding

    assert logical_names(Computed(ARRAY)) is None


def test_a_box_that_contains_itself_has_no_names():
    box = Variable(None)
    box.raw_value = box
    assert logical_names(box) is None


@jax.tree_util.register_pytree_node_class
@dataclass
class NamedArray:
    """An array like that of haliax."""

    array: Any
    axes: Any

    def tree_flatten(self):
        return (self.array,), self.axes

    @classmethod
    def tree_unflatten(cls, axes, children):
        return cls(*children, axes)


@dataclass
class Axis:
    """A named axis like that of haliax."""

    name: str
    size: int


def penzai_array(array, **static):
    """Return an array like those of penzai, with static fields and one child."""

    @jax.tree_util.register_pytree_with_keys_class
    class Struct:
        def __init__(self, child):
            self.data_array = child
            vars(self).update(static)

        def tree_flatten_with_keys(self):
            return [(jax.tree_util.GetAttrKey("data_array"), self.data_array)], None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    return Struct(array)


@pytest.mark.parametrize(
    ("box", "names"),
    [
        (NamedArray(ARRAY, (Axis("a", 8), Axis("b", 4), Axis("c", 2))), (("a",), ("b",), ("c",))),
        (penzai_array(ARRAY, named_axes={"b": 4, "c": 2}), ((), ("b",), ("c",))),
        (
            penzai_array(ARRAY, data_shape=(8, 4, 2), data_axis_for_name={"c": 0, "a": 2}),
            (("c",), (), ("a",)),
        ),
    ],
)
def test_a_named_array_is_a_box_with_the_names_of_its_axes(box, names):
    assert logical_names(box) == logical_names(Box(box, None)) == Spec(names)
    assert content_of(box) is ARRAY


@pytest.mark.parametrize(
    "value",
    [NamedArray(ARRAY, 3), NamedArray(ARRAY, ("a",)), penzai_array(ARRAY, named_axes=3), penzai_array(ARRAY)],
)
def test_other_metadata_make_no_named_array(value):
    assert logical_names(value) is None
    assert content_of(value) is value
