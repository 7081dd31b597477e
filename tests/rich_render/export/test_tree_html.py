"""Trees as HTML: prefixes fold with ``details`` elements."""

import sys
import types

import pytest

from jax_array_info import print_tree, to_html
from jax_array_info_core.pages import trees
from tests.rich_render.svg.reading import parsed
from tests.rich_render.tables.test_trees import LAYERS, leaf, tree

pytestmark = pytest.mark.oldest_and_newest

OPTIMIZER = [
    leaf(f"opt/{moment}/{name}", (64, 64), "data", shard=(16, 64), replicas=2)
    for moment in ("mu", "nu")
    for name in ("b", "w")
]
STATE = tree(
    leaf("step", (), replicas=8), *LAYERS, leaf("params/norm", (17,), replicas=8), *OPTIMIZER, name="state"
)


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


def summaries(html):
    """Return the name of each prefix, and whether it is open."""
    return [
        (text_of(details.find("summary").find(".//td")), details.get("open") is not None)
        for details in parsed(html).iter("details")
    ]


def test_each_prefix_has_its_bytes_and_folds():
    root = parsed(to_html(STATE))
    shown = [
        [text_of(cell) for cell in details.find("summary").iter("td")] for details in root.iter("details")
    ]
    assert [cells[:3] for cells in shown] == [
        ["params/", "4.0 MiB", "33 leaves"],
        ["opt/", "16.0 KiB", "4 leaves"],
        ["mu/", "8.0 KiB", "2 leaves"],
        ["nu/", "8.0 KiB", "2 leaves"],
    ]


def test_leaves_are_below_their_prefix_with_a_cell_for_each_column():
    html = to_html(STATE)
    assert sentences(html)[:3] == [
        "per device 4.0 MiB; evenly sharded 4.0 MiB; replication costs 8.1 KiB",
        "largest leaf: params/layers/0/mlp/w float32[512,512], 128.0 KiB per device",
        "state: dict",
    ]
    assert rows(html) == [
        ["path", "per device", "array", "shard", "spec", "replicated over"],
        ["step", "4.0 B", "float32[]", "[]", "P()", "data, model (8)"],
        ["params/", "4.0 MiB", "33 leaves", "", "", ""],
        ["layers/0-31/mlp/w ×32", "4.0 MiB", "float32[512,512]", "[128,256]", "P('data', 'model')", ""],
        ["norm", "68.0 B", "float32[17]", "[17]", "P()", "data, model (8)"],
        ["opt/", "16.0 KiB", "4 leaves", "", "", ""],
        ["mu/", "8.0 KiB", "2 leaves", "", "", ""],
        ["b", "4.0 KiB", "float32[64,64]", "[16,64]", "P('data',)", "model (2)"],
        ["w", "4.0 KiB", "float32[64,64]", "[16,64]", "P('data',)", "model (2)"],
        ["nu/", "8.0 KiB", "2 leaves", "", "", ""],
        ["b", "4.0 KiB", "float32[64,64]", "[16,64]", "P('data',)", "model (2)"],
        ["w", "4.0 KiB", "float32[64,64]", "[16,64]", "P('data',)", "model (2)"],
    ]
    assert sentences(html)[-1].startswith("×n: n paths that differ only in their indices")


def test_the_tables_of_a_tree_have_columns_of_the_same_widths():
    root = parsed(to_html(STATE))
    widths = {tuple(column.get("style") for column in table.iter("col"))[1:] for table in root.iter("table")}
    assert len(widths) == 1
    names = {next(table.iter("col")).get("style") for table in root.iter("table")}
    assert {name.partition(",50vw)")[2] for name in names} == {" - 0ch)", " - 2ch)", " - 4ch)"}


def test_a_prefix_with_one_child_is_joined_with_it():
    report = tree(
        leaf("params/params/decoder/w", (8,), "data"), leaf("params/params/decoder/b/c/d", (8,), "data")
    )
    assert summaries(to_html(report)) == [("params/params/decoder/", True)]
    assert [row[0] for row in rows(to_html(report))] == ["path", "params/params/decoder/", "w", "b/c/d"]


def test_small_trees_are_open_and_large_ones_open_to_their_first_levels():
    assert all(is_open for _, is_open in summaries(to_html(STATE)))
    leaves = [
        leaf(f"{top}/{a}{b}/w{c}", (ord(c),), "data")
        for top in "xy"
        for a in "abc"
        for b in "abc"
        for c in "abcd"
    ]
    shown = summaries(to_html(tree(*leaves)))
    assert [is_open for name, is_open in shown if name in ("x/", "y/")] == [True, True]
    assert not any(is_open for name, is_open in shown if name not in ("x/", "y/"))


def test_notes_are_below_a_prefix_and_below_a_leaf():
    report = tree(
        leaf("a/b", (8,), is_deleted=True, nbytes=None, shard_nbytes=None), leaf("a/c", (8,), "data")
    )
    assert [row[0] for row in rows(to_html(report))] == ["path", "a/\n  1 deleted", "b\n  deleted", "c"]
    spans = [span for span in parsed(to_html(report)).iter("span") if "deleted" in text_of(span)]
    assert [span.get("style") for span in spans] == ["color:#e12d2d"] * 2


def test_the_fragment_needs_nothing_else_and_inherits_the_color_of_the_page():
    html = to_html(STATE)
    root = parsed(html)
    table = {"table", "col", "tr", "th", "td"}
    assert {element.tag for element in root.iter()} <= {"div", "details", "summary", "span", "wbr", *table}
    assert {name for element in root.iter() for name in element.attrib} <= {"style", "open", "title"}
    assert "color:inherit" in html
    assert "url(" not in html


def test_the_page_around_it_has_no_say_in_tables_and_details():
    root = parsed(to_html(STATE))
    names = ("table", "tr", "th", "td", "details", "summary")
    styles = [element.get("style") for name in names for element in root.iter(name)]
    assert all(style.startswith("all:revert") for style in styles)


def test_a_long_name_is_clipped_and_wrapped():
    html = to_html(tree(leaf("x" * 5000, (8,), "data"), leaf("y", (8,), "data")))
    assert rows(html)[1][0] == "x" * 1000 + " ... " + "x" * 500
    assert "min(41ch,50vw)" in html
    assert len(html) < 10_000


def test_texts_are_escaped():
    html = to_html(tree(leaf("<b>&\x1b", (8,), "data"), name="<i>"))
    assert "<b>" not in html
    assert "<i>" not in html
    assert rows(html)[1][0] == "<b>&\\x1b"
    assert sentences(html)[1] == "<i>: dict"


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


@pytest.fixture
def displayed(monkeypatch):
    """Return the list of bundles that a notebook displays."""
    shown = []

    class ZMQInteractiveShell:
        """Jupyter's shell; rich checks for this class name."""

    shell = ZMQInteractiveShell()
    shell.display_formatter = types.SimpleNamespace(active_types=("text/plain", "text/html"))
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = lambda bundle, raw: shown.append(bundle)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
    return shown


def test_print_tree_folds_in_a_notebook_unless_the_rows_are_sorted(displayed):
    print_tree(STATE)
    [bundle] = displayed
    assert bundle["text/html"] == STATE._repr_mimebundle_()["text/html"]
    assert sorted(bundle) == ["text/html", "text/plain"]
    assert "state: dict" in bundle["text/plain"]
    assert bundle["text/html"] == to_html(STATE)
    print_tree(STATE, depth=1)
    assert displayed[1]["text/html"].count("<details") == 0
    print_tree(STATE, sort="waste")
    assert "<pre" in displayed[2]["text/html"]
    assert "avoidable" not in displayed[2]["text/html"], "no leaf has avoidable bytes"
