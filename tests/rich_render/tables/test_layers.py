"""The first line and the rows of the table of layers."""

from dataclasses import replace

import pytest

from jax_array_info.engine.render import render, text_of, to_text
from jax_array_info_core.facts.pages.layers import layers_words
from jax_array_info_core.reports import LayerRow, LayersReport

pytestmark = pytest.mark.newest


def layers(rows, by="parameter", **rest):
    rest = LayerRow(name="not of a parameter", **rest)
    return LayersReport(name="step", platform="cpu", by=by, rows=tuple(rows), rest=rest)


def row(name, sent=0, flops=0, held=0, count=1):
    paths = tuple(f"{name}/{number}" for number in range(count))
    figures = {"forward_sent_nbytes": sent, "backward_flops": flops, "parameter_nbytes": held}
    return LayerRow(name=name, paths=paths, **figures)


ROWS = [
    row("layers/0-31/up", 40, 30, 11, count=32),
    row("layers/0-31/down", 21, 29, 10, count=32),
    row("layers/0-31/norm", 1, 0, 1, count=32),
    row("head", 19, 40, 78),
]


def test_the_first_line_has_the_fewest_rows_that_take_half():
    """Of 81 bytes, 40 are sent for one row, and 61 for two; of 99 FLOPs, two take 70."""
    assert layers_words(layers(ROWS)) == (
        "layers/*/up and down take 75% of the bytes sent; layers/*/up and head take 71% of the FLOPs;"
        " head takes 78% of the bytes held"
    )


def test_rows_that_take_as_much_are_named_together():
    assert (
        layers_words(layers([row("net/a", 5), row("net/b", 5)])) == "net/a and b take 100% of the bytes sent"
    )


def test_figures_of_the_same_rows_share_a_sentence():
    rows = [row("net/a", 3, 3, 3), row("net/b", 1, 1, 1)]
    assert layers_words(layers(rows)) == (
        "net/a takes 75% of the bytes sent, 75% of the FLOPs and 75% of the bytes held"
    )


def test_what_is_of_no_parameter_is_named_where_it_is_the_most():
    rows = [row("net/a", sent=3), row("net/b", sent=1)]
    found = layers_words(layers(rows, forward_sent_nbytes=8))
    assert found == "net/a takes 25% of the bytes sent (67% not of a parameter)"
    found = layers_words(layers([row("net/a")], forward_sent_nbytes=8))
    assert found == "what is not of a parameter takes 100% of the bytes sent"


def test_sums_without_collectives_of_unknown_bytes_are_marked():
    rows = [LayerRow(name="w", paths=("w",), forward_sent_nbytes=4, unknown_count=1)]
    text = to_text(layers(rows))
    assert text.startswith("w takes 100% of the bytes sent that are known")
    assert "4.0 B + ?" in text


def test_sums_without_operations_that_are_not_counted_are_marked():
    """The caveats of the report tell them: here those of a kernel, or of a loop of unknown length."""
    rows = [row("w", flops=4, held=4)]
    for caveat in ("FLOPs of all passes: at least 4", "FLOPs: kernel of a.py:1 not counted"):
        found = layers_words(replace(layers(rows), caveats=("padding", caveat)))
        assert found == "w takes 100% of the FLOPs that are known and 100% of the bytes held"
    assert "known" not in layers_words(replace(layers(rows), caveats=("padding",)))


def test_a_program_without_parameters_or_scopes_has_its_sums():
    for by in ("parameter", "scope"):
        text = to_text(layers([], by, forward_sent_nbytes=2048))
        assert text.startswith(f"no {by}s")
        assert text.count("2.0 KiB") == 2


def test_columns_without_figures_are_left_out():
    """A forward function has no gradient, and nothing is saved. What it sends is of the forward pass alone."""
    text = to_text(layers([row("w", 1024, 2000, 4096)]), width=200)
    [heads] = [line for line in text.splitlines() if line.startswith("┃")]
    assert heads.strip("┃").split(" ┃ ") == [
        " parameter         ",
        "   held",
        "   sent",
        "FLOPs",
        "FLOPs backward ",
    ]


def test_rows_are_sorted_by_a_column():
    def names(sort):
        text = text_of(render(layers(ROWS), width=80, sort=sort), width=80)
        return [line.split()[1] for line in text.splitlines() if line.startswith(("│ layers", "│ head"))]

    up, down, norm, head = (one.name for one in ROWS)
    assert names("tree") == [up, down, norm, head]
    assert names("held") == [head, up, down, norm]
    assert names("sent") == [up, down, head, norm]
    with pytest.raises(ValueError, match="sort must be one of tree, parameters, held, sent, flops, saved"):
        names("size")
