"""Blocks as HTML: sentences, lists, boxes and tables that do not fold."""

import pytest

from jax_array_info.engine.html import blocks_html
from jax_array_info_core.pages.blocks import TIMES, Column, Entries, Note, Panel, Rule, Sentence, Table
from tests.rich_render.export.test_tree_html import rows, text_of
from tests.rich_render.svg.reading import parsed

pytestmark = pytest.mark.oldest_and_newest


def texts(html):
    """Return the text of each element below the outermost one."""
    return [text_of(element) for element in parsed(html)]


def test_sentences_and_rules_are_elements_with_escaped_text():
    html = blocks_html([Rule("JAI101"), Sentence("a <b>\x1b", "answer", end=", c"), Sentence("in", indent=2)])
    assert texts(html) == ["JAI101", "a <b>\\x1b, c", "in"]
    assert 'style="font-weight:bold"' in html
    assert "margin-left:2ch" in html
    assert texts(blocks_html([Sentence("")])) == []


def test_a_list_has_a_cell_for_each_fact():
    html = blocks_html([Entries([("1.0 B", f"w {TIMES}2", "float32"), ("", "b")])])
    assert rows(html) == [["1.0 B", "w ×2", "float32"], ["", "b", ""]]
    assert blocks_html([Entries([])]).count("<td") == 0


def test_a_box_has_its_title_and_its_lines():
    [box] = parsed(blocks_html([Panel("w", ["shape", [Note("P("), Note("4", "length"), Note(")")]])]))
    assert [text_of(line) for line in box] == ["w", "shape", "P(4)"]


COLUMNS = [
    Column("path", "path"),
    Column("kind", head="what"),
    Column("empty"),
    Column("short", replaces=["kind"]),
    Column("size", "number"),
]


def test_a_table_has_the_columns_of_its_widest_form_and_those_of_the_narrowest_first():
    row = {"path": ["a/b", Note("  deleted", "warning")], "kind": "k", "short": "s", "size": "1.0 B"}
    rest = {"path": "2 more", "size": "2.0 B"}
    groupings = [
        [["path"], ["kind"], ["empty"], ["size"]],
        [["path"], ["short", "kind"]],
        [["path"], ["size", "short"]],
    ]
    html = blocks_html([Table("title", COLUMNS, [[row], [rest]], groupings, caption="caption")])
    assert rows(html) == [["path", "size", "what"], ["a/b\n  deleted", "1.0 B", "k"], ["2 more", "2.0 B", ""]]
    assert texts(html)[0] == "title"
    assert texts(html)[-1] == "caption"
    assert "table-layout" not in html


def test_numbers_are_aligned_right():
    cells = parsed(blocks_html([Table("", COLUMNS, [[{"path": "a", "size": "1.0 B"}]])])).iter("td")
    assert ["right" in cell.get("style") for cell in cells] == [False, True]


def test_the_head_of_a_column_has_its_meaning_as_an_escaped_tooltip():
    columns = [Column("path"), Column("size", meaning='bytes of "a" & <b>')]
    html = blocks_html([Table("", columns, [[{"path": "w", "size": "1.0 B"}]])])
    assert [head.get("title") for head in parsed(html).iter("th")] == [None, 'bytes of "a" & <b>']
    assert "<b>" not in html
    assert [cell.get("title") for cell in parsed(html).iter("td")] == [None, None]
