"""Allocation sites and referrers in the tables of live arrays, and the sums of arrays."""

import dataclasses

import pytest

from jax_array_info import to_text
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import Origin, SourceLine
from tests.rich_render.tables.live_reports import group, report_of, rows, to_text_by

pytestmark = pytest.mark.oldest_and_newest


MADE = (
    Origin(file="/home/me/train.py", line=141, function="init_params"),
    Origin(file="data.py", line=7, function="load"),
)
MADE_AT = dataclasses.replace(
    report_of(
        dataclasses.replace(group((8, 8), 256, 2, devices=8, nbytes=2048), origin=MADE[0], sharding="P('a')"),
        dataclasses.replace(group((7,), 28, 3), origin=MADE[1]),
        dataclasses.replace(group((9,), 36), origin=MADE[1], memory_kind="pinned_host"),
        group((), 4, dtype="int32"),
    ),
    origins="known",
    host_nbytes=((0, 36),),
)


def test_allocation_sites_and_host_memory_are_printed_with_each_array():
    assert rows(MADE_AT) == [
        ["256.0 B each", "(8, 8) ×2", "float32", "✔ (2.0 KiB total)", "train.py:141 init_params"],
        ["28.0 B each", "(7,) ×3", "float32", "", "data.py:7 load"],
        ["36.0 B", "(9,)", "float32", "", "data.py:7 load"],
        ["", "in pinned_host", "", "", ""],
        ["4.0 B", "1 scalar", "int32", "", "unknown"],
        ["36.0 B", "in host memory", "", "", ""],
        ["5.0 MiB", "fullest device", "", "", ""],
    ]


@pytest.mark.parametrize(
    ("by", "first", "count"),
    [
        ("origin", ["512.0 B", "4.0 KiB", "2", "train.py:141 init_params"], 3),
        ("dtype", ["632.0 B", "4.1 KiB", "6", "float32"], 2),
        ("sharding", ["512.0 B", "4.0 KiB", "2", "P('a')"], 2),
        ("device", ["5.0 MiB", "5.0 MiB", "7", "cpu:0"], 2),
    ],
)
def test_rows_sum_the_arrays_of_an_origin_dtype_sharding_or_device(by, first, count):
    table = rows(MADE_AT, by=by)
    assert table[0] == first
    assert table[count:] == [["36.0 B", "", "", "in host memory"], ["5.0 MiB", "", "", "fullest device"]]
    assert rows(MADE_AT, by=by, max_rows=0)[0][3] == f"{count} more"


def test_heads_of_sums_name_their_devices():
    def head(report, by):
        return to_text_by(report, by).splitlines()[2]

    one_process = dataclasses.replace(MADE_AT, visible_devices=2)
    for by in ("origin", "dtype", "sharding"):
        assert head(one_process, by).startswith("┃ max per device ┃ all devices ┃ arrays ┃")
        # Here, six devices belong to other processes.
        assert head(MADE_AT, by).startswith("┃ max per device ┃ local devices ┃ arrays ┃")
    assert head(MADE_AT, "device").startswith("┃ per device ┃ with host memory ┃ arrays ┃ device")


def test_by_device_host_memory_has_a_column_if_it_is_used():
    alone = dataclasses.replace(MADE_AT, host_nbytes=())
    assert "with host memory" in to_text_by(MADE_AT, "device")
    assert "with host memory" not in to_text_by(alone, "device")
    assert rows(alone, by="device") == [
        ["5.0 MiB", "7", "cpu:0"],
        ["7.0 B", "2", "cpu:1"],
        ["5.0 MiB", "", "fullest device"],
    ]


def test_past_max_rows_the_rest_of_sums_has_its_bytes_on_the_fullest_device():
    def made(line, *devices):
        places = tuple((device, 2) for device in devices)
        origin = Origin(file="a.py", line=line, function="f")
        return dataclasses.replace(group((line,), 100 * line, 2), origin=origin, device_counts=places)

    report = report_of(made(9, 0), made(3, 1), made(2, 0, 1), made(1, 0))
    assert rows(report, by="origin", max_rows=1)[1] == ["1000.0 B", "1.6 KiB", "6", "3 more"]
    assert rows(report, by="device", max_rows=0)[0][0] == "5.0 MiB"


def test_missing_allocation_sites_are_unknown_or_have_a_footer():
    unknown = dataclasses.replace(report_of(group((7,), 28)), origins="known")
    assert rows(unknown)[0][-1] == "unknown"
    assert rows(unknown, by="origin")[0][-1] == "unknown"
    silent = dataclasses.replace(unknown, origins="not told by this jax")
    assert "Allocation sites are not available in this version of JAX." in " ".join(to_text(silent).split())


HELD = dataclasses.replace(
    report_of(
        dataclasses.replace(group((8, 8), 256, 7), holders=tuple(f"train.params['w{n}']" for n in range(7))),
        dataclasses.replace(group((5,), 20, 3), holders=("main() local [red]x\x1b[0m",), unheld_count=2),
        dataclasses.replace(group((3,), 12), unheld_count=1, dtype="int8"),
    ),
    visible_devices=1,
    holders="complete",
)


def test_referrers_begin_on_the_line_of_the_shape():
    assert rows(HELD) == [
        ["256.0 B each", "(8, 8) ×7", "float32", "train.params['w0']"],
        *(["", "", "", f"train.params['w{number}']"] for number in range(1, 5)),
        ["", "", "", "and 2 more"],
        ["20.0 B each", "(5,) ×3", "float32", r"main() local [red]x\x1b[0m"],
        ["", "", "", "2 of 3: no Python referrer found (held by JAX or C++)"],
        ["12.0 B", "(3,)", "int8", "no Python referrer found (held by JAX or C++)"],
        ["5.0 MiB", "fullest device", "", ""],
    ]


def test_arrays_that_the_garbage_collector_frees_are_marked():
    one = dataclasses.replace(group((3,), 12), garbage_count=1)
    two = dataclasses.replace(group((5,), 20, 2), garbage_count=2)
    some = dataclasses.replace(group((7,), 28, 3), holders=("train.w",), garbage_count=1)
    report = dataclasses.replace(report_of(some, two, one), visible_devices=1, holders="complete")
    assert [row[-1] for row in rows(report, width=120)][:4] == [
        "train.w",
        "1 of 3: garbage in a reference cycle: gc.collect() frees it",
        "garbage in reference cycles: gc.collect() frees them",
        "garbage in a reference cycle: gc.collect() frees it",
    ]
    words = "4 arrays (80.0 B) are garbage in reference cycles: gc.collect() frees them."
    assert words in " ".join(to_text(report, width=120).split())


def test_further_references_are_counted_with_the_paths_that_are_left_out():
    made = dataclasses.replace(group((3,), 12), holders=("train.w",), other_holder_count=2)
    assert [row[-1] for row in rows(dataclasses.replace(report_of(made), holders="complete"))][:2] == [
        "train.w",
        "and 2 more",
    ]


def test_an_allocation_site_names_the_line_that_called_it():
    def made(count, line):
        callers = tuple(SourceLine(file="train.py", line=at, function="train") for at in (line, 40 + count))
        origin = Origin(file="utils.py", line=3, function="make", callers=callers)
        return dataclasses.replace(group((8, 8), 256, count), origin=origin)

    # Callers of the caller are not shown, and make no rows.
    report = dataclasses.replace(
        report_of(made(1, 12), made(2, 12), made(4, 14)), visible_devices=1, origins="known"
    )
    assert rows(report, width=120)[:-1] == [
        ["256.0 B each", "(8, 8) ×3", "float32", "utils.py:3 make from train.py:12 train"],
        ["256.0 B each", "(8, 8) ×4", "float32", "utils.py:3 make from train.py:14 train"],
    ]
    assert [row[-1] for row in rows(report, by="origin", width=120)][:-1] == [
        "utils.py:3 make from train.py:14 train",
        "utils.py:3 make from train.py:12 train",
    ]


@pytest.mark.parametrize(
    ("rows_before", "last"), [(17, "and 2 more"), (20, "and 3 more"), (48, "train.params['w0'] and 6 more")]
)
def test_the_more_rows_a_table_has_the_fewer_paths_has_each(rows_before, last):
    """Together they take at most 100 lines."""
    others = (
        dataclasses.replace(group((size,), 4096), holders=("a",)) for size in range(10, 10 + rows_before)
    )
    report = dataclasses.replace(HELD, groups=(*others, *HELD.groups))
    text = text_of(render(report, max_rows=None), width=120)
    assert [line.split("│")[4].strip() for line in text.splitlines() if " more" in line] == [last]


def test_scalars_have_allocation_sites_and_referrers():
    scalars = [
        dataclasses.replace(group((), 4, 2), origin=MADE[0], holders=("train.metrics[0]",)),
        dataclasses.replace(group((), 4, 3), origin=MADE[1], unheld_count=3),
    ]
    report = dataclasses.replace(report_of(*scalars), visible_devices=1, origins="known", holders="complete")
    assert rows(report, width=120)[:2] == [
        ["12.0 B", "3 scalars", "float32", "data.py:7 load", "no Python referrer found (held by JAX or C++)"],
        ["8.0 B", "2 scalars", "float32", "train.py:141 init_params", "train.metrics[0]"],
    ]


def test_columns_are_stacked_where_they_would_break_words_and_keys():
    held = "train.state.params['decoder_layers']['query_projection']"
    made = dataclasses.replace(
        group((8, 8), 256, devices=8, nbytes=2048), origin=MADE[0], sharding="P('a')", holders=(held,)
    )
    report = dataclasses.replace(report_of(made), origins="known", holders="complete")
    assert rows(report, width=64) == [
        ["256.0 B", "(8, 8)", "train.py:141 init_params"],
        ["", "float32", "train.state.params"],
        ["", "✔ (2.0 KiB total)", "['decoder_layers']"],
        ["", "", "['query_projection']"],
        ["5.0 MiB", "fullest device", ""],
    ]
    assert len(rows(report, width=140)[0]) == 6


def test_sums_of_arrays_have_referrers():
    lines = [row[-1] for row in rows(HELD, by="dtype", width=120)]
    assert lines[5:] == [
        "and 3 more",
        "2 of 10: no Python referrer found (held by JAX or C++)",
        "no Python referrer found (held by JAX or C++)",
        "",
    ]


def test_an_incomplete_search_for_referrers_has_a_footer():
    ended = dataclasses.replace(HELD, holders="incomplete")
    assert rows(ended)[-2][-1] == "no Python referrer found (search incomplete)"
    words = "The search for referrers was incomplete, so there may be more. max_seconds=None removes its time limit."
    assert words in " ".join(to_text(ended).split())
