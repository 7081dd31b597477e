"""Code and stored output on a page."""

import pytest

from jax_array_info.engine.render import on_console, text_of
from jax_array_info_core.pages.blocks import Rule, Verbatim

pytestmark = pytest.mark.oldest_and_newest

BLOCKS = [Rule("Example"), Verbatim("if x:\n    y = 1\n\n┏━━━┓\n┃ a ┃\n┡━━━┩\n│ 1 │\n└───┘")]


def test_lines_keep_their_indentation_and_blank_lines():
    text = "── Example ─────────\nif x:\n    y = 1\n\n┏━━━┓\n┃ a ┃\n┡━━━┩\n│ 1 │\n└───┘"
    assert text_of(on_console(BLOCKS, width=20), width=20) == text


def test_boxes_are_ascii_where_the_encoding_has_no_others():
    text = "-- Example ---------\nif x:\n    y = 1\n\n+===+\n| a |\n+===+\n| 1 |\n+---+"
    assert text_of(on_console(BLOCKS, width=20), width=20, encoding="ascii") == text


def test_only_lines_beyond_the_width_are_wrapped():
    block = Verbatim("    one two three\nfour")
    assert text_of(on_console([block], width=12), width=12) == "    one two \nthree\nfour"
    assert text_of(on_console([block], width=17), width=17) == "    one two three\nfour"
