"""Reports as HTML: sentences, lists, boxes and tables. Stored pages have more of them, to the byte."""

import re

import pytest

from jax_array_info import to_html, to_svg
from jax_array_info.engine.html import blocks_html
from jax_array_info_core.facts.pages import trees
from jax_array_info_core.facts.pages.blocks import TIMES, Column, Entries, Note, Panel, Rule, Sentence, Table
from tests.goldens import NAMES, stored
from tests.rich_render.svg.reading import parsed
from tests.rich_render.tables.test_trees import leaf, tree

pytestmark = pytest.mark.newest


def text_of(element):
    """Return the text of an element, with its line breaks."""
    for line_break in element.iter("br"):
        line_break.text = "\n"
    return "".join(element.itertext())


def rows(html):
    """Return the cells of each row, heads first, that are visible if every prefix is open."""
    return [[text_of(cell) for cell in row] for row in parsed(html).iter("tr")]


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


STATE = stored("tree-report-29")[0]


def sentences(html):
    """Return the lines above and below the table."""
    [fragment] = parsed(html)
    return [text_of(element) for element in fragment if element.find(".//table") is None]


def test_a_long_name_is_clipped_and_wrapped():
    html = to_html(tree(leaf("x" * 5000, (8,), "data"), leaf("y", (8,), "data")))
    assert rows(html)[1][0] == "x" * 1000 + " ... " + "x" * 500
    assert "min(41ch,50vw)" in html
    assert len(html) < 10_000


def test_paths_of_thousands_of_keys_are_clipped():
    path = "/".join(f"k{'x' * number}" for number in range(3)) + "/y" * 3000
    html = to_html(
        tree(*(leaf(f"{path[: 2 * number]}z{number}", (8,), "data") for number in range(5, 3000, 7)))
    )
    assert html.count("<details") <= 101
    longest = max((row[0] for row in rows(html)), key=len)
    assert "y/" * 400 in longest
    assert "y/" * 1000 not in longest


def test_trees_of_too_many_leaves_are_summed_by_prefix(monkeypatch):
    monkeypatch.setattr(trees, "_MOST_ROWS", 10)
    leaves = [leaf(f"{a}/{b}", (ord(a), ord(b)), "data") for a in "abcde" for b in "xyz"]
    assert [row[0] for row in rows(to_html(tree(*leaves)))] == ["path", *"abcde"]
    flat = [leaf(f"{chr(97 + number)}", (number + 1,), "data") for number in range(15)]
    assert rows(to_html(tree(*flat)))[-1][:3] == ["5 more leaves", "260.0 B", ""]


TAGS = {
    *["a", "b", "br", "col", "details", "div", "pre", "span", "summary", "table", "td", "th", "tr", "wbr"]
}
IN_DRAWINGS = {*["g", "path", "rect", "svg", "text", "title"]}


@pytest.mark.parametrize("show", [to_html, to_svg])
def test_no_report_has_scripts_style_sheets_or_links_elsewhere(show):
    """Links lead to ids of the same report."""
    for name in NAMES:
        text = show(stored(name)[0])
        found = list(parsed(text).iter())
        attributes = {name for element in found for name in element.attrib}
        assert {element.tag.rpartition("}")[2] for element in found} <= IN_DRAWINGS | TAGS
        assert not any(name == "class" or name.startswith("on") for name in attributes)
        targets = [element.get("href") for element in found if "href" in element.attrib]
        assert {*targets} <= {f"#{element.get('id')}" for element in found}
        assert set(re.findall(r"\w+://[^\"' <]+|url\(", text)) <= {"http://www.w3.org/2000/svg"}
