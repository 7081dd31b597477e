"""Checks of trees without arrays, and of objects that JAX does not flatten."""

import functools
import logging
import weakref
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import CheckError, assert_tree, check_report, from_json, to_json, tree_report
from tests.core.trees.checks.findings import abstract, kinds, paths, the_finding

pytestmark = pytest.mark.newest


class Model:
    """An object with attributes, which JAX does not flatten."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slots:
    """An object without ``__dict__``."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("tree", [{}, [], ((), {"a": ()}), {"a": None}, {"lr": 0.1, "name": "sgd"}])
def test_a_tree_without_arrays_fails_unless_it_is_accepted(tree):
    """No check can find anything in it."""
    report = check_report(tree)
    assert kinds(report) == ["not checked"]
    assert report.answer.startswith("nothing checked: ")
    assert from_json(to_json(report)) == report
    with pytest.raises(CheckError, match="nothing was checked"):
        assert_tree(tree)
    assert_tree(tree, allow_empty=True)
    assert check_report(tree, allow_empty=True).answer.startswith("nothing checked: ")


def test_none_is_a_tree_without_arrays():
    """JAX flattens it to nothing. Another value that is no container is an invalid argument."""
    assert_tree(None, allow_empty=True)
    for value in (3, object(), len):
        with pytest.raises(ValueError, match="expected a tree of arrays"):
            assert_tree(value, allow_empty=True)


@pytest.mark.parametrize(
    "opaque",
    [
        lambda array: Model(weights=array),
        lambda array: Model(layers=[{"w": Model(value=array)}]),
        Slots,
        lambda array: functools.partial(jnp.dot, array),
        lambda array: deque([array]),
    ],
)
@pytest.mark.parametrize("make", [lambda: jnp.zeros(8), lambda: abstract(8)])
def test_objects_with_arrays_that_are_not_seen_fail_by_path_and_class(opaque, make):
    """Also in a tree with arrays, and if a tree without arrays is accepted."""
    value = opaque(make())
    for tree in ({"a": {"model": value}}, {"a": {"model": value}, "w": make()}):
        with pytest.raises(CheckError, match=f"a/model: {type(value).__name__}$"):
            assert_tree(tree, allow_empty=True)
        finding = the_finding(check_report(tree), "not checked")
        assert paths(finding) == ["a/model"]
        assert from_json(to_json(check_report(tree))) == check_report(tree)
        assert_tree(tree, ignore="a/*")


def test_other_objects_do_not_fail_in_a_tree_with_arrays():
    """Functions, classes, configurations, meshes: they have no arrays in them."""
    config = Model(sizes=[1, 2], name="small", activation=jax.nn.relu, data=np.zeros(3))
    others = [0.1, "text", None, jax.nn.relu, jnp.tanh, jax.jit(lambda x: x), jnp.float32, np.dtype("int8")]
    others += [
        config,
        logging.getLogger("test"),
        object(),
        jax.devices()[0],
        jax.tree_util.tree_structure([1]),
    ]
    assert_tree({"w": jnp.zeros(8), "others": others})
    assert_tree({"others": others}, allow_empty=True)


def test_a_report_of_a_tree_without_arrays_does_not_say_what_its_leaves_are():
    """They may be objects with arrays."""
    empty, opaque = tree_report({"a": ()}), tree_report({"a": Model(w=jnp.zeros(3))})
    assert_tree(empty, allow_empty=True)
    with pytest.raises(CheckError, match="only 1 leaf that is not an array"):
        assert_tree(opaque, allow_empty=True)


def test_a_tree_of_unknown_shardings_is_not_checked():
    """Inside jit, XLA chooses the shardings later; with one known sharding, that one is checked."""
    found = []

    def function(tree):
        found.append(check_report(tree))
        found.append(check_report({**tree, "known": abstract(8)}))
        return tree

    jax.make_jaxpr(function)({"a": jnp.zeros(8), "b": jnp.zeros(8)})
    nothing, something = found
    assert (nothing.leaf_count, nothing.unknown_count) == (2, 2)
    assert "The sharding of each leaf is unknown" in the_finding(nothing, "not checked").problem
    assert something.passed


def test_a_search_for_arrays_keeps_none_alive_and_ends():
    """An object may refer to itself, and to many others."""
    model = Model(w=jnp.zeros(8))
    model.itself = model
    array = weakref.ref(model.w)
    assert kinds(check_report({"m": model})) == ["not checked"]
    del model.w
    assert array() is None
    large = Model(items=list(map(str, range(20_000))))
    assert check_report({"m": model, "large": large, "w": abstract(8)}).passed
