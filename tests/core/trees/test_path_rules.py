"""Patterns of paths."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_array_info_core import PathRules
from jax_array_info_core.trees.specs import path_matches

pytestmark = pytest.mark.newest


@given(st.text("ab?*", max_size=8), st.text("ab*\n", max_size=10))
@example("*a?", "aab")
@example("a*a", "a")
def test_a_pattern_is_a_regular_expression_with_any_characters(pattern, path):
    pieces = {"*": ".*", "?": "."}
    expected = re.fullmatch("".join(pieces.get(char) or re.escape(char) for char in pattern), path, re.DOTALL)
    assert path_matches(pattern, path) == (expected is not None)


@pytest.mark.parametrize(
    "pattern", ["*" * 5000 + "b", "*a" * 5000 + "b", "*?" * 100 + "b", "*a?a" * 20 + "b"]
)
def test_no_pattern_takes_long(pattern):
    path = "a" * 80_000
    assert PathRules({pattern: None, f"{pattern}*": None}).unmatched([path]) == [pattern, f"{pattern}*"]
