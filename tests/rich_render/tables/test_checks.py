"""Text of checks of trees."""

import inspect
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_array_info
from jax_array_info import (
    check_report,
    to_text,
)
from jax_array_info.reports import CheckReport, Finding, FindingLeaf
from jax_array_info_core.trees.checks.check import CheckOptions

pytestmark = pytest.mark.newest


def test_leaves_that_are_not_arrays_are_counted():
    """The report on a tree does not say whether they have arrays in them."""
    report = check_report({"w": jnp.ones(8), "bias": None, "step": 3, "name": "x"})
    assert to_text(report).endswith("\nnot arrays: 2 leaves: name, step")
    assert to_text(replace(report, other_paths=())).endswith("\nnot arrays: 2 leaves")


def test_paths_are_never_truncated():
    """They wrap at their slashes, and inside a key only if it is too long for a line."""
    path = "/".join(["params", "decoder", "layers", "q" * 50, "kernel"])
    leaf = FindingLeaf(path=path, shape=(8,), dtype="float32", nbytes=5, remedy="fix " * 30)
    finding = Finding(kind="padding", problem="p", remedy="r", leaves=(leaf,))
    for width in (20, 40, 80):
        lines = to_text(CheckReport(name=None, findings=(finding,)), width=width).splitlines()
        assert path in "".join(map(str.strip, lines)).replace("5.0 B  ", "")


def test_leaves_that_are_one_array_are_no_finding():
    def arrays(*names):
        array = jnp.ones((4, 4))
        return dict.fromkeys(names, array)

    tree = {**arrays("embed", "head"), **arrays("a", "b", "c"), "own": jnp.ones((4, 4))}
    report = check_report(tree)
    assert report.passed
    assert report.shared == (("a", "b", "c"), ("embed", "head"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: dict.fromkeys("ab", np.ones((4, 4), np.float32)),
        lambda: dict.fromkeys("ab", jax.ShapeDtypeStruct((4, 4), jnp.float32)),
        lambda: {"a": jnp.ones(4), "b": jnp.ones(4)},
    ],
    ids=["NumPy", "abstract", "equal"],
)
def test_other_leaves_share_no_buffer(make):
    assert check_report(make()).shared == ()


def test_of_many_shared_buffers_a_few_are_named():
    tree = {f"layer_{number}": [array] * 2 for number, array in enumerate(map(jnp.ones, range(2, 8)))}
    assert "and 3 more buffers are shared by leaves" in check_report(tree).accepted


@pytest.mark.parametrize("name", ["check_report", "assert_tree", "print_check"])
def test_the_options_of_a_check_are_parameters_with_defaults_and_meanings(name):
    function = getattr(jax_array_info, name)
    parameters = inspect.signature(function).parameters
    assert set(CheckOptions.__annotations__) < set(parameters)
    assert "options" not in parameters
    assert parameters["max_replicated"].default == 0.02
    assert parameters["mesh"].default is None
    section = inspect.getdoc(function).partition("\nArgs:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^    (\w+): ", section, re.MULTILINE) == list(parameters)


@pytest.mark.parametrize("name", ["check_report", "assert_tree", "print_check"])
def test_an_unknown_option_of_a_check_is_refused_by_name(name):
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'meshes'$"):
        getattr(jax_array_info, name)({}, meshes=1)
