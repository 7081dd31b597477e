"""Tables of live arrays, and of the statistics of one device."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import live_array_report, pretty_memory_stats, print_array_stats, to_text
from jax_array_info.engine.render import render, text_of
from jax_array_info.errors import UnsupportedValueError
from jax_array_info.reports import MemoryReport
from tests.arrays import mesh_of, sharded
from tests.rich_render.tables.live_reports import group, report_of, rows, to_text_by

pytestmark = pytest.mark.oldest_and_newest


MANY = report_of(
    group((1024, 1024), 4 * 2**20, label="params"),
    group((512, 512), 2**20, 3, nbytes=8 * 2**20, devices=8, replicas=2),
    group((7,), 28, 120),
    group((), 4, 2, dtype="int32"),
    group((), 4, 1, dtype="float32", devices=8, replicas=8),
    group((), 4, 1, dtype="int32", devices=8, replicas=8),
)


def test_equal_rows_are_folded_scalars_counted_and_the_last_row_is_the_fullest_device():
    assert rows(MANY) == [
        ["4.0 MiB", "(1024, 1024)", "float32", "", "params"],
        ["1.0 MiB each", "(512, 512) ×3", "float32", "✔ (8.0 MiB total, 2 replicas)", ""],
        ["28.0 B each", "(7,) ×120", "float32", "", ""],
        ["12.0 B", "3 scalars", "int32", "", ""],
        ["4.0 B", "1 scalar", "float32", "", ""],
        ["5.0 MiB", "fullest device", "", "", ""],
    ]


def test_hidden_small_arrays_share_a_row_unless_labeled():
    labeled = report_of(group((7,), 28, label="bias"), group((6,), 24, 5), group((5,), 3072))
    assert rows(labeled, hide_small_arrays=True)[:-1] == [
        ["28.0 B", "(7,)", "float32", "", "bias"],
        ["3.0 KiB", "(5,)", "float32", "", ""],
        ["120.0 B", "small arrays", "", "", ""],
    ]


def test_past_max_rows_one_row_has_the_rest_and_the_total_stays():
    many = report_of(*(group((size,), 4 * size, 2) for size in range(10, 0, -1)), group((), 4))
    shown = rows(many, max_rows=3)
    assert shown[:4] == [
        ["40.0 B each", "(10,) ×2", "float32", ""],
        ["36.0 B each", "(9,) ×2", "float32", ""],
        ["32.0 B each", "(8,) ×2", "float32", ""],
        ["224.0 B", "14 more arrays", "", ""],
    ]
    assert shown[-1][0] == "5.0 MiB"
    assert len(rows(many, max_rows=None)) == 12
    assert rows(many, max_rows=0)[0] == ["440.0 B", "20 more arrays", "", ""]
    with pytest.raises(ValueError, match="max_rows must be at least 0, or None for all rows, got -1"):
        rows(many, max_rows=-1)


def test_with_one_device_and_no_labels_there_are_three_columns():
    alone = dataclasses.replace(report_of(group((7,), 28)), visible_devices=1)
    assert rows(alone)[0] == ["28.0 B", "(7,)", "float32"]


def test_scalars_on_several_devices_count_once_per_device():
    spread_out = dataclasses.replace(
        group((), 4, 8, dtype="int32"), device_counts=tuple((device, 1) for device in range(8))
    )
    small = dataclasses.replace(spread_out, shape=(2,), nbytes=8, shard_nbytes=8)
    table = rows(report_of(small, spread_out, device_nbytes=((0, 12),)), hide_small_arrays=True)
    assert [row[:2] for row in table] == [["8.0 B", "small arrays"], ["4.0 B", "8 scalars"], ["12.0 B", ""]]


def test_empty_arrays_that_print_alike_share_a_row():
    empty = [group((0, 8), 0, devices=devices, nbytes=0) for devices in (2, 4, 8)]
    assert rows(report_of(*empty))[0] == ["0.0 B each", "(0, 8) ×3", "float32", "✔ (0.0 B total)"]


def test_rows_name_devices_other_than_the_first_and_parts_of_all():
    def placed(shape, each, *counts, **fields):
        count = sum(number for _, number in counts) // each
        return dataclasses.replace(group(shape, 28, count, devices=each), device_counts=counts, **fields)

    report = report_of(
        placed((1,), 1, (0, 3)),
        placed((2,), 1, (2, 3)),
        placed((3,), 1, (0, 1), (1, 2)),
        placed((4,), 2, (2, 1), (3, 1)),
        placed((5,), 2, *((device, 1) for device in range(4))),
        placed((6,), 4, *((device, 2) for device in range(4))),
        placed((7,), 1, *((device, 1) for device in range(4)), views_of="float32[28]"),
        device_nbytes=tuple((device, 1000) for device in range(4)),
    )
    assert {(row[1], row[3]) for row in rows(report) if row[0] or row[3]} == {
        ("(1,) ×3", ""),
        ("(2,) ×3", "on cpu:2"),
        ("(3,) ×3", "each on 1 of cpu:0,1"),
        ("(4,)", "✔ (28.0 B total)"),
        ("", "on cpu:2,3"),
        ("(5,) ×2", "✔ (28.0 B total)"),
        ("", "each on 2 of cpu:0-3"),
        ("(6,) ×2", "✔ (28.0 B total)"),
        ("(7,) ×4", ""),
        ("fullest device", ""),
    }


@pytest.mark.needs_devices(8)
def test_the_arrays_of_one_device_have_their_bytes_there(no_arrays, capsys):
    device = jax.devices()[3]
    everywhere = sharded((16, 512), mesh_of((8,), ("a",)), "a")
    here, elsewhere = (jax.device_put(np.zeros(512, np.float32), one) for one in (device, jax.devices()[2]))
    scalar = jax.device_put(np.float32(1), device)
    report = live_array_report(device=device)
    assert (report.device, report.device_nbytes, report.array_count) == (3, ((3, 4096 + 2048 + 4),), 3)
    assert [one.device_counts for one in report.groups] == [((3, 1),)] * 3
    assert rows(report) == [
        ["4.0 KiB", "(16, 512)", "float32", "✔ (32.0 KiB total)"],
        ["2.0 KiB", "(512,)", "float32", ""],
        ["4.0 B", "1 scalar", "float32", ""],
        ["6.0 KiB", "", "", ""],
    ]
    assert rows(report, by="dtype") == [["6.0 KiB", "3", "float32"], ["6.0 KiB", "", ""]]
    print_array_stats(device=device)
    assert "allocated jax arrays on cpu:3 " in capsys.readouterr().out
    assert len([everywhere, here, elsewhere, scalar]) == 4


@pytest.mark.parametrize("device", [3, "cpu:3"])
def test_a_value_that_is_no_local_device_is_refused(device):
    with pytest.raises(
        UnsupportedValueError, match=f"device={device!r} is not a cpu device of this process: "
    ):
        print_array_stats(device=device)
    with pytest.raises(TypeError, match="a LiveArrayReport is printed as it is: remove device="):
        print_array_stats(live_array_report(), device=device)


def test_shared_buffers_have_a_footer():
    words = "Shared buffers are counted once per array, and once in the total."
    pair = report_of(group((8,), 32, 2), device_nbytes=((0, 32),))
    assert words in " ".join(to_text(pair).split())
    assert words in " ".join(to_text(pair, width=70).split())
    assert words not in " ".join(to_text(dataclasses.replace(pair, device_nbytes=((0, 64),))).split())
    assert words not in " ".join(to_text_by(pair, "device").split()), "a device counts it once"
    assert words not in " ".join(to_text(dataclasses.replace(pair, nbytes_source="arrays")).split())


def test_an_unknown_by_raises(capsys):
    words = "by must be one of 'shape', 'origin', 'device', 'dtype', 'sharding', got 'size'"
    with pytest.raises(ValueError, match=words):
        print_array_stats(by="size")
    assert capsys.readouterr().out == ""


def test_labels_are_printed_as_written():
    assert rows(report_of(group((7,), 28, label="[/oops]")))[0][-1] == "[/oops]"
    assert rows(report_of(group((7,), 28, label="a\x1b[31m\n")))[0][-1] == r"a\x1b[31m\n"


def test_no_line_is_longer_than_a_narrow_terminal():
    text = to_text(MANY, width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert "…" not in text


def test_the_verb_prints_what_to_text_returns(capsys, no_arrays):
    array = jnp.zeros((30, 40))
    print_array_stats()
    assert capsys.readouterr().out == to_text(live_array_report()) + "\n"
    assert array is not None


def test_without_live_arrays_a_table_is_printed(capsys, no_arrays):
    print_array_stats()
    assert "0.0 B" in capsys.readouterr().out


def test_the_table_is_printed_while_jax_traces(capsys):
    jax.jit(lambda x: print_array_stats() or x)(jnp.zeros(3))
    assert "allocated jax arrays" in capsys.readouterr().out


def test_counts_and_ratios_are_not_printed_as_sizes():
    report = MemoryReport(device="tpu:0", stats=(("bytes_in_use", 2048), ("num_frees", 7), ("share", 0.5)))
    cells = [line.split("│")[1:-1] for line in to_text(report).splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["bytes_in_use", "2.0 KiB", "2048"],
        ["num_frees", "", "7"],
        ["share", "", "0.5"],
    ]
    assert "allocs" not in to_text(report)


def test_without_statistics_one_line_has_the_reason(capsys):
    pretty_memory_stats(jax.devices()[0])
    assert capsys.readouterr().out == "no memory statistics for cpu:0: not reported by the cpu backend\n"


def test_arrays_only_on_other_processes_take_zero_bytes_here():
    elsewhere = dataclasses.replace(group((8, 16), 128, nbytes=512, devices=4), device_counts=())
    on_one = dataclasses.replace(group((8, 16), 512), device_counts=())
    report = report_of(group((8, 16), 128, nbytes=512, devices=4), elsewhere, on_one)
    assert rows(report)[:3] == [
        ["128.0 B", "(8, 16)", "float32", "✔ (512.0 B total)"],
        ["0.0 B", "(8, 16)", "float32", "✔ (512.0 B total, not on this process)"],
        ["0.0 B", "(8, 16)", "float32", "not on this process"],
    ]


def test_views_name_their_array_and_take_zero_bytes():
    views = [
        dataclasses.replace(group((8, 8), 0, 8, nbytes=256), views_of="params"),
        dataclasses.replace(group((), 0, 8, nbytes=4), views_of="float32[]"),
    ]
    report = report_of(group((64, 8), 2048, label="params"), *views, group((), 4), device_nbytes=((0, 2052),))
    assert rows(report) == [
        ["2.0 KiB", "(64, 8)", "float32", "", "params"],
        ["0.0 B each", "(8, 8) ×8", "float32", "", ""],
        ["", "views of params", "", "", ""],
        ["4.0 B", "1 scalar", "float32", "", ""],
        ["0.0 B", "8 scalars", "float32", "", ""],
        ["", "views of float32[]", "", "", ""],
        ["2.0 KiB", "", "", "", ""],
    ]
    assert "Shared buffers" not in to_text(report)


def sharded_as(sharding, *, shape=(8, 16), shard_nbytes=64):
    return dataclasses.replace(group(shape, shard_nbytes, nbytes=512, devices=8), sharding=sharding)


def test_rows_that_differ_only_in_sharding_show_their_specs():
    mesh = "over data=4,tensor=2"
    alike = report_of(
        sharded_as(f"P('data', 'tensor') {mesh}"),
        sharded_as(f"P(('data', 'tensor'), None) {mesh}"),
        sharded_as(f"P(('data', 'tensor'), None) {mesh}"),
        sharded_as(f"P('data', 'tensor') {mesh}", shape=(16, 16), shard_nbytes=128),
        group((3,), 12),
    )
    found = [row[1:4:2] for row in rows(alike)]
    assert found == [
        ["(8, 16)", "✔ (512.0 B total)"],
        ["", "P('data', 'tensor')"],
        ["(8, 16) ×2", "✔ (512.0 B total)"],
        ["", "P(('data', 'tensor'), None)"],
        ["(16, 16)", "✔ (512.0 B total)"],
        ["(3,)", ""],
        ["fullest device", ""],
    ]
    always = [row[3] for row in rows(alike, specs=True)]
    assert always[4:] == ["✔ (512.0 B total)", "P('data', 'tensor')", "", ""]


def test_rows_that_differ_only_in_mesh_show_their_meshes():
    two = report_of(sharded_as("P('a', None) over a=8"), sharded_as("P('a', None) over a=8,b=1"))
    assert [row[3] for row in rows(two)][1::2] == ["P('a', None) over a=8", "P('a', None) over a=8,b=1"]


SHARED = report_of(
    group((256,), 1024, 2, devices=2),
    group((128,), 512, label="a"),
    dataclasses.replace(group((9,), 36), memory_kind="pinned_host"),
    group((), 4, 128),
    device_nbytes=((0, 4096), (1, 2048)),
)


def test_wide_terminals_show_shares_of_the_fullest_device():
    report = dataclasses.replace(SHARED, host_nbytes=((0, 36),))
    found = [row[:2] for row in rows(report, width=100, has_shares=True)]
    assert found == [
        ["1.0 KiB each", "50.0%"],
        ["512.0 B", "12.5%"],
        ["36.0 B", ""],
        ["", ""],
        ["512.0 B", "12.5%"],
        ["36.0 B", ""],
        ["4.0 KiB", ""],
    ]
    by_dtype = rows(report, by="dtype", width=100, has_shares=True)
    assert by_dtype[0][:2] == ["3.0 KiB", "75.0%"]
    assert "of total" not in to_text(report, width=80)
    assert "of total" in to_text(report, width=90)


def test_shares_are_left_out_if_the_table_does_not_fit():
    wide = dataclasses.replace(SHARED, groups=(group((128,), 512, label="a" * 50),))
    assert "of total" not in to_text(wide, width=90)
    assert "of total" in to_text(wide, width=120)


def test_the_middle_of_a_very_long_label_is_left_out():
    text = text_of(render(report_of(group((7,), 28, label="n" * 10**7)), max_rows=None))
    assert text.count("n") < 3000
    assert "..." in text
