"""Containers and their leaves, including containers that look like arrays."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jax_array_info_core import array_report
from jax_array_info_core.reports import ContainerLeaf


@dataclasses.dataclass
class Layer:
    w: object
    b: object = None


def test_the_report_of_a_container_lists_its_leaves():
    report = array_report({"w": jnp.zeros((4, 4)), "b": np.zeros(3), "n": 3, "none": None})
    assert (report.kind, report.type_name, report.length) == ("container", "dict", 4)
    assert report.leaves == (
        ContainerLeaf(path="['b']", type="float64[3]"),
        ContainerLeaf(path="['n']", type="int"),
        ContainerLeaf(path="['none']", type="None"),
        ContainerLeaf(path="['w']", type="float32[4,4]"),
    )
    assert array_report([1, 2, 3]).length == 3
    assert array_report([1, 2, 3]).leaves == ()
    assert array_report((jnp.zeros(2), [jnp.zeros(3)])).leaves == (
        ContainerLeaf(path="[0]", type="float32[2]"),
        ContainerLeaf(path="[1][0]", type="float32[3]"),
    )
    layer = array_report(Layer(jnp.zeros(2), {"deep": Layer(1)}))
    assert (layer.type_name, layer.length) == ("Layer", 2)
    assert layer.leaves == (
        ContainerLeaf(path=".w", type="float32[2]"),
        ContainerLeaf(path=".b['deep'].w", type="int"),
        ContainerLeaf(path=".b['deep'].b", type="None"),
    )
    assert array_report({1: jnp.zeros(2), "one": 2}).leaves == (
        ContainerLeaf(path="[1]", type="float32[2]"),
        ContainerLeaf(path="['one']", type="int"),
    )
    assert array_report({}).leaves == ()
    assert (array_report({1, 2}).length, array_report({1, 2}).leaves) == (2, ())
    assert array_report(jax.random.key(0)).kind == "array"


def test_containers_that_look_like_arrays_are_containers():
    @dataclasses.dataclass
    class Dense:
        kernel: object
        shape: tuple = (1000, 1000)
        dtype: object = np.float32

    from collections import Counter, OrderedDict

    from jax.experimental import sparse

    dense = array_report(Dense(jnp.zeros((2, 2))))
    assert (dense.kind, dense.nbytes) == ("container", None)
    assert dense.leaves[0] == ContainerLeaf(path=".kernel", type="float32[2,2]")
    matrix = array_report({"m": sparse.BCOO.fromdense(jnp.eye(8))})
    assert sorted(leaf.type for leaf in matrix.leaves) == ["float32[8]", "int32[8,2]"]

    class Stack(tuple):
        pass

    assert array_report(Counter("aab")).leaves == (
        ContainerLeaf(path="['a']", type="int"),
        ContainerLeaf(path="['b']", type="int"),
    )
    assert array_report(OrderedDict(a=1)).leaves == (ContainerLeaf(path="['a']", type="int"),)
    assert array_report(Stack([1, 2])).leaves == (
        ContainerLeaf(path="[0]", type="int"),
        ContainerLeaf(path="[1]", type="int"),
    )


def test_a_container_inside_itself_is_a_leaf():
    itself = {"n": 1}
    itself["me"] = itself
    assert array_report(itself).leaves == (
        ContainerLeaf(path="['me']", type="dict"),
        ContainerLeaf(path="['n']", type="int"),
    )
    layer = Layer(1)
    layer.b = [layer]
    assert array_report(layer).leaves == (
        ContainerLeaf(path=".w", type="int"),
        ContainerLeaf(path=".b[0]", type="Layer"),
    )
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    assert array_report(deep).leaves == (ContainerLeaf(path="[0]" * 100, type="tuple"),)
