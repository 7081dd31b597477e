"""Reference paths in tables: lines that break between keys."""

from dataclasses import replace

import pytest

from jax_array_info import to_text
from jax_array_info.engine.render import on_console, text_of
from jax_array_info_core.facts.pages.blocks import Column, Table
from tests.rich_render.tables.live_reports import group
from tests.rich_render.tables.live_reports import report_of as report_of_groups

pytestmark = pytest.mark.newest


def lines_of(path, width):
    """Return the lines of a path in a column of a width."""
    table = Table("", [Column("held by", "names")], [[{"held by": path}]])
    text = text_of(on_console([table], width=width + 4), width=width + 4)
    return [line[2:-1].rstrip() for line in text.splitlines() if line.startswith("│")]


def test_a_path_wraps_between_its_keys():
    path = "main() local state.params['layer norm']['w b'].value → closure of f.<locals>.g: w"
    assert lines_of(path, 100) == [path]
    assert lines_of(path, 26) == [
        "main() local state.params",
        "  ['layer norm']['w b']",
        "  .value → closure of f",
        "  .<locals>.g: w",
    ]
    assert lines_of("state['a ] \\' b'][(0, 'c d')]", 17) == [
        "state['a ] \\' b']",
        "  [(0, 'c d')]",
    ]


def test_a_key_breaks_only_if_it_is_too_wide_alone_and_at_a_space_if_it_has_one():
    assert lines_of("a.b['layer norm scale']", 16) == [
        "a.b",
        "  ['layer norm",
        "  scale']",
    ]


def report_of(path, count=1):
    made = replace(group((256, 1024), 2**20, count), holder=path)
    report = report_of_groups(made, visible_devices=1, device_nbytes=((0, 2**20),))
    return replace(report, holders="complete")


def test_the_other_columns_wrap_before_a_key_breaks():
    key = "['the scale of the norm of block 12']"
    text = to_text(report_of(f"train.state.params{key}", count=2), width=80)
    assert key in text
    assert max(map(len, text.splitlines())) <= 80
    # If a key itself has to be split, all of its text remains.
    narrow = to_text(report_of(f"train.state.params{key}"), width=40)
    assert "".join(key.split()) in "".join(
        line.split("│")[-2].strip().replace(" ", "") for line in narrow.splitlines() if line.count("│") > 2
    )
