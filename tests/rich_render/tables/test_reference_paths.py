"""Reference paths in tables: folded paths, and lines that break between keys."""

from dataclasses import replace

import pytest

from jax_array_info import to_text
from jax_array_info.engine.render import on_console, text_of
from jax_array_info_core.facts.pages.blocks import Column, Table
from jax_array_info_core.facts.pages.folds import folded_references
from tests.rich_render.tables.live_reports import group
from tests.rich_render.tables.live_reports import report_of as report_of_groups

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    ("paths", "folded"),
    [
        ([f"meter.hist['hidden'][{number}]" for number in range(20)], ["meter.hist['hidden'][0:20]"]),
        ([f"history[{number}][1]" for number in (3, 1, 2)], ["history[1:4][1]"]),
        ([f"a[{row}][{column}].w" for row in range(3) for column in range(4)], ["a[0:3][0:4].w"]),
        (["a[0]", "a[1]"], ["a[0]", "a[1]"]),
        (["a[0]", "a[2]", "a[3]", "a[4]", "a[9]"], ["a[0]", "a[2:5]", "a[9]"]),
        (["b", "a[1]", "c['x']", "a[0]", "a[2]"], ["b", "a[0:3]", "c['x']"]),
        ([f"a['[{number}]']" for number in range(3)], ["a['[0]']", "a['[1]']", "a['[2]']"]),
        ([f"a['\\'[{number}]']" for number in range(3)], ["a['\\'[0]']", "a['\\'[1]']", "a['\\'[2]']"]),
        ([f"state['layers_{n}']['w']" for n in range(12)], ["state['layers_0-11']['w']"]),
        (["a['w_0']", "a['w_1']", "a['w_3']"], ["a['w_0']", "a['w_1']", "a['w_3']"]),
        (["a[0:3]", "a[3]"], ["a[0:3]", "a[3]"]),
        (["a", "a"], ["a"]),
        ([], []),
    ],
)
def test_paths_that_differ_in_one_index_are_folded(paths, folded):
    assert folded_references(paths) == folded


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


def report_of(*holders, count=1):
    made = replace(group((256, 1024), 2**20, count), holders=holders)
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
