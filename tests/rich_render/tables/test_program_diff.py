"""Tables of the differences of programs."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from jax_array_info import to_text
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import (
    Donation,
    DonationChange,
    FigureChange,
    Origin,
    ProgramDiff,
    SentChange,
    SentLine,
    Temporary,
    TemporaryChange,
)
from tests.rich_render.tables.test_program import text
from tests.sample_programs import DIFFERENCE, EQUAL

pytestmark = pytest.mark.oldest_and_newest


def test_equal_programs_have_no_table():
    assert (
        text(EQUAL)
        == """\
no differences
step
sent per device and call: 12.0 B before and after"""
    )


def test_a_part_that_could_not_be_compared_is_named_even_without_differences():
    report = replace(EQUAL, sent_nbytes_after=None, unknown=("second program: 1 line could not be read",))
    assert (
        text(report)
        == """\
no differences, as far as known
step
sent per device and call: 12.0 B before, unknown after
not compared:
  second program: 1 line could not be read"""
    )


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_lines_are_within_the_width(width):
    assert max(map(cell_len, to_text(DIFFERENCE, width=width).splitlines())) <= width


def test_leaves_that_differ_only_in_indices_share_a_row():
    changes = tuple(
        DonationChange(
            path=f"layers/{number}/w",
            before=None,
            after=Donation(path=f"layers/{number}/w", nbytes=4, output=f"outputs/{number}/w"),
        )
        for number in range(3)
    )
    assert "│ layers/0-2/w ×3 │ not donated │ reused for outputs/0-2/w │" in text(
        replace(EQUAL, donations=changes)
    )


def test_an_argument_that_does_not_exist_is_absent():
    donation = Donation(path="opt", nbytes=4, output="outputs/opt")
    change = DonationChange(path="opt", before=donation, after=None, is_absent_after=True)
    shown = text(replace(EQUAL, donations=(change,)))
    assert "│ opt  │ reused  │ absent │" in shown
    assert "not donated" not in shown


def test_long_tables_end_with_the_number_of_the_other_rows():
    shown = text_of(render(DIFFERENCE, max_rows=1), width=80)
    assert shown.count("2 more") == 3
    assert shown.count("1 more") == 1


def test_lines_are_shown_below_their_kind_and_axes():
    lines = tuple(
        SentLine(
            origin=Origin(file="/src/train.py", line=number, function="loss"), before=0, after=2**20 // number
        )
        for number in range(1, 6)
    )
    lines = (SentLine(origin=None, before=0, after=None), *lines)
    change = SentChange(kind="all-gather", axes=("fsdp",), before=0, after=None, lines=lines)
    diff = ProgramDiff(before_name="step", after_name="step", sent=(change,), sent_nbytes_after=None)
    expected = """
sends other bytes, in part unknown
step
sent per device and call: 0.0 B before, unknown after
                   sent per device and call
┏━━━━━━━━━━━━━━━━━━━┳━━━━━━┳━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━┓
┃ collective        ┃ over ┃ before ┃     after ┃ difference ┃
┡━━━━━━━━━━━━━━━━━━━╇━━━━━━╇━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━┩
│ all-gather        │ fsdp │  0.0 B │   unknown │            │
│   line unknown    │      │  0.0 B │   unknown │            │
│   train.py:1 loss │      │  0.0 B │   1.0 MiB │   +1.0 MiB │
│   train.py:2 loss │      │  0.0 B │ 512.0 KiB │ +512.0 KiB │
│   3 more lines    │      │  0.0 B │ 802.1 KiB │ +802.1 KiB │
└───────────────────┴──────┴────────┴───────────┴────────────┘
"""
    assert text(diff) == expected.strip("\n")


def test_memory_that_donations_reuse_has_the_words_of_a_program():
    change = FigureChange(name="alias_nbytes", before=1024, after=0)
    shown = text(ProgramDiff(before_name="f", after_name="f", figures=(change,)))
    assert "reused by donation" in shown


@pytest.mark.parametrize(("figure", "is_explained"), [(512, True), (2048, False), (None, False)])
def test_temporaries_beyond_the_figure_of_them_are_explained(figure, is_explained):
    value = Temporary(shape=(256,), dtype="float32", nbytes=1024, origin=None)
    report = replace(
        EQUAL,
        figures=(FigureChange(name="temporary_nbytes", before=0, after=figure),),
        temporaries=(TemporaryChange(value=value, before=0, after=1),),
    )
    found = " ".join(text(report).split())
    assert ("values in the memory of outputs, which XLA's figure of temporaries" in found) == is_explained
