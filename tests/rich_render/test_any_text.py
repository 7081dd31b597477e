"""Lone surrogates, which are shown escaped, and code and stored output on a page."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from jax_array_info import save_picture, to_html, to_svg, to_text
from jax_array_info.engine.render import on_console, text_of
from jax_array_info.export.notebook import reports_bundle
from jax_array_info_core.facts.pages.blocks import Rule, Verbatim
from tests.core.facts.reports.test_surrogates import TEXTS, reports_with

pytestmark = pytest.mark.newest


@settings(max_examples=30)
@given(TEXTS)
def test_text_and_pictures_are_utf8_and_show_what_json_has(text):
    with tempfile.TemporaryDirectory() as folder:
        for report in reports_with(text):
            for shown in reports_bundle([report]).values():
                shown.encode()
            for suffix, show in ((".svg", to_svg), (".html", to_html), (".txt", to_text)):
                path = Path(folder, f"report{suffix}")
                save_picture(report, path)
                assert show(report) in path.read_text(encoding="utf-8")


BLOCKS = [Rule("Example"), Verbatim("if x:\n    y = 1\n\n┏━━━┓\n┃ a ┃\n┡━━━┩\n│ 1 │\n└───┘")]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "── Example ─────────\nif x:\n    y = 1\n\n┏━━━┓\n┃ a ┃\n┡━━━┩\n│ 1 │\n└───┘"),
        ("ascii", "-- Example ---------\nif x:\n    y = 1\n\n+===+\n| a |\n+===+\n| 1 |\n+---+"),
    ],
)
def test_stored_lines_keep_their_indentation_and_blank_lines(encoding, text):
    assert text_of(on_console(BLOCKS, width=20), width=20, encoding=encoding) == text


def test_only_lines_beyond_the_width_are_wrapped():
    block = Verbatim("    one two three\nfour")
    assert text_of(on_console([block], width=12), width=12) == "    one two \nthree\nfour"
    assert text_of(on_console([block], width=17), width=17) == "    one two three\nfour"
