"""Trees as HTML, whose prefixes fold with ``details`` elements. Stored pages have some of them, to the byte."""

import pytest

from jax_array_info import to_html
from jax_array_info_core.pages import trees
from tests.goldens import stored
from tests.rich_render.svg.reading import parsed
from tests.rich_render.tables.test_trees import leaf, tree

pytestmark = pytest.mark.oldest_and_newest

STATE = stored("tree-report-22")[0]


def text_of(element):
    """Return the text of an element, with its line breaks."""
    for line_break in element.iter("br"):
        line_break.text = "\n"
    return "".join(element.itertext())


def rows(html):
    """Return the cells of each row, heads first, that are visible if every prefix is open."""
    return [[text_of(cell) for cell in row] for row in parsed(html).iter("tr")]


def sentences(html):
    """Return the lines above and below the table."""
    [fragment] = parsed(html)
    return [text_of(element) for element in fragment if element.find(".//table") is None]


def test_the_fragment_needs_nothing_else_and_inherits_the_color_of_the_page():
    html = to_html(STATE)
    root = parsed(html)
    table = {"table", "col", "tr", "th", "td"}
    assert {element.tag for element in root.iter()} <= {"div", "details", "summary", "span", "wbr", *table}
    assert {name for element in root.iter() for name in element.attrib} <= {"style", "open", "title"}
    assert "color:inherit" in html
    assert "url(" not in html


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
