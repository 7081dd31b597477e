from typing import NamedTuple

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.arrays.paths import KeystrNotation, SlashNotation, key_text, path_text

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("w", "w"),
        ("größe", "größe"),
        (0, "0"),
        ("with space", "with space"),
        ("[0]", "[0]"),
        ("*", "*"),
        ("", "''"),
        ("a/b", "'a/b'"),
        ("it's", '"it\'s"'),
        ('"', "'\"'"),
        ("\x1b[31m", r"'\x1b[31m'"),
        ("line\nbreak", r"'line\nbreak'"),
    ],
)
def test_a_key_is_quoted_only_if_it_is_empty_or_has_a_slash_a_quote_or_a_control_character(key, text):
    assert key_text(key) == text


def test_keys_are_joined_by_slashes():
    assert path_text(["params", "layers", 0, "mlp", "w"]) == "params/layers/0/mlp/w"


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_different_keys_have_different_paths(first, second):
    assert (path_text(first) == path_text(second)) == (first == second)


keys = st.one_of(st.text(max_size=2), st.integers(0, 3), st.floats(0, 2), st.booleans(), st.none())


@given(st.dictionaries(keys, st.none(), max_size=6))
def test_the_keys_of_one_dict_have_different_texts(mapping):
    texts = SlashNotation().items(list(mapping))
    assert len(set(texts)) == len(mapping)


class Equal:
    """A key whose text is the same for every instance."""

    def __str__(self):
        return "key"


def test_keys_with_equal_texts_are_numbered():
    assert SlashNotation().items([Equal(), Equal(), "key", "key#2"]) == ["/key", "/key#3", "/'key'", "/key#2"]


def test_the_children_of_a_pytree_have_the_texts_of_their_key_paths():
    class Pair(NamedTuple):
        left: int
        right: int

    keys = [path for path, _ in jax.tree_util.tree_flatten_with_path({"a": Pair(1, 2)})[0]]
    assert SlashNotation().children(keys) == ["/a/left", "/a/right"]
    assert KeystrNotation().children(keys) == ["['a'].left", "['a'].right"]
