"""Trees as HTML: prefixes fold with ``details`` elements."""

import re
import sys
import types
from html import unescape

import pytest

from jax_array_info import print_tree, to_html
from jax_array_info.export import tree_html
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


def lines(html):
    """Return the lines of text that are visible if every prefix is open, without their margins."""
    text = unescape(re.sub("<[^>]*>", "", re.sub("</?(?:div|details|summary)[^>]*>", "\n", html)))
    return [line for line in text.splitlines() if line.strip()]


def summaries(html):
    """Return the name of each prefix, and whether it is open."""
    return [
        (details.find("summary").text.split()[0], details.get("open") is not None)
        for details in parsed(html).iter("details")
    ]


def test_each_prefix_has_its_bytes_and_folds():
    root = parsed(to_html(STATE))
    shown = [re.split(r"\s{2,}", details.find("summary").text) for details in root.iter("details")]
    assert [cells[:3] for cells in shown] == [
        ["params/", "4.0 MiB", "33 leaves"],
        ["opt/", "16.0 KiB", "4 leaves"],
        ["mu/", "8.0 KiB", "2 leaves"],
        ["nu/", "8.0 KiB", "2 leaves"],
    ]


def test_leaves_are_below_their_prefix_with_aligned_columns():
    assert lines(to_html(STATE))[:14] == [
        "per device 4.0 MiB; evenly sharded 4.0 MiB; replication costs 8.1 KiB",
        "state: dict",
        "                         per device  replicated over  array             shard      spec",
        "step                          4.0 B  data, model (8)  float32[]         []         P()",
        "params/                     4.0 MiB                   33 leaves",
        "layers/0-31/mlp/w ×32     4.0 MiB                   float32[512,512]  [128,256]  P('data', 'model')",
        "norm                       68.0 B  data, model (8)  float32[17]       [17]       P()",
        "opt/                       16.0 KiB                   4 leaves",
        "mu/                       8.0 KiB                   2 leaves",
        "b                       4.0 KiB  model (2)        float32[64,64]    [16,64]    P('data',)",
        "w                       4.0 KiB  model (2)        float32[64,64]    [16,64]    P('data',)",
        "nu/                       8.0 KiB                   2 leaves",
        "b                       4.0 KiB  model (2)        float32[64,64]    [16,64]    P('data',)",
        "w                       4.0 KiB  model (2)        float32[64,64]    [16,64]    P('data',)",
    ]


def test_a_prefix_with_one_child_is_joined_with_it():
    report = tree(
        leaf("params/params/decoder/w", (8,), "data"), leaf("params/params/decoder/b/c/d", (8,), "data")
    )
    assert summaries(to_html(report)) == [("params/params/decoder/", True)]
    assert "b/c/d" in to_html(report)


def test_small_trees_are_open_and_large_ones_open_to_their_first_levels():
    assert all(is_open for _, is_open in summaries(to_html(STATE)))
    rows = [
        leaf(f"{top}/{a}{b}/w{c}", (ord(c),), "data")
        for top in "xy"
        for a in "abc"
        for b in "abc"
        for c in "abcd"
    ]
    shown = summaries(to_html(tree(*rows)))
    assert [is_open for name, is_open in shown if name in ("x/", "y/")] == [True, True]
    assert not any(is_open for name, is_open in shown if name not in ("x/", "y/"))


def test_notes_are_next_to_a_prefix_and_below_a_leaf():
    report = tree(
        leaf("a/b", (8,), is_deleted=True, nbytes=None, shard_nbytes=None), leaf("a/c", (8,), "data")
    )
    root = parsed(to_html(report))
    assert lines(to_html(report))[3].endswith("  1 deleted")
    assert lines(to_html(report))[5] == "  deleted"
    assert [span.get("style") for span in root.iter("span")] == ["color:#e12d2d"] * 2


def test_the_fragment_needs_nothing_else_and_inherits_the_color_of_the_page():
    html = to_html(STATE)
    root = parsed(html)
    assert {element.tag for element in root.iter()} <= {"div", "b", "details", "summary", "span"}
    assert {name for element in root.iter() for name in element.attrib} <= {"style", "open"}
    assert "color:inherit" in html
    assert "url(" not in html


def test_a_long_name_has_a_line_of_its_own():
    html = to_html(tree(leaf("x" * 5000, (8,), "data"), leaf("y", (8,), "data")))
    assert "x" * 1000 + " ... " + "x" * 500 + "\n" in html
    assert len(html) < 10_000


def test_paths_of_thousands_of_keys_are_clipped():
    path = "/".join(f"k{'x' * number}" for number in range(3)) + "/y" * 3000
    html = to_html(
        tree(*(leaf(f"{path[: 2 * number]}z{number}", (8,), "data") for number in range(5, 3000, 7)))
    )
    assert html.count("<details") <= 101
    assert "y/" * 800 in html
    assert "y/" * 1000 not in html


def test_trees_of_too_many_leaves_are_summed_by_prefix(monkeypatch):
    monkeypatch.setattr(tree_html, "_MOST_ROWS", 10)
    rows = [leaf(f"{a}/{b}", (ord(a), ord(b)), "data") for a in "abcde" for b in "xyz"]
    assert [line.split()[0] for line in lines(to_html(tree(*rows)))[3:8]] == ["a/", "b/", "c/", "d/", "e/"]
    flat = [leaf(f"{chr(97 + number)}", (number + 1,), "data") for number in range(15)]
    assert any(line.startswith("5 more leaves") for line in lines(to_html(tree(*flat))))


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
