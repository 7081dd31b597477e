"""Containers and their leaves, including containers that look like arrays."""

import dataclasses
from collections import Counter, OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import array_report
from tests.arrays import mesh_of


@dataclasses.dataclass
class Layer:
    w: object
    b: object = None


@dataclasses.dataclass
class Dense:
    """A layer with the attributes of an array."""

    kernel: object
    shape: tuple = (1000, 1000)
    dtype: object = np.float32


class Stack(tuple):
    pass


def struct(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def recursive():
    itself = {"n": 1}
    itself["me"] = itself
    layer = Layer(1)
    layer.b = [layer, itself]
    return layer


def nested():
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    return deep


MESH = mesh_of((1, 1), ("a", "b"))


@pytest.mark.parametrize(
    ("value", "length", "leaves"),
    [
        (
            {"w": struct(4, 4), "b": np.zeros(3), "n": 3, "none": None},
            4,
            {"['b']": "float64[3]", "['n']": "int", "['none']": "None", "['w']": "float32[4,4]"},
        ),
        ([1, 2, 3], 3, {}),
        ((struct(2), [struct(3)]), 2, {"[0]": "float32[2]", "[1][0]": "float32[3]"}),
        (
            Layer(struct(2), {"deep": Layer(1)}),
            2,
            {".w": "float32[2]", ".b['deep'].w": "int", ".b['deep'].b": "None"},
        ),
        ({1: struct(2), "one": 2}, 2, {"[1]": "float32[2]", "['one']": "int"}),
        ({}, 0, {}),
        ({1, 2}, 2, {}),
        (
            Dense(struct(2, 2)),
            3,
            {".kernel": "float32[2,2]", ".shape[0]": "int", ".shape[1]": "int", ".dtype": "type"},
        ),
        (Counter("aab"), 2, {"['a']": "int", "['b']": "int"}),
        (OrderedDict(a=1), 1, {"['a']": "int"}),
        (Stack([1, 2]), 2, {"[0]": "int", "[1]": "int"}),
        (
            {"s": NamedSharding(MESH, P("a")), "p": P(None, ("a", "b")), "m": MESH},
            3,
            {"['m']": "Mesh", "['p']": "P(None, ('a', 'b'))", "['s']": "P('a',) over a=1,b=1"},
        ),
        (recursive(), 2, {".w": "int", ".b[0]": "Layer", ".b[1]['me']": "dict", ".b[1]['n']": "int"}),
        (nested(), 1, {"[0]" * 100: "tuple"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_report_of_a_container_lists_its_leaves(value, length, leaves):
    report = array_report(value)
    assert (report.kind, report.type_name, report.nbytes) == ("container", type(value).__name__, None)
    assert report.length == length
    assert [(leaf.path, leaf.type) for leaf in report.leaves] == [*leaves.items()]


def test_a_sparse_matrix_has_its_data_and_its_indices():
    leaves = array_report({"m": sparse.BCOO.fromdense(jnp.eye(8))}).leaves
    assert sorted(leaf.type for leaf in leaves) == ["float32[8]", "int32[8,2]"]
